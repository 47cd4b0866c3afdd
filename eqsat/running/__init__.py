"""Runs unchanged scripts and optimises the functions that they compile, for `eqsat run`."""
