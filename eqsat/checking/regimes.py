"""The regimes of the check: kinds of data, and how exactly the sides of a rule must agree on them."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from eqsat.checking.accuracy import Fits, as_drawn
from eqsat.checking.conditions import Condition
from eqsat.checking.drawing import Drawer
from eqsat.checking.dtypes import TURNS, in_turn
from eqsat.checking.instance import Instance
from eqsat.checking.kinds import is_exact
from eqsat.checking.memberships import constant_names, variable_names
from eqsat.checking.operand_constraints import OperandConstraints
from eqsat.checking.oracle import PROMISES, Criterion, Failure, finite_part, judge
from eqsat.checking.statement import Statement, directions, is_slow, loops, statements
from eqsat.checking.typing import MOST_ASSIGNMENTS, Kinds, all_kinds_of
from eqsat.checking.values import Style
from eqsat.language.accuracies import ACCURACIES, Accuracy
from eqsat.language.syntax import Apply, FoldOf, IotaOf, OperationOf, Reduction, Rule
from eqsat.language.traverse import walk

CHUNKS = (1, 2, 3, 0)
"""The lengths of chunks that loops run with; 0 is the whole axis in one chunk."""

EXAMPLES = 40
"""How many instances a regime with a share of 1 draws by default."""

MOST_OTHER_FAILURES = 20
"""How many failures on other kinds are passed over in search of one on floats."""

LONG = (256, 300)
"""Lengths that 8-bit integers can't count to: 256, which wraps around to 0, and another one."""

MOST_AWAITED = 12
"""How many more instances a regime may draw until each dtype has had its turn."""

SLOW = 8
"""By which factor fewer instances are drawn of calls and users' operations: JAX compiles each shape."""


MOST_COMPLETED = 64
"""How many choices that no regime has drawn are tried in the end, once each."""

Choice = tuple[Statement, Kinds]
"""Functions for a rule, and kinds for its terms."""


@dataclass(frozen=True, slots=True)
class Regime:
    """A kind of data, and the criterion by which the sides are compared on it.

    **Attributes:**

    - `share`: how many instances are drawn, as a multiple of the number that is asked for.
    - `kinds`: the kinds of numbers that it is for.
    - `lengths`: a special length that one axis gets.
    - `rotating`: the kinds whose dtypes take turns.
    - `narrow`: whether these dtypes include float16 and bfloat16.
    """

    name: str
    style: Style
    criterion: Criterion
    share: float
    kinds: str
    lengths: int | None = None
    rotating: str = ""
    narrow: bool = True


INFINITE = Regime("infinite", Style("infinite"), Criterion.NO_WORSE, 0.5, "f")
"""Data with infinities and NaN. Few identities hold on it, so a failure is worth only a note."""


@dataclass
class Tally:
    """Counts what has been tried.

    **Attributes:**

    - `drawn`: by regime, how many instances have been judged, once for each length of chunks.
    - `finite`: whether any of them had a left side with a finite value, or an ill-formed right side.
    """

    drawn: Counter[str] = field(default_factory=Counter)
    finite: bool = False

    def count(self, regime: str, instance: Instance) -> None:
        """Counts an instance whose left side is well-formed."""
        self.drawn[regime] += 1
        if not self.finite:
            value = finite_part(instance)
            self.finite = value is None or value.size > 0


def is_ring_only(rule: Rule) -> bool:
    """Returns whether all functions of a rule take small integers to integers without rounding."""
    return all(_is_exact(node, rule) for side in (rule.left, rule.right) for node in walk(side))


def _is_exact(node: object, rule: Rule) -> bool:
    match node:
        case Apply(function=name, exponent=exponent):
            return is_exact("elementwise", name, exponent)
        case Reduction(kind=kind):
            return kind.startswith(("arg", "top_k")) or is_exact("reduction", kind)
        case FoldOf(monoid=name):
            return name not in dict(rule.monoids)
        case OperationOf(name=name):
            return is_exact("operation", name)
        case _:
            return True


def counts(rule: Rule) -> bool:
    """Returns whether a rule may turn numbers of entries into values, so that the range of dtypes matters.

    Such a rule has indices (`iota`) or conversions, and no constants.
    """
    nodes = [node for side in (rule.left, rule.right) for node in walk(side)]
    made = any(
        isinstance(node, IotaOf) or (isinstance(node, Apply) and node.function == "convert") for node in nodes
    )
    return made and not constant_names(rule)


def regimes_of(rule: Rule, ring: bool, maskable: bool) -> list[Regime]:
    """Returns the regimes for a rule; those that find most mistakes come first.

    **Arguments:**

    - `ring`: whether the rule takes small integers to integers without rounding.
    - `maskable`: whether some variable may be minus infinity in places.
    """
    exact = rule.accuracy == "exact"
    floats = Criterion.CLOSE
    found = [
        Regime("exact", Style("whole"), Criterion.EXACT, 0.5, "fiucb" if ring else "iub", rotating="iu"),
        Regime("exact", Style("full"), Criterion.EXACT, 0.5, "iu", rotating="iu"),
        Regime("float64", Style("normal"), floats, 0.5, "fc"),
        Regime("float64", Style("positive"), floats, 0.5, "fc"),
        Regime("extremes", Style("zeros"), floats if exact else Criterion.FINITE, 0.25, "fc"),
        Regime("extremes", Style("huge"), floats if exact else Criterion.NO_WORSE, 0.25, "f"),
        Regime("extremes", Style("normal"), floats, 0.25, "f", 1),
        Regime("extremes", Style("normal"), floats, 0.25, "f", 0),
        Regime("extremes", Style("whole"), Criterion.EXACT, 0.2, "iub", 0),
    ]
    promise = {"exact": Criterion.BITS, "reassociates": Criterion.ROUNDED, "rescales": Criterion.IN_RANGE}
    if rule.accuracy in promise:
        tame = rule.accuracy == "rescales"
        style = "tame" if tame else "hostile"
        # Loops sum the chunks of halves in single precision, and halves have too small a range to be tame.
        wide = tame or loops(rule) or any(guard.name == "wide" for guard in rule.guards)
        # A mistake about one function of a class shows on few of the instances.
        share = (3.0 if rule.classes else 2.25) * (1 if wide else 2)
        judged = promise[rule.accuracy]
        found += [
            Regime("hostile", Style(style), judged, share, "f", rotating="fiu", narrow=not wide),
            Regime("hostile", Style(style), judged, 0.5, "c", rotating="fiu"),
        ]
    if rule.accuracy == "amplifies":
        # Such data may have a condition number that is infinite, or close to it.
        found = [regime for regime in found if regime.style.name not in ("zeros", "huge")]
    if counts(rule):
        found += [Regime("long", Style("whole"), Criterion.EXACT, 0.4, "iub", length) for length in LONG]
    if maskable:
        found.insert(4, Regime("extremes", Style("masked"), floats, 0.5, "f"))
    return found


class Trial:
    """Draws and judges instances of a rule, in all its directions and for all its functions.

    **Attributes:**

    - `sources`: the choices of functions and kinds that take turns in the regimes.

    **Arguments:**

    - `examples`: how many instances are drawn in a regime whose share is 1.
    - `violated`: a condition that was removed from the rule, and that all instances violate.
    - `seen`: kinds that are left out, because they were tried when the rule had the condition.
    - `promises`: whether the rule is also judged by what its accuracy class promises.
    - `fits`: returns the instances that are tried in place of one that was drawn.
    """

    def __init__(
        self,
        rule: Rule,
        examples: int = EXAMPLES,
        violated: Condition | None = None,
        seen: frozenset[tuple[tuple[str, str], ...]] = frozenset(),
        promises: bool = True,
        fits: Fits = as_drawn,
    ) -> None:
        self.fits = fits
        self.rule = rule
        self.promises = promises
        self.examples = examples
        self.violated = violated
        self.seen = seen
        self.tally = Tally()
        self.rng = random.Random(zlib.crc32(f"{rule.space}.{rule.name}".encode()))
        self.sources: list[Choice] = []
        self._others: list[Choice] = []
        self._tried: set[int] = set()
        for statement in (statement for one_way in directions(rule) for statement in statements(one_way)):
            for place, kinds in enumerate(all_kinds_of(statement)):
                if signature_of_kinds(kinds) not in seen:
                    (self.sources if place < MOST_ASSIGNMENTS else self._others).append((statement, kinds))
        self._drawers: dict[int, Drawer] = {}

    def drawer(self, statement: Statement) -> Drawer:
        key = id(statement)
        if key not in self._drawers:
            self._drawers[key] = Drawer(statement, self.violated)
        return self._drawers[key]

    def judge(self, instance: Instance, criterion: Criterion) -> Failure | None:
        """Judges an instance; returns None if nothing is wrong with it."""
        return judge(instance, criterion)

    def failure(self) -> Failure | None:
        """Returns a failure, if there is one.

        A failure on floats is easier to read than others, so it is preferred if it comes soon enough.
        """
        first: Failure | None = None
        for number, failure in enumerate(self.failures()):
            if set(failure.instance.kinds.variables.values()) <= {"f"}:
                return failure
            first = first or failure
            if number == MOST_OTHER_FAILURES:
                break
        return first

    def keeps_promise(self) -> bool:
        """Returns whether the rule keeps the promise of its accuracy class on all data drawn to test that."""
        regimes = [regime for regime in self.regimes() if regime.criterion in PROMISES]
        return all(next(self.failures_of(regime), None) is None for regime in regimes)

    def failures(self) -> Iterator[Failure]:
        """Yields all failures, regime by regime, as they are found."""
        for regime in self.regimes():
            yield from self.failures_of(regime)
        if self.violated is None:
            yield from self.failures_of_untried()

    def failures_of_untried(self) -> Iterator[Failure]:
        """Yields failures of choices that no regime has drawn, once each, in the first regime that can."""
        regimes = self.regimes()
        for choice in self.untried()[:MOST_COMPLETED]:
            for regime in regimes:
                if self.fitting(regime, [choice]):
                    yield from self.judged(regime, self.drawn(regime, choice, 0))
                    if id(choice[1]) in self._tried:
                        break

    def untried(self) -> list[Choice]:
        """Returns the choices of functions and kinds of which no instance has been drawn so far."""
        return [one for one in (*self.sources, *self._others) if id(one[1]) not in self._tried]

    @property
    def choices(self) -> int:
        """The number of choices of functions and kinds."""
        return len(self.sources) + len(self._others)

    def failures_of(self, regime: Regime) -> Iterator[Failure]:
        """Yields all failures in a regime. Loops run with chunks of each length of `CHUNKS`."""
        yield from self.judged(regime, self.instances(regime))

    def judged(self, regime: Regime, instances: Iterable[Instance]) -> Iterator[Failure]:
        """Yields the failures among instances of a regime."""
        for instance in instances:
            for chunk in CHUNKS if loops(instance.statement.rule) else (0,):
                failure = self.judge(replace(instance, chunk=chunk), regime.criterion)
                self.tally.count(regime.name, instance)
                if failure is not None:
                    yield failure

    def regimes(self) -> list[Regime]:
        statement_rules = [statement.rule for statement, _ in self.sources]
        ring = bool(statement_rules) and all(is_ring_only(rule) for rule in statement_rules[:1])
        maskable = any(self.maskable(statement) for statement, _ in self.sources[:4])
        found = regimes_of(self.rule, ring, maskable)
        return [regime for regime in found if self.promises or regime.criterion not in PROMISES]

    def maskable(self, statement: Statement) -> bool:
        placement = self.drawer(statement).placements.draw(random.Random(0), 1)
        if placement is None:
            return False
        constraints = OperandConstraints(statement, placement).by_name
        return any(
            name in constraints and constraints[name].maskable for name in variable_names(statement.rule)
        )

    def fitting(self, regime: Regime, choices: Sequence[Choice]) -> list[Choice]:
        """Returns the choices of functions and kinds that a regime is for."""
        fitting = [
            (statement, kinds)
            for statement, kinds in choices
            if set(kinds.variables.values()) & set(regime.kinds)
            or (not kinds.variables and set(kinds.nodes.values()) & set(regime.kinds))
        ]
        if regime.criterion is Criterion.EXACT:
            fitting = [
                (statement, kinds)
                for statement, kinds in fitting
                if is_ring_only(statement.rule) or not set(kinds.variables.values()) & set("fc")
            ]
        if regime.lengths in LONG:
            fitting = [one for one in fitting if set(one[1].nodes.values()) & set("iu")] or fitting
        if regime.criterion in PROMISES:
            # Hostile floats show in results that are floats, complex numbers or truth values.
            shown = [one for one in fitting if one[1].nodes[id(one[0].rule.left)] in "fcb"]
            fitting = shown or fitting
            if "c" not in regime.kinds:
                fitting = [one for one in fitting if "c" not in one[1].nodes.values()]
        return fitting

    def drawn(
        self, regime: Regime, choice: Choice, turn: int, awaited: set[str] | None = None
    ) -> Iterator[Instance]:
        """Yields the instances that are tried for one that is drawn, if one can be.

        **Arguments:**

        - `turn`: of the dtypes.
        - `awaited`: the dtypes that an instance is still to be drawn of.
        """
        statement, kinds = choice
        dtypes = in_turn(kinds, turn, regime.rotating, regime.narrow)
        instance = self.drawer(statement).draw(self.rng, kinds, regime.style, regime.lengths, dtypes)
        if instance is not None:
            if awaited is not None:
                awaited -= set(dtypes.chosen.values())
            for one in self.fits(instance):
                self._tried.add(id(kinds))
                yield one

    def instances(self, regime: Regime) -> Iterator[Instance]:
        """Yields instances of a regime. The functions and kinds of the rule take turns."""
        fitting = self.fitting(regime, self.sources)
        if not fitting:
            return
        count = max(4, round(self.examples * regime.share))
        if any(is_slow(statement.rule) for statement, _ in fitting):
            count = max(3, count // SLOW)
        awaited = _awaited(regime, fitting)
        for number in range(max(count, min(len(fitting), 2 * count)) + MOST_AWAITED):
            if number >= count and not awaited:
                break
            place = number % len(fitting)
            yield from self.drawn(regime, fitting[place], number // len(fitting) + place, awaited)


def _awaited(regime: Regime, fitting: Sequence[Choice]) -> set[str]:
    """Returns the dtypes of which a regime has to draw at least one instance."""
    found: set[str] = set()
    for _, kinds in fitting:
        for turn in range(len(TURNS["f"])):
            found |= set(in_turn(kinds, turn, regime.rotating, regime.narrow).chosen.values())
    return found


def kept_class(
    rule: Rule, least: Accuracy, examples: int = EXAMPLES, known: Accuracy | None = None
) -> Accuracy:
    """Returns the strictest class, from `least` on, whose promise a rule keeps on hostile data.

    **Arguments:**

    - `known`: a class whose promise the rule is known to keep.
    """
    for accuracy in ACCURACIES[ACCURACIES.index(least) :]:
        if accuracy == known or Trial(replace(rule, accuracy=accuracy), examples).keeps_promise():
            return accuracy
    return ACCURACIES[-1]


def signature_of_kinds(kinds: Kinds) -> tuple[tuple[str, str], ...]:
    """Returns the kinds of the variables as a hashable value, which tells choices of kinds apart."""
    return tuple(sorted(kinds.variables.items()))
