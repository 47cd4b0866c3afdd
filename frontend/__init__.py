"""From a JAX function to a `Program`: tracing, axis coalescing, one handler per primitive family."""
