"""The sub-commands of `eqsat`, one per module.

In each module, `declare` adds the sub-command's arguments to a parser, and `run` carries it out and returns
the exit status.
"""
