"""Chooses the rules of a run: reads, checks and compiles them."""
