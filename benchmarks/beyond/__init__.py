"""Measures what the paper could not do: plain JAX, eqsat under budgets, and programs written by hand.

    python -m benchmarks.beyond.attention [--quick] [--runs N]

The other modules run likewise. The pages of the manual that are named after them say what each is about.
"""
