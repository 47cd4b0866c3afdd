"""Finds where the statements of a text begin, so that one syntax error does not hide those that follow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from eqsat.language.common_mistakes import STATEMENTS

_BEGIN = re.compile(rf"^[ \t]*(?:{'|'.join(STATEMENTS)})(?![\w-])", re.MULTILINE)
_DECLARED = re.compile(r"\s*(?:monoid|operation)\s+(\w+)")


def parts_of(text: str) -> Iterator[str]:
    """Splits a text before each line that begins a statement.

    Each part is preceded by empty lines, so that its lines have the same numbers as in the whole
    text.

    >>> list(parts_of("rule r  a +\\n  b\\nfact f  positive(a)"))
    ['rule r  a +\\n  b\\n', '\\n\\nfact f  positive(a)']
    """
    begins = [0, *(found.start() for found in _BEGIN.finditer(text) if found.start()), len(text)]
    lines = 0
    for begin, end in pairwise(begins):
        yield "\n" * lines + text[begin:end]
        lines += text.count("\n", begin, end)


def declared_in(part: str) -> str:
    """Returns the name of the operation or monoid that a part declares, or "" if it declares none.

    The part need not parse: only its first two words are read.
    """
    found = _DECLARED.match(part)
    return found[1] if found else ""
