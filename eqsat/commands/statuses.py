"""The exit statuses of the command `eqsat`."""

from __future__ import annotations

DONE, WRONG, UNUSABLE = 0, 1, 2
"""All is well; a rule is wrong, or a function does not fit; the command, or a file, makes no sense."""
