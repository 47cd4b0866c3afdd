"""Scans that stack earlier entries of what they stack, too, as carries of the iterations after.

    h_t  and  h_(t-1)  =  scan(...)[1],  where every iteration  c = its entry,  and stacks c of the one before

In the first iterations, earlier entries are zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import compress

from eqsat.ir.control import Body, Scan
from eqsat.ir.control_sums import with_bodies
from eqsat.ir.iteration_values import entry_of
from eqsat.ir.ops import Call, Const, Leaf, Opaque
from eqsat.ir.program import Output
from eqsat.ir.reduction_monoids import identity_text
from eqsat.ir.term import Term, Terms


def with_earlier_entries(
    terms: Terms,
    stacks: Mapping[Term, Collection[int]],
    numbered: Callable[[Call, Call], Call],
    next_leaf: Callable[[], int],
) -> Callable[[Term, int], Term] | None:
    """The results of a scan, with as many earlier entries of stacked ones as are wanted.

    **Arguments:**

    - `stacks`: stacked results of one scan, with how many iterations before their earlier entries are made.
    - `numbered`: returns a call that was made of another one with a number of its own.
    - `next_leaf`: returns the number of a new input of a body.

    **Returns:** a function from a result of the scan, and how many iterations before it is made, to a term.
    None if an iteration does not stack what it makes as it is.
    """
    first_stack = next(iter(stacks))
    assert isinstance(first_stack.op, Opaque)
    call, args, control = first_stack.op.call, first_stack.args, first_stack.op.call.control
    assert isinstance(control, Scan)
    (body,), count = call.bodies, len(control.carried)
    carried: list[Output] = []
    befores: list[tuple[int, int, Term]] = []
    wanted: list[bool] = []
    for stack, lags in stacks.items():
        longest = max(lags, default=0)
        assert isinstance(stack.op, Opaque)
        made = entry_of(stack.op)
        if made is None and longest:
            return None
        own = call.out_layouts[stack.op.result][1:]
        for lag in range(1, longest + 1):
            assert made is not None
            carried.append(Output(made, own))
            made = terms.make(Leaf(next_leaf(), own, stack.dtype))
            befores.append((stack.op.result, lag, made))
            wanted.append(lag in lags)
    places = range(len(args), len(args) + len(carried))
    layouts, dtypes = [output.layout for output in carried], tuple(output.term.dtype for output in carried)
    operands = (*args, *(terms.make(Const(identity_text("sum", dtype), dtype)) for dtype in dtypes))
    earlier = [
        Output(before, output.layout)
        for (_, _, before), output in compress(zip(befores, carried, strict=True), wanted)
    ]
    outputs = body.program.outputs
    inner = replace(
        body.program,
        inputs=(*body.program.inputs, *(before for _, _, before in befores)),
        outputs=(*outputs[:count], *carried, *outputs[count:], *earlier),
    )
    iterations = [call.out_layouts[result][0] for result, _, _ in compress(befores, wanted)]
    made_call = replace(
        call,
        arg_layouts=(*call.arg_layouts, *layouts),
        out_layouts=(
            *call.out_layouts[:count],
            *layouts,
            *call.out_layouts[count:],
            *((along, *output.layout) for along, output in zip(iterations, earlier, strict=True)),
        ),
        out_dtypes=(
            *call.out_dtypes[:count],
            *dtypes,
            *call.out_dtypes[count:],
            *(output.term.dtype for output in earlier),
        ),
        control=replace(control, carried=(*control.carried, *places)),
        unread=frozenset(),
    )
    with_body = with_bodies(made_call, [Body(inner, (*body.sources, *places))], operands)
    scan = numbered(with_body, call) if carried else call
    results = len(call.out_layouts) + len(carried)
    numbers = {
        (result, lag): results + place for place, (result, lag, _) in enumerate(compress(befores, wanted))
    }

    def entries(result: Term, lag: int) -> Term:
        assert isinstance(result.op, Opaque)
        own = result.op.result
        number = numbers[own, lag] if lag else own if own < count else own + len(carried)
        return terms.make(Opaque(scan, number), operands)

    return entries
