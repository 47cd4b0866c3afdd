"""Where the statements of a text begin, so that one that does not parse leaves the others to be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from eqsat.language.common_mistakes import STATEMENTS

_BEGIN = re.compile(rf"^[ \t]*(?:{'|'.join(STATEMENTS)})(?![\w-])", re.MULTILINE)
_DECLARED = re.compile(r"\s*(?:monoid|operation)\s+(\w+)")


def parts_of(text: str) -> Iterator[str]:
    """The text in parts, each beginning with a line that begins with a statement, and padded by empty lines.

    So whatever stands in a part is in the line that it is in in the text.

    >>> list(parts_of("rule r  a +\\n  b\\nfact f  positive(a)"))
    ['rule r  a +\\n  b\\n', '\\n\\nfact f  positive(a)']
    """
    begins = [0, *(found.start() for found in _BEGIN.finditer(text) if found.start()), len(text)]
    lines = 0
    for begin, end in pairwise(begins):
        yield "\n" * lines + text[begin:end]
        lines += text.count("\n", begin, end)


def declared_in(part: str) -> str:
    """What a part declares, an operation or a monoid, as far as it can be read; or nothing."""
    found = _DECLARED.match(part)
    return found[1] if found else ""
