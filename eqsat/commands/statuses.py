"""The exit statuses of the command `eqsat`."""

from __future__ import annotations

DONE, WRONG, UNUSABLE = 0, 1, 2
"""The exit statuses.

`DONE`: the command succeeded. `WRONG`: a rule is wrong, or a function does not fit its budget. `UNUSABLE`:
the command line or a file is malformed.
"""
