"""From a traced function to a plan: the pipeline of lowering, searching, emitting and certifying."""
