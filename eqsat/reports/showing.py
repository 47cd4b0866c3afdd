"""Shows a report in a notebook or a browser, or saves it to a file of the kind that its extension names."""

from __future__ import annotations

import html
import io
import sys
import tempfile
import webbrowser
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from eqsat.errors import EqsatError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = ("png", "svg", "pdf")

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 1060px; margin: 2em auto }
h1 { font-size: 1.4em } h2 { font-size: 1.1em; margin-top: 2em }
pre { font: 12.5px/1.4 ui-monospace, monospace; background: #f6f6f6; padding: 1em; overflow-x: auto }
svg { width: 100%; height: auto }
"""


class Report(ABC):
    """A report that can be printed, shown and saved."""

    @property
    @abstractmethod
    def heading(self) -> str:
        """A title for the report, in one line."""

    @abstractmethod
    def figure(self) -> Figure:
        """The report's picture, as a matplotlib figure.

        **Raises:** `EqsatError` without matplotlib.
        """

    def sections(self) -> Mapping[str, str]:
        """By heading, texts for the HTML page besides the report itself."""
        return {}

    def texts(self) -> Mapping[str, Callable[[], str]]:
        """By file name extension, a function that returns the text of a file."""
        return {"txt": lambda: f"{self}\n", "html": self.page}

    def save(self, path: str | PathLike[str]) -> None:
        """Save the report by extension: .png, .svg or .pdf its picture, .html a page with all, .txt its text.

        **Raises:** `EqsatError` for any other kind of file, and for pictures without matplotlib.
        """
        file = Path(path)
        kind = file.suffix.removeprefix(".").lower()
        texts = self.texts()
        if kind in PICTURES:
            self.figure().savefig(file, format=kind)
        elif kind in texts:
            file.write_text(texts[kind](), encoding="utf-8")
        else:
            kinds = ", ".join(f".{known}" for known in (*PICTURES, *texts))
            raise EqsatError(f"{file.name!r}: a {type(self).__name__} can be saved as {kinds}")

    def show(self) -> None:
        """Show the report under the cell of a notebook, or else as a page in the browser."""
        if _in_notebook():
            from IPython.display import display

            display(self)
            return
        with tempfile.NamedTemporaryFile("w", suffix=".html", delete=False, encoding="utf-8") as file:
            file.write(self.page())
        print(f"{self.heading}: {file.name}")
        webbrowser.open(Path(file.name).as_uri())

    def page(self) -> str:
        """The report as one self-contained HTML page, which needs no network."""
        parts = [f"<h1>{html.escape(self.heading)}</h1>", self.svg(), f"<pre>{html.escape(str(self))}</pre>"]
        for heading, text in self.sections().items():
            parts += [f"<h2>{html.escape(heading)}</h2>", f"<pre>{html.escape(text)}</pre>"]
        title = html.escape(self.heading)
        head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
        body = "\n".join(parts)
        return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'

    def svg(self) -> str:
        """The picture as an element of an HTML page."""
        buffer = io.StringIO()
        self.figure().savefig(buffer, format="svg", metadata={"Date": None})
        text = buffer.getvalue()
        return text[text.index("<svg") :]

    def _repr_html_(self) -> str:
        """The HTML that notebooks show."""
        try:
            picture = self.svg()
        except EqsatError:
            picture = ""  # without matplotlib, show only the text
        return f"{picture}<pre>{html.escape(str(self))}</pre>"


def _in_notebook() -> bool:
    """Whether this process runs a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and "IPKernelApp" in shell.config
