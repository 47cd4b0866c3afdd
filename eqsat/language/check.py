"""Refuses rules that parse but can't be sound rewrites."""

from __future__ import annotations

from eqsat.language.syntax import RuleFile


def check_file(rule_file: RuleFile) -> None:
    """Raises `RuleError` at the first rule of the file that is not well-formed."""
