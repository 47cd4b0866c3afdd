"""What the manual takes from elsewhere in the repository: the rules, the page on their language, figures.

mkdocs calls these functions while it builds; nothing else does.
"""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
FROM_ELSEWHERE = (
    "rules/README.md",
    "rules/*.rules",
    "eqsat/language/grammar.lark",
    "benchmarks/results/paper-*.png",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files that are not in docs/, under the paths that they have in the repository."""
    for pattern in FROM_ELSEWHERE:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to the rules and figures, which lie beside docs/ in the repository and in it in the manual."""
    if "/" in page.file.src_uri:
        return markdown
    return markdown.replace("](../rules/", "](rules/").replace("](../benchmarks/", "](benchmarks/")
