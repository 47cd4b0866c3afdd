"""What the paper could not do, measured: plain JAX, eqsat under budgets, and what one writes by hand.

    python -m benchmarks.beyond.attention [--quick] [--runs N]

and likewise for the other modules; the pages of the manual that are named after them say what each is about.
"""
