"""The sub-commands of `eqsat`: a module each.

Of each, `declare` adds its arguments to a parser, and `run` does it and returns the exit status.
"""
