"""Compares eqsat's speed with that of plain JAX, loops by hand, KeOps, scikit-learn and faiss.

    python -m benchmarks.speed [--quick] [--only GROUP …] [--every N] [--runs N]

A case is a program at one size. It runs in a process of its own, so that the memory of one case does not
disturb another. In this process, all ways to compute the case are called in turns. Ratios are the time of
another way over eqsat's: above 1, eqsat is faster. Plain JAX is compared with eqsat where everything
fits: under twice what plain JAX may need, including what XLA's fusions hide. Lean ways are compared with
eqsat in no more memory than the loop by hand takes, or in a tenth of plain JAX's.

The loop by hand is the fastest of several: the formula as it stands or in the form of a product, over several
lengths of chunks, compiled under XLA's own options or under ours.
"""
