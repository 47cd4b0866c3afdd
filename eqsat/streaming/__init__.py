"""Functions of arrays that are not in memory: their outermost loops run in Python, chunk by chunk."""
