"""Large carries of loops, kept as what they are computed from.

    k = k0;  every iteration:  k = p ? g(x') : k

A solver keeps the residuals of a linearisation from iteration to iteration until a step is accepted. If x' is
smaller than g(x'), the loop keeps x' in place of k, and whether there is any yet:

    s = False, x = 0;  every iteration:  k is (s ? g(x) : k0);  x = p ? x' : x;  s = s or p

The same is computed for all inputs, but g again wherever k is read, in chunks if need be. Carries that change
together share what they are computed from, so that equal ones are one value.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from eqsat.ir.axis import Layout
from eqsat.ir.control import Body, Scan, Switch, While, steady
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.dtypes import is_extended, numpy_dtype
from eqsat.ir.ops import Call, Const, Leaf, Map, Opaque
from eqsat.ir.program import Output, Program
from eqsat.ir.substitution import substituted, with_inputs
from eqsat.ir.term import Term, Terms
from eqsat.planning.branch_values import branch_values, second_is_chosen
from eqsat.planning.rematerialised_values import Operand, Rematerialisation, Rematerialiser
from eqsat.planning.saved_carries import result_bytes

SMALLER = 2
"""What is carried instead has to be so many times smaller."""


@dataclass
class _Group:
    """Carries that change together.

    **Attributes:**

    - `condition`: in which iterations they do; None if in all.
    - `values`: by place of a carry among the operands, how what it becomes is computed from less.
    - `started`: the input of the new body that says whether they have changed yet.
    - `inputs`: the inputs that stand for what they are computed from and the loop has to keep.
    """

    condition: Term | None
    values: dict[int, Rematerialisation] = field(default_factory=dict)
    started: Term | None = None
    inputs: dict[Term, Term] = field(default_factory=dict)

    def given(self) -> list[Term]:
        """What the values are computed from."""
        return list(dict.fromkeys(at for one in self.values.values() for at, _ in one.operands()))

    def leaves(self) -> list[Term]:
        """The inputs in place of the carries."""
        assert self.started is not None
        return [self.started, *self.inputs.values()]


class DerivedCarries:
    """Makes variants of loops, on demand.

    **Arguments:**

    - `threshold`: the size in bytes above which a carry is large.
    - `numbered`: returns a call that was made of another one with a number of its own.
    - `next_leaf`: returns the number of a new input of a body.
    - `rematerialiser`: finds what values are computed from in a body.
    """

    def __init__(
        self,
        terms: Terms,
        threshold: float,
        numbered: Callable[[Call, Call], Call],
        next_leaf: Callable[[], int],
        rematerialiser: Callable[[Program], Rematerialiser],
    ) -> None:
        self.terms = terms
        self.threshold = threshold
        self.numbered = numbered
        self.next_leaf = next_leaf
        self.rematerialiser = rematerialiser
        self._made: dict[tuple[Call, tuple[int, ...]], list[Term] | None] = {}

    def form_of(self, term: Term) -> Term | None:
        """A loop's result, from those of a loop that carries less; None if there is no such loop."""
        assert isinstance(term.op, Opaque)
        call, key = term.op.call, (term.op.call, tuple(arg.number for arg in term.args))
        if key not in self._made:
            self._made[key] = None if term.open else self._results(call, term.args)
        made = self._made[key]
        # What is broadcast to be a carry may have fewer axes than it.
        return made[term.op.result] if made and made[term.op.result].axes == term.axes else None

    def _results(self, call: Call, args: tuple[Term, ...]) -> list[Term] | None:
        """The results of the call, from those of the one that carries less."""
        control = call.control
        if control is None or isinstance(control, Switch):
            return None
        groups = self._groups(call, control, args)
        if not groups:
            return None
        derived = {place: group for group in groups for place in group.values}
        first = len(control.carried)
        stays = [number for number in range(first) if control.carried[number] not in derived]
        stacked = range(first, len(call.out_layouts))
        leaves = [leaf for group in groups for leaf in group.leaves()]
        places = tuple(range(len(args), len(args) + len(leaves)))
        operands = (*args, *(_zero(self.terms, leaf.dtype) for leaf in leaves))
        layouts = tuple(_layout(leaf) for leaf in leaves)
        made = replace(
            call,
            arg_layouts=(*call.arg_layouts, *layouts),
            out_layouts=_joined(call.out_layouts, stays, layouts, stacked),
            out_dtypes=_joined(call.out_dtypes, stays, [leaf.dtype for leaf in leaves], stacked),
            control=replace(control, carried=(*(control.carried[number] for number in stays), *places)),
            unread=frozenset(),
        )
        *others, body = call.bodies
        changed = self._outputs(groups)
        outputs = _joined(body.program.outputs, stays, changed, stacked)
        program = replace(body.program, outputs=outputs)
        bodies = [_without(other, derived) for other in others]
        bodies.append(self._body(program, body.sources, args, derived, leaves, places))
        made = self.numbered(with_bodies(made, bodies, operands), call)
        final = {
            leaf: self.terms.make(Opaque(made, len(stays) + n), operands) for n, leaf in enumerate(leaves)
        }
        outside = {leaf: args[source] for leaf, source in zip(body.program.inputs, body.sources, strict=True)}
        results: list[Term] = []
        for number in range(len(call.out_layouts)):
            if number in stays:
                results.append(self.terms.make(Opaque(made, stays.index(number)), operands))
            elif number >= first:
                place = len(stays) + len(leaves) + number - first
                results.append(self.terms.make(Opaque(made, place), operands))
            else:
                place = control.carried[number]
                value = self._value(derived[place], place, args[place])
                known = {leaf.number: term for leaf, term in {**outside, **final}.items()}
                results += substituted(self.terms, [value], known)
        return results

    def _groups(self, call: Call, control: Scan | While, args: Sequence[Term]) -> list[_Group]:
        """The large carries of which it is known what they become from less."""
        *others, body = call.bodies
        elsewhere = {source for other in others for source in _read(other)}
        groups: dict[int | None, _Group] = {}
        find = self.rematerialiser(body.program).find
        for number, place in enumerate(control.carried):
            at = [number for number, source in enumerate(body.sources) if source == place]
            if result_bytes(call, number) <= self.threshold or len(at) != 1 or place in elsewhere:
                continue
            leaf, output = body.program.inputs[at[0]], body.program.outputs[number]
            change = self._change(output.term, leaf)
            if change is None or _layout(leaf) != output.layout or change[1].axes != leaf.axes:
                continue
            found = find(change[1], None)
            if found is not None:
                condition = change[0]
                key = None if condition is None else condition.number
                groups.setdefault(key, _Group(condition)).values[place] = found
        fixed_places = steady(control, len(args))
        same = {
            leaf
            for leaf, source in zip(body.program.inputs, body.sources, strict=True)
            if source in fixed_places and _layout(leaf) == call.arg_layouts[source]
        }
        return [group for group in groups.values() if self._is_worthwhile(group, same)]

    def _change(self, term: Term, carry: Term) -> tuple[Term | None, Term] | None:
        """When a carry changes, None for always, and what it becomes; None if it never does."""
        match term.op:
            case Map(name="select_n") if len(term.args) == 3 and not term.args[0].axes:
                chosen, *values = term.args
            case Opaque() if (found := branch_values(self.terms, term)) is not None:
                chosen, values = second_is_chosen(self.terms, term), [*found]
            case _:
                return None if term is carry else (None, term)
        first, second = values
        if first is carry:
            return None if second is carry else (chosen, second)
        if second is carry:
            return self.terms.make(Map("not", "bool"), [chosen]), first
        return None, term

    def _is_worthwhile(self, group: _Group, same: set[Term]) -> bool:
        """Whether the group is computed from little; if so, it gets inputs for that.

        **Arguments:**

        - `same`: the inputs of the body that are the same in every iteration.
        """
        moving = [at for at in group.given() if at not in same and not isinstance(at.op, Const)]
        saved = sum(one.term.bytes for one in group.values.values())
        if SMALLER * sum(at.bytes for at in moving) > saved or any(is_extended(at.dtype) for at in moving):
            return False
        group.started = self._leaf((), "bool")
        group.inputs = {at: self._leaf(tuple(sorted(at.axes)), at.dtype) for at in moving}
        return True

    def _leaf(self, layout: Layout, dtype: str) -> Term:
        return self.terms.make(Leaf(self.next_leaf(), layout, dtype))

    def _outputs(self, groups: Sequence[_Group]) -> list[Output]:
        """What an iteration makes of the new carries."""
        outputs: list[Output] = []
        make = self.terms.make
        for group in groups:
            assert group.started is not None
            if group.condition is None:
                outputs.append(Output(make(Const("True", "bool")), ()))
            else:
                outputs.append(Output(make(Map("or", "bool"), [group.started, group.condition]), ()))
            for at, leaf in group.inputs.items():
                now = at
                if group.condition is not None:
                    now = make(Map("select_n", at.dtype), [group.condition, leaf, at])
                outputs.append(Output(now, _layout(leaf)))
        return outputs

    def _value(self, group: _Group, place: int, start: Term) -> Term:
        """A carry, from what is kept in place of it.

        **Arguments:**

        - `start`: what it is at first.
        """
        inside: dict[Operand, Term] = {(at, None): group.inputs.get(at, at) for at in group.given()}
        later = group.values[place].built(self.terms, inside)
        assert group.started is not None
        return self.terms.make(Map("select_n", later.dtype), [group.started, start, later])

    def _body(
        self,
        program: Program,
        sources: Sequence[int],
        args: Sequence[Term],
        derived: dict[int, _Group],
        leaves: Sequence[Term],
        places: Sequence[int],
    ) -> Body:
        """The body that computes the large carries from inputs in place of them."""
        known: dict[int, Term] = {}
        fed: list[tuple[Term, int]] = []
        for leaf, source in zip(program.inputs, sources, strict=True):
            # What a carry is at first is the same in every iteration: a constant, or an input from now on.
            constant = source in derived and isinstance(args[source].op, Const)
            if not constant:
                fed.append((leaf, source))
            if source in derived:
                known[leaf.number] = self._value(derived[source], source, args[source] if constant else leaf)
        fed += zip(leaves, places, strict=True)
        inputs, now = zip(*fed, strict=True)
        return Body(with_inputs(program, inputs, known), now)


T = TypeVar("T")


def _joined(
    all_: Sequence[T], stays: Sequence[int], added: Sequence[T], stacked: Sequence[int]
) -> tuple[T, ...]:
    """The entries for the carries that stay, for the new ones, and for stacked results."""
    return (*(all_[number] for number in stays), *added, *(all_[number] for number in stacked))


def _read(body: Body) -> set[int]:
    """The operands that a body reads."""
    needed = {term.number for term in body.program.known()}
    fed = zip(body.program.inputs, body.sources, strict=True)
    return {source for leaf, source in fed if leaf.number in needed}


def _without(body: Body, places: Container[int]) -> Body:
    """A body without inputs that it does not read."""
    fed = zip(body.program.inputs, body.sources, strict=True)
    kept = [(leaf, source) for leaf, source in fed if source not in places]
    inputs = tuple(leaf for leaf, _ in kept)
    return Body(replace(body.program, inputs=inputs), tuple(source for _, source in kept))


def _layout(leaf: Term) -> Layout:
    assert isinstance(leaf.op, Leaf)
    return leaf.op.layout


def _zero(terms: Terms, dtype: str) -> Term:
    kind = numpy_dtype(dtype).kind
    return terms.make(Const("False" if kind == "b" else "0" if kind in "iu" else "0.0", dtype))
