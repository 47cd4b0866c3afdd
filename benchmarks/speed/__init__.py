"""eqsat beside what people use today: plain JAX, loops by hand, KeOps, scikit-learn, faiss.

    python -m benchmarks.speed [--quick] [--only GROUP …] [--every N] [--runs N]

A case is a program at one size. It has a process of its own, so that the memory of one does not disturb
another, and in it all ways to compute it are called in turns. Ratios are the time of another way over
eqsat's: above 1, eqsat is faster. Plain JAX is compared with eqsat where everything fits, under twice what
plain JAX may need as it is run, XLA's fusions and what these hide included; what is lean already, with eqsat
in no more memory than the loop by hand takes, or in a tenth of plain JAX's.

What is written by hand is the fastest of several loops: the formula as it stands and in the form of a
product, over several lengths of chunks, compiled under XLA's own options and under ours.
"""
