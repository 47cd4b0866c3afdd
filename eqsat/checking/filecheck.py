"""Checks a file of rules by test: every rule, fact and monoid in it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from eqsat.checking.accuracy import DRAWS, Measured, measure
from eqsat.checking.endless import Together, endless
from eqsat.checking.facts import FactTrial
from eqsat.checking.firing import outcomes, stays, why_not
from eqsat.checking.guarding import holding
from eqsat.checking.hints import hint
from eqsat.checking.monoids import check_monoid
from eqsat.checking.necessity import LoadCheck, Need, needs_of
from eqsat.checking.operations import broken_declaration, users_operations
from eqsat.checking.oracle import PROMISES, Failure
from eqsat.checking.regimes import EXAMPLES, INFINITE, Trial, kept_class
from eqsat.checking.report import CheckReport, RuleReport, indented, listed
from eqsat.checking.showing import shown
from eqsat.checking.shrinking import shrunk
from eqsat.checking.statement import operation_called
from eqsat.errors import EqsatError
from eqsat.ir.operations import Declared, operations_in_scope
from eqsat.language.accuracies import ACCURACIES, MEANINGS
from eqsat.language.check import check_file
from eqsat.language.diagnostics import diagnostic
from eqsat.language.syntax import (
    Example,
    Fact,
    MonoidDeclaration,
    Position,
    Rule,
    RuleFile,
)
from eqsat.language.traverse import variables
from eqsat.language.vocabulary import all_files, declared_operations


class FileCheck:
    """The check of one file.

    **Arguments:**

    - `known`: other files, whose rules, operations and monoids the file may name.
    - `examples`: how many instances are drawn in a regime whose share is 1.
    - `strict`: whether needless conditions, rules that never terminate, and rules without examples are
      failures instead of warnings. Conditions that the rest of a rule implies stay warnings.
    - `brief`: whether to stop at the first failure of a statement, not to shrink it or search for advice,
      and to leave out suggestions for improvement.
    - `operations`: the operations that the files declare, bound to their functions; by default, without them.
    """

    def __init__(
        self,
        file: RuleFile,
        known: Sequence[RuleFile],
        examples: int = EXAMPLES,
        strict: bool = False,
        brief: bool = False,
        operations: Declared | None = None,
    ) -> None:
        self.file = file
        self.known = [other for other in known if other.file != file.file]
        self.examples = examples
        self.strict = strict
        self.brief = brief
        self.operations = declared_operations([*known, file]) if operations is None else operations

    def report(self, names: Sequence[str] = ()) -> CheckReport:
        """Returns the report on the rules, facts and monoids of the file.

        **Arguments:**

        - `names`: the statements to check, by plain or qualified name; all if there are none.
        """
        statements: list[Rule | Fact | MonoidDeclaration] = [
            *self.file.monoids,
            *self.file.facts,
            *self.file.rules,
        ]
        statements.sort(key=lambda statement: (statement.position.line, statement.position.column))
        found = []
        for statement in statements:
            if not names or self.name_of(statement) in names or _plain_name(statement) in names:
                began = time.perf_counter()
                report = self.checked(statement)
                found.append(replace(report, seconds=time.perf_counter() - began))
        return CheckReport(tuple(found))

    def name_of(self, statement: Rule | Fact | MonoidDeclaration) -> str:
        """Returns the name of a statement, qualified by its file's."""
        if isinstance(statement, MonoidDeclaration):
            return f"{Path(self.file.file).stem}.{statement.monoid.name}"
        return f"{statement.space}.{statement.name}"

    def checked(self, statement: Rule | Fact | MonoidDeclaration) -> RuleReport:
        """Returns the report on a statement."""
        with operations_in_scope(lambda: self.operations):
            match statement:
                case Rule() | Fact():
                    return self.statement(statement)
                case MonoidDeclaration():
                    return self.monoid(statement)

    def statement(self, statement: Rule | Fact) -> RuleReport:
        """Returns the report on a rule or a fact. If a user's operation raises, the report says so."""
        rule = statement if isinstance(statement, Rule) else statement.as_rule()
        what = "rule" if isinstance(statement, Rule) else "fact"
        report = RuleReport(self.name_of(statement), what, str(statement.position))
        unusable = self.unusable_operation(rule)
        if unusable:
            return replace(report, failures=(unusable,))
        try:
            return self.rule(statement) if isinstance(statement, Rule) else self.fact(statement)
        except Exception as error:
            users = users_operations(rule)
            if not users:
                raise
            names = listed(sorted({f"`{node.name}`" for node in users}))
            message = f"this {what} can't be tested: {names} raised {type(error).__name__}: {error}"
            advice = "an operation has to accept all arrays with the axes of its signature"
            return replace(report, failures=(self.at(users[0].position, message, advice),))

    def rule(self, rule: Rule) -> RuleReport:
        """Returns the report on a rule. Only a rule whose sides are equal is checked further."""
        report = RuleReport(self.name_of(rule), "rule", str(rule.position), rule.accuracy)
        try:
            trial = Trial(rule, self.examples)
            failure = trial.failure()
        except EqsatError as error:
            return replace(report, failures=(self.at(rule.position, f"this rule can't be tested: {error}"),))
        report = replace(report, regimes=dict(trial.tally.drawn))
        if failure is None:
            report = replace(report, choices=trial.choices, untried=len(trial.untried()))
        if failure is not None and self.brief:
            text = self.at(rule.position, f"the two sides differ {failure.criterion.value}")
            return replace(report, failures=(text,))
        if failure is not None and failure.criterion in PROMISES:
            return self.broken(rule, failure, trial, report)
        if failure is not None:
            advice = hint(rule, failure, self.load_check(), self.examples)
            message = "the two sides are not equal"
            text = (
                self.at(rule.position, message, advice) + "\n" + indented(shown(shrunk(failure, trial.judge)))
            )
            return replace(report, failures=(text,))
        if not trial.tally.drawn or not trial.tally.finite:
            message = "no instance was found on which the left side has a finite value"
            advice = "check whether all conditions can hold together"
            return replace(report, failures=(self.at(rule.position, message, advice),))
        measured = measure(rule)
        if not self.brief:
            found = measured.accuracy
            measured = replace(
                measured, accuracy=found and kept_class(rule, found, self.examples, rule.accuracy)
            )
        report = replace(report, measured=measured.accuracy)
        failures, notes = self.accuracy(rule, measured)
        if measured.negative:
            message = (
                f"the left side is never negative, but rounding makes the right side {measured.negative}"
            )
            advice = "clamp the right side, `max(..., 0)`, since the next operation may be a square root"
            failures = (*failures, self.at(rule.position, message, advice))
        if failures and self.brief:
            return replace(report, failures=failures)
        if not self.brief and next(trial.failures_of(INFINITE), None) is not None:
            note = "on data with infinities or NaN, the right side may not be finite where the left side is"
            notes = (*notes, note)
        guarded, tested = self.guarded(rule)
        growing = self.growth(rule)
        more, warnings, tried = self.examples_and_conditions(rule)
        regimes = {**report.regimes, **tried, "float32": measured.instances, "guarded": tested}
        failures = (*failures, *guarded, *more)
        if self.strict:
            failures = (*failures, *(self.at(rule.position, *one) for one in growing))
        else:
            warnings = (*warnings, *(f"{message} ({advice})" for message, advice in growing))
        return replace(report, regimes=regimes, failures=failures, warnings=warnings, notes=notes)

    def guarded(self, rule: Rule) -> tuple[tuple[str, ...], int]:
        """Returns failures of a rule on data on which its guard holds, and how many instances were tried.

        There, the rule is judged by the accuracy class that its guard promises.
        """
        if rule.data_guard is None:
            return (), 0
        promised, fits = rule.data_guard.accuracy, holding(rule.data_guard.guard)
        better = replace(rule, accuracy=promised, data_guard=None)
        trial = Trial(better, self.examples, fits=fits)
        failure = trial.failure()
        narrower = "make the guard narrower, or leave it out"
        if failure is not None and failure.criterion in PROMISES:
            message = f"where its guard holds, `{rule.name}` promises [{promised}], but breaks that promise"
            text = self.at(rule.position, message, narrower)
            return (text + "\n" + indented(shown(failure)),), trial.tally.drawn.total()
        if failure is not None:
            text = self.at(rule.position, "the two sides are not equal, though the guard holds")
            return (text + "\n" + indented(shown(failure)),), trial.tally.drawn.total()
        measured = measure(better, DRAWS // 2, fits)
        tested = trial.tally.drawn.total() + measured.instances
        if measured.accuracy is None:
            message = "no drawn data fulfils the guard"
            advice = "check whether all its tests can hold together"
            return (self.at(rule.position, message, advice),), tested
        if ACCURACIES.index(measured.accuracy) > ACCURACIES.index(promised):
            message = (
                f"where its guard holds, `{rule.name}` promises [{promised}], but it is"
                f" [{measured.accuracy}]: {measured.evidence}"
            )
            return (self.at(rule.position, message, narrower),), tested
        return (), tested

    def growth(self, rule: Rule) -> list[tuple[str, str]]:
        """Returns messages with advice about a rule that never terminates, alone or with others."""
        if self.brief:
            return []
        alone = endless(rule, self.known)
        if alone:
            message = (
                f"`{rule.name}` never ends: it matches its own results, and on its example it adds {alone}"
            )
            return [(message, ENDING)]
        grown = self.together.endless(rule)
        if not grown:
            return []
        names = listed([f"`{name}`" for name in grown])
        ends = "never ends" if len(grown) == 1 else "never end together"
        return [(f"on the example of `{rule.name}`, {names} {ends}", ENDING)]

    @cached_property
    def together(self) -> Together:
        return Together(self.file, self.known)

    def broken(self, rule: Rule, failure: Failure, trial: Trial, report: RuleReport) -> RuleReport:
        """Returns the report on a rule that is true of numbers, but breaks its class's promise for floats."""
        measured = measure(rule)
        worse = ACCURACIES[ACCURACIES.index(rule.accuracy) + 1]
        least = max(worse, measured.accuracy or worse, key=ACCURACIES.index)
        deserved = kept_class(rule, least, self.examples)
        evidence = f": {measured.evidence}" if deserved == measured.accuracy else ""
        message = f"`{rule.name}` is declared [{rule.accuracy}], but it is [{deserved}]{evidence}"
        advice = f"declare it [{deserved}]: {MEANINGS[deserved]}" if deserved else ""
        text = self.at(rule.position, message, advice)
        example = shown(shrunk(failure, trial.judge))
        return replace(report, measured=deserved, failures=(f"{text}\n{indented(example)}",))

    def fact(self, fact: Fact) -> RuleReport:
        """Returns the report on a fact."""
        report = RuleReport(self.name_of(fact), "fact", str(fact.position))
        try:
            trial = FactTrial(fact, self.examples)
            failure = trial.failure()
        except EqsatError as error:
            return replace(report, failures=(self.at(fact.position, f"this fact can't be tested: {error}"),))
        report = replace(report, regimes=dict(trial.tally.drawn))
        if failure is not None:
            text = self.at(fact.position, "the fact does not hold")
            if self.brief:
                return replace(report, failures=(text,))
            return replace(report, failures=(text + "\n" + indented(shown(shrunk(failure, trial.judge))),))
        report = replace(report, choices=trial.choices, untried=len(trial.untried()))
        if not trial.tally.drawn:
            return replace(report, failures=(self.at(fact.position, "no instance was found"),))
        failures, warnings, tried = self.examples_and_conditions(fact)
        return replace(report, regimes={**report.regimes, **tried}, failures=failures, warnings=warnings)

    def monoid(self, declared: MonoidDeclaration) -> RuleReport:
        """Returns the report on a monoid."""
        rules = [rule for file in (self.file, *self.known) for rule in file.rules]
        report = RuleReport(self.name_of(declared), "monoid", str(declared.position))
        tried, failure = check_monoid(declared.monoid, rules)
        report = replace(report, regimes={"merges": tried})
        if failure is None:
            return report
        text = self.at(declared.position, "this is not a monoid") + "\n" + indented(str(failure))
        return replace(report, failures=(text,))

    # ------------------------------------------------------------------------------------ the parts

    def function_named(self, operation: str) -> str:
        """Returns the function that the declaration of an operation names, as "module:name", or ""."""
        declared = (one for file in all_files([self.file, *self.known]) for one in file.operations)
        return next((one.function for one in declared if one.signature.name == operation), "")

    def unusable_operation(self, rule: Rule) -> str:
        """Returns what is wrong with a user's operation in a rule, or "".

        The operation may have no function to call, or not do what its declaration says.
        """
        for node in users_operations(rule):
            spec = operation_called(node.name)
            if spec.function is None and (named := self.function_named(spec.name)):
                message = f"the operation `{spec.name}` calls {named!r}, which was not imported"
                advice = "pass `--allow-imports` to import its module, which runs that module's code"
                return self.at(node.position, message, advice)
            if spec.function is None:
                message = f"the operation `{spec.name}` has no function to call"
                advice = (
                    f'name one in its declaration, `operation {spec.signature} from "module:name"`, or'
                    " register one with `eqsat.operation` before the check"
                )
                return self.at(node.position, message, advice)
            broken = broken_declaration(spec)
            if broken is not None:
                return self.at(node.position, *broken)
        return ""

    def accuracy(self, rule: Rule, measured: Measured) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns failures and notes about the accuracy class of a rule."""
        deserved = measured.accuracy
        if deserved is None or deserved == rule.accuracy:
            return (), ()
        if ACCURACIES.index(deserved) > ACCURACIES.index(rule.accuracy):
            message = (
                f"`{rule.name}` is declared [{rule.accuracy}], but it is [{deserved}]: {measured.evidence}"
            )
            return (self.at(rule.position, message, f"declare it [{deserved}]: {MEANINGS[deserved]}"),), ()
        return (), (f"declared [{rule.accuracy}], measured [{deserved}]",)

    def examples_and_conditions(
        self, statement: Rule | Fact
    ) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, int]]:
        """Returns failures and warnings about examples and conditions, and how many of each were tried."""
        failures = [text for example in statement.examples if (text := self.example(statement, example))]
        if self.brief and not self.strict:
            return tuple(failures), (), {"examples": len(statement.examples)}
        needs = needs_of(statement, self.load_check(), max(8, self.examples // 2))
        graver: list[tuple[Position, str, str]] = []
        lighter: list[tuple[Position, str, str]] = []
        for implied in (False, True):
            idle = [need for need in needs if not need.reason and need.implied == implied]
            if idle:
                (lighter if implied else graver).append(_complaint(idle, implied, needs))
        matched = statement.left if isinstance(statement, Rule) else statement.term
        if (
            isinstance(statement, Rule)
            and any(variables(matched))
            and not any(e.fires for e in statement.examples)
        ):
            advice = (
                "add one with the axes of its variables in a case where the rule helps: `example  a: i k`"
            )
            graver.append((statement.position, "the rule has no example on which it fires", advice))
        tried = {"examples": len(statement.examples), "conditions": len(needs)}
        if self.strict:
            failures += [self.at(*complaint) for complaint in graver]
        warned = lighter if self.strict else [*graver, *lighter]
        warnings = tuple(f"{message} ({advice})" for _, message, advice in warned)
        return tuple(failures), warnings, tried

    def example(self, statement: Rule | Fact, example: Example) -> str:
        """Returns what is wrong with an example, or ""."""
        try:
            if not example.fires:
                if stays(statement, example):
                    return ""
                message = "the rule fires on this `reject`"
                return self.at(example.position, message, "add a condition or a pattern that excludes it")
            found = list(outcomes(statement, example))
        except EqsatError as error:
            return self.at(example.position, f"the engine can't run this example: {error}")
        if any(outcome.wrong() for outcome in found):
            return self.at(example.position, "the engine's result for this example is not equal to it")
        if any(outcome.fired for outcome in found):
            return ""
        message = "the rule does not fire on this `example`"
        advice = why_not(statement, example) or "compare its axes with the patterns and the conditions"
        return self.at(example.position, message, advice)

    def load_check(self) -> LoadCheck:
        """Returns the load check of this file, applied to a single statement in place of all its rules."""

        def check(statement: Rule | Fact) -> None:
            alone = replace(
                self.file,
                rules=(statement,) if isinstance(statement, Rule) else (),
                facts=(statement,) if isinstance(statement, Fact) else (),
            )
            check_file(alone, self.known)

        return check

    def at(self, position: Position, message: str, advice: str = "") -> str:
        """Returns a message in the format of the load check: position, line, caret, advice."""
        return diagnostic(self.file.text, position, message, advice)


ENDING = (
    "write a right side that no left side matches, or add a condition that the results do not fulfil; until"
    " then, the engine stops the rule at a limit, and other rules may not get to run"
)
"""The advice for a rule that never terminates."""


def _complaint(idle: Sequence[Need], implied: bool, needs: Sequence[Need]) -> tuple[Position, str, str]:
    """Returns the position, the message and the advice of a complaint about needless conditions."""
    names = listed([str(need) for need in idle])
    condition = "the condition" if len(idle) == 1 else "the conditions"
    position = idle[0].condition.position
    gone = {id(need.condition) for need in idle}
    kept = [str(need) for need in needs if gone.intersection(map(id, need.instead))]
    stays = f"; then {listed(kept)} {'has' if len(kept) == 1 else 'have'} to stay" if kept else ""
    it = "it" if len(idle) == 1 else "them"
    if implied:
        hold = "holds" if len(idle) == 1 else "hold"
        return (
            position,
            f"{condition} {names} {hold} anyway",
            f"the rest of the rule implies {it}: leave {it} out{stays}",
        )
    advice = f"leave {it} out, or add a `reject` on which the rule fires without {it}{stays}"
    return position, f"nothing needs {condition} {names}", advice


def _plain_name(statement: Rule | Fact | MonoidDeclaration) -> str:
    return statement.monoid.name if isinstance(statement, MonoidDeclaration) else statement.name
