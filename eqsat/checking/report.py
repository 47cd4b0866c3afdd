"""What checking rules found out: a table fit for CI, and the details of what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from eqsat.language.accuracies import Accuracy

OK, WARNED, FAILED = "ok", "warning", "FAILED"


@dataclass(frozen=True)
class RuleReport:
    """What was found out about one rule, fact or monoid.

    **Attributes:**

    - `name`: with its file's: `contraction.pull-factor`.
    - `kind`: "rule", "fact" or "monoid".
    - `declared`: the accuracy class that a rule says it has; `measured`: the one that it deserves, if
      that could be measured.
    - `regimes`: by regime, how many instances were tried.
    - `failures`: what is wrong, each as a text that begins with where.
    - `warnings`, `notes`: what might be better, and what is worth knowing.
    """

    name: str
    kind: str
    where: str
    declared: Accuracy | None = None
    measured: Accuracy | None = None
    regimes: dict[str, int] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def status(self) -> str:
        return FAILED if self.failures else WARNED if self.warnings else OK

    @property
    def tried(self) -> str:
        """What was tried, in a few words."""
        return ", ".join(f"{count} {regime}" for regime, count in self.regimes.items() if count)


@dataclass(frozen=True)
class CheckReport:
    """What was found out about all rules, in order."""

    rules: tuple[RuleReport, ...]

    @property
    def failed(self) -> tuple[RuleReport, ...]:
        return tuple(rule for rule in self.rules if rule.failures)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; warnings don't count."""
        return not self.failed

    def rule(self, name: str) -> RuleReport:
        """The report on a rule, by its name with or without its file's."""
        for rule in self.rules:
            if name in (rule.name, rule.name.partition(".")[2]):
                return rule
        raise KeyError(name)

    def table(self) -> str:
        """A line for each rule: its classes, what was tried, the verdict."""
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
        """What is wrong and what might be better, rule by rule; nothing if all is well."""
        parts = []
        for rule in self.rules:
            parts += list(rule.failures)
            parts += [f"{rule.where}: warning: {text}" for text in rule.warnings]
        return "\n\n".join(parts)

    def notes(self) -> str:
        """What is worth knowing, a line for each."""
        return "\n".join(f"{rule.where}: {note}" for rule in self.rules for note in rule.notes)

    def summary(self) -> str:
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
    """A text with all its lines indented."""
    return "\n".join(by + line if line else line for line in text.split("\n"))


def listed(items: Sequence[str], last: str = "and") -> str:
    """The items as a sentence lists them."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}" if items else ""
