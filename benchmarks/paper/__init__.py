"""The figures and tables of "Memory Safe Computations with XLA Compiler" (NeurIPS 2022), one command each."""
