"""eqsat on a GPU or a TPU, beside plain JAX and loops by hand: `python -m benchmarks.accelerators`."""
