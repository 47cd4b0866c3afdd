"""The results of checking rules: a table that is fit for CI, and the details of what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from eqsat.language.accuracies import Accuracy

OK, WARNED, FAILED = "ok", "warning", "FAILED"


@dataclass(frozen=True)
class RuleReport:
    """The results of checking one rule, fact or monoid.

    **Attributes:**

    - `name`: the name after that of its file: `contraction.pull-factor`.
    - `kind`: "rule", "fact" or "monoid".
    - `where`: its place in its file.
    - `declared`: the accuracy class that a rule declares.
    - `measured`: the accuracy class that a rule deserves, if that could be measured.
    - `regimes`: by regime, how many instances were tried.
    - `choices`, `untried`: how many choices there are of functions for classes and of kinds of numbers for
      terms, and of how many no instance was drawn.
    - `failures`: what is wrong. Each text begins with a place in the file.
    - `warnings`: what might be better.
    - `notes`: what is worth knowing.
    """

    name: str
    kind: str
    where: str
    declared: Accuracy | None = None
    measured: Accuracy | None = None
    regimes: dict[str, int] = field(default_factory=dict)
    choices: int = 0
    untried: int = 0
    failures: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def status(self) -> str:
        """`FAILED`, `WARNED` or `OK`."""
        return FAILED if self.failures else WARNED if self.warnings else OK

    @property
    def tried(self) -> str:
        """How many instances of which regimes were tried, and how many choices were not, as a text."""
        parts = [f"{count} {regime}" for regime, count in self.regimes.items() if count]
        if self.untried:
            parts.append(f"not tried: {self.untried} of {self.choices} choices of functions and kinds")
        return ", ".join(parts)


@dataclass(frozen=True)
class CheckReport:
    """The results of checking all rules, facts and monoids, in order."""

    rules: tuple[RuleReport, ...]

    @property
    def failed(self) -> tuple[RuleReport, ...]:
        return tuple(rule for rule in self.rules if rule.failures)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong. Warnings don't count."""
        return not self.failed

    def rule(self, name: str) -> RuleReport:
        """Returns the report on a rule, by its name with or without that of its file.

        **Raises:** `KeyError` if there is no such rule.
        """
        for rule in self.rules:
            if name in (rule.name, rule.name.partition(".")[2]):
                return rule
        raise KeyError(name)

    def table(self) -> str:
        """Returns a table with a line for each rule: its accuracy classes, what was tried, the verdict."""
        rows = [("rule", "declared", "measured", "tried", "verdict")]
        rows += [
            (
                rule.name if rule.kind == "rule" else f"{rule.kind} {rule.name}",
                rule.declared or "",
                rule.measured or "",
                rule.tried,
                rule.status,
            )
            for rule in self.rules
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
        ]
        return "\n".join(line.rstrip() for line in lines)

    def details(self) -> str:
        """Returns all failures and warnings, rule by rule; an empty text if there are none."""
        parts = []
        for rule in self.rules:
            parts += list(rule.failures)
            parts += [f"{rule.where}: warning: {text}" for text in rule.warnings]
        return "\n\n".join(parts)

    def notes(self) -> str:
        """Returns all notes, one in each line."""
        return "\n".join(f"{rule.where}: {note}" for rule in self.rules for note in rule.notes)

    def summary(self) -> str:
        """Returns one line: how many rules were checked, how many failed, and how long it took."""
        count = len(self.rules)
        bad, warned = len(self.failed), sum(1 for rule in self.rules if rule.status == WARNED)
        seconds = sum(rule.seconds for rule in self.rules)
        parts = [f"{count} checked", f"{bad} failed" if bad else "none failed"]
        if warned:
            parts.append(f"{warned} with warnings")
        return f"{', '.join(parts)}, in {seconds:.1f} s"

    def __str__(self) -> str:
        return "\n\n".join(part for part in (self.table(), self.details(), self.summary()) if part)


def indented(text: str, by: str = "  ") -> str:
    """Returns a text with all lines indented, except empty ones."""
    return "\n".join(by + line if line else line for line in text.split("\n"))


def listed(items: Sequence[str], last: str = "and") -> str:
    """Joins items as a sentence lists them: "a, b and c"."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}" if items else ""
