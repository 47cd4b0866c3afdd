"""The regimes of the check: kinds of data, and how exactly the sides of a rule must agree on them."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
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
from eqsat.checking.typing import Kinds, kinds_of
from eqsat.checking.values import Style
from eqsat.language.accuracies import ACCURACIES, Accuracy
from eqsat.language.syntax import Apply, FoldOf, IotaOf, OperationOf, Reduction, Rule
from eqsat.language.traverse import walk

CHUNKS = (1, 2, 3, 0)
"""The lengths of chunks that loops are run with; 0 is all at once."""

EXAMPLES = 40
"""How many instances are drawn in the regime that draws most, unless something else is asked for."""

MOST_OTHER_FAILURES = 20
"""So many failures on integers or complex numbers are passed over for one on floats."""

LONG = (256, 300)
"""Lengths that integers of 8 bits don't count to: that of which they make 0, and another one."""

MOST_AWAITED = 12
"""So many more instances are drawn of a regime in which a dtype has not had its turn."""

SLOW = 8
"""Calls and users' operations are compiled for each shape, so there are so many times fewer of them."""


@dataclass(frozen=True, slots=True)
class Regime:
    """A kind of data.

    **Attributes:**

    - `share`: of the instances that are asked for.
    - `kinds`: the kinds of numbers that it is for.
    - `lengths`: a special length that one axis gets.
    - `rotating`: the kinds whose dtypes take turns.
    - `narrow`: whether they include floats that are half as long as singles.
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
"""Data that is not finite in places. Few identities hold of it: a failure is worth a note, and no more."""


@dataclass
class Tally:
    """What has been tried.

    **Attributes:**

    - `drawn`: by regime, how many instances.
    - `finite`: whether any of them had a finite value.
    """

    drawn: Counter[str] = field(default_factory=Counter)
    finite: bool = False

    def count(self, regime: str, instance: Instance) -> None:
        """Count an instance, whose left side makes sense."""
        self.drawn[regime] += 1
        if not self.finite:
            value = finite_part(instance)
            self.finite = value is None or value.size > 0


def is_ring_only(rule: Rule) -> bool:
    """Whether a rule is about functions only that take small integers to integers, without rounding."""
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
    """Whether a rule makes numbers of how many entries there are: then it matters how far a dtype counts."""
    nodes = [node for side in (rule.left, rule.right) for node in walk(side)]
    made = any(
        isinstance(node, IotaOf) or (isinstance(node, Apply) and node.function == "convert") for node in nodes
    )
    return made and not constant_names(rule)


def regimes_of(rule: Rule, ring: bool, maskable: bool) -> list[Regime]:
    """The regimes for a rule: those that find most mistakes first."""
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
        # Halves of chunks are summed in singles; and no sizes of halves are tame.
        wide = tame or loops(rule) or any(guard.name == "wide" for guard in rule.guards)
        # What is wrong about one function of a class shows on few of its instances.
        share = (3.0 if rule.classes else 2.25) * (1 if wide else 2)
        judged = promise[rule.accuracy]
        found += [
            Regime("hostile", Style(style), judged, share, "f", rotating="fiu", narrow=not wide),
            Regime("hostile", Style(style), judged, 0.5, "c", rotating="fiu"),
        ]
    if rule.accuracy == "amplifies":
        # Data with a condition number that is infinite, or near it.
        found = [regime for regime in found if regime.style.name not in ("zeros", "huge")]
    if counts(rule):
        found += [Regime("long", Style("whole"), Criterion.EXACT, 0.4, "iub", length) for length in LONG]
    if maskable:
        found.insert(4, Regime("extremes", Style("masked"), floats, 0.5, "f"))
    return found


class Trial:
    """A rule, in all directions and for all functions, drawn and judged.

    **Arguments:**

    - `examples`: how many instances there are in a regime whose share is 1.
    - `violated`: a condition that the rule has not got, and that no instance fulfils.
    - `seen`: kinds that are not tried, as they were with the condition.
    - `promises`: whether it is also judged by what its accuracy class promises.
    - `fits`: what is tried of what is drawn.
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
        self.sources = [
            (statement, kinds)
            for one_way in directions(rule)
            for statement in statements(one_way)
            for kinds in kinds_of(statement)
            if signature_of_kinds(kinds) not in seen
        ]
        self._drawers: dict[int, Drawer] = {}

    def drawer(self, statement: Statement) -> Drawer:
        key = id(statement)
        if key not in self._drawers:
            self._drawers[key] = Drawer(statement, self.violated)
        return self._drawers[key]

    def judge(self, instance: Instance, criterion: Criterion) -> Failure | None:
        """What is wrong with an instance."""
        return judge(instance, criterion)

    def failure(self) -> Failure | None:
        """A failure, if there is one: the first on floats if that comes soon, as it is easier to read."""
        first: Failure | None = None
        for number, failure in enumerate(self.failures()):
            if set(failure.instance.kinds.variables.values()) <= {"f"}:
                return failure
            first = first or failure
            if number == MOST_OTHER_FAILURES:
                break
        return first

    def keeps_promise(self) -> bool:
        """Whether no failure is found of what the accuracy class promises, with any of its data."""
        regimes = [regime for regime in self.regimes() if regime.criterion in PROMISES]
        return all(next(self.failures_of(regime), None) is None for regime in regimes)

    def failures(self) -> Iterator[Failure]:
        """Everything that fails, regime by regime, as it is found."""
        for regime in self.regimes():
            yield from self.failures_of(regime)

    def failures_of(self, regime: Regime) -> Iterator[Failure]:
        """Everything that fails in a regime."""
        for instance in self.instances(regime):
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

    def instances(self, regime: Regime) -> Iterator[Instance]:
        """Instances of a regime: functions and kinds take turns."""
        fitting = [
            (statement, kinds)
            for statement, kinds in self.sources
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
            # What is hostile about floats shows in results that are floats, or truth values.
            shown = [one for one in fitting if one[1].nodes[id(one[0].rule.left)] in "fcb"]
            fitting = shown or fitting
            if "c" not in regime.kinds:
                fitting = [one for one in fitting if "c" not in one[1].nodes.values()]
        if not fitting:
            return
        # Every choice of kinds gets its share, and floats most of it.
        count = max(4, round(self.examples * regime.share))
        if any(is_slow(statement.rule) for statement, _ in fitting):
            count = max(3, count // SLOW)
        awaited = _awaited(regime, fitting)
        for number in range(max(count, min(len(fitting), 2 * count)) + MOST_AWAITED):
            if number >= count and not awaited:
                break
            place = number % len(fitting)
            statement, kinds = fitting[place]
            dtypes = in_turn(kinds, number // len(fitting) + place, regime.rotating, regime.narrow)
            instance = self.drawer(statement).draw(self.rng, kinds, regime.style, regime.lengths, dtypes)
            if instance is not None:
                awaited -= set(dtypes.chosen.values())
                yield from self.fits(instance)


def _awaited(regime: Regime, fitting: Sequence[tuple[Statement, Kinds]]) -> set[str]:
    """The dtypes of which something is to be drawn in a regime."""
    found: set[str] = set()
    for _, kinds in fitting:
        for turn in range(len(TURNS["f"])):
            found |= set(in_turn(kinds, turn, regime.rotating, regime.narrow).chosen.values())
    return found


def kept_class(
    rule: Rule, least: Accuracy, examples: int = EXAMPLES, known: Accuracy | None = None
) -> Accuracy:
    """The first class, from one on, whose promise a rule keeps on hostile data.

    **Arguments:**

    - `known`: a class whose promise it is known to keep.
    """
    for accuracy in ACCURACIES[ACCURACIES.index(least) :]:
        if accuracy == known or Trial(replace(rule, accuracy=accuracy), examples).keeps_promise():
            return accuracy
    return ACCURACIES[-1]


def signature_of_kinds(kinds: Kinds) -> tuple[tuple[str, str], ...]:
    """What tells ways to choose kinds apart."""
    return tuple(sorted(kinds.variables.items()))
