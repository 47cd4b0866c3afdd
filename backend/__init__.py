"""From a plan to a compiled, certified function: JAX source text, compilation, the certificate."""
