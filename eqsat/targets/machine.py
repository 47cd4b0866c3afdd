"""The machine model: rates by which time is predicted, and sizes by which chunks are chosen.

Only ratios matter for choosing between programs. The defaults hold for small CPUs. Those of other devices
are beside their compilers' profiles, and `eqsat.targets.calibration` measures the machine at hand on request.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from eqsat.targets.product_tiles import ProductTiles

REDUCED = frozenset({"float32", "bfloat16", "float16", "f32", "bf16", "f16"})
"""The dtypes of which a product may be computed in less than single precision."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine.

    **Attributes:**

    - `flops`: floating-point operations per second in a large matrix product in full precision.
    - `reduced_flops`: the same for products of single precision and less at the default precision, if that
      is less than full; 0 if it is not.
    - `elements`: elementwise additions per second, operands in cache.
    - `bytes`: bytes per second to and from main memory.
    - `cached_bytes`: bytes per second where the data fits `cache`.
    - `cache`: bytes of a block that is fast to produce and consume.
    - `kept`: bytes of the largest block that a process keeps from one call to the next.
    - `fresh`: bytes per second of a larger block, which comes from the system in every call, in pages that
      are cleared first.
    - `call`: seconds to start one operation. On a CPU, a small product takes 0.4 us in a loop, and other
      kernels a tenth of that (two cores of a Xeon, jaxlib 0.10).
    - `iteration`: seconds to start an iteration of a loop over chunks. On a CPU, it starts at once, but XLA
      computes arrays of fewer than about 128,000 entries on one core: a chunk cost 0.8 to 53 us more than it
      did as part of one eight times as long.
    - `reduction`: how many additions an entry costs that a reduction reads; `long_inlined`: the same for
      reductions that are computed inside of what reads them, if they are longer than `short_reduction`.
    - `row`: seconds that a factorisation or a solve takes for each row of its matrix, one after the other.
    - `selected`: how many additions an entry costs of which the largest few are selected; `sorted`: the same
      for an entry that is sorted, for each comparison; `sorted_integer`: the same for integers that are
      sorted by themselves.
    - `merges`: whether a sort merges, so that it compares an entry log2(n) times, and not as a sorting
      network does.
    - `patch`: how many additions it costs to copy the features of a place, for each part of a convolution's
      kernel that is multiplied by them; `orders_convolutions`: whether convolutions have to be written in the
      order of the library that computes them.
    - `shifted_taps`: depthwise convolutions of at most so many entries of each feature are written as sums of
      shifted images; 0: none is. `shifted`: how many additions each entry costs then.
    - `fused_reduction`: the longest reduction that computes its operand on the fly; the operand of a
      longer one is stored.
    - `inlined_reduction`: the longest reduction whose result is computed inside of what reads it, and not
      stored; 0 if none is.
    - `short_reduction`: the longest of these whose entries cost no more than elsewhere; it is computed again
      for each of up to `short_uses` readers.
    - `written_sum`: the most entries of a sum that may be written out, entry by entry; 0 for none.
    - `fuses_products`: whether matrix products compute their operands on the fly, and their results are
      consumed on the fly if they are read once.
    - `sums_pairs`: whether products of pairs of vectors are sums, which compute their operands on the fly.
    - `cheap_uses`: an expensive value that is read by no more than so many is computed for each of them.
    - `most_copies`: of a value that is computed on the fly, a kernel has code for at most so many ways to
      index it; 0 if there is no limit.
    - `shifted_work`: what several shifted parts of are read is stored in a loop, if to compute it for all but
      one of them takes more elementwise operations for each entry; 0: nothing is.
    - `repeated_work`: what is repeated along an axis is stored in a loop, if it takes so many elementwise
      operations beyond the last expensive one; 0: nothing is. `repeated_run`: and if so many of its entries
      lie one after the other.
    - `stores_gathers`: whether gathered values are stored if a part of them is read along more axes.
    - `split_reduction`: a longer reduction is done in two steps, of about the root of its length each, and
      the results of the first step are stored; 0 if none is.
    - `split_columns`: the same for reductions along another axis than the last; `emits_steps`: whether such
      reductions are emitted in two steps (`eqsat.ir.reduction_steps`).
    - `few_columns`: with fewer columns than that, reductions along another axis than the last are slow.
    - `fuses_joins`: whether concatenations and padded arrays are computed on the fly, and what they are of;
      and the updates of scatters.
    - `fuses_extremes`: whether argmax and argmin compute their operand on the fly; `fuses_selections`: the
      same for the largest entries of a row where they are found by blocks (`eqsat.ir.selection`).
    - `sort_copies`: how many copies of all that it sorts a sort takes beside its result; 0 if it sorts in
      place, without indices that keep equal entries in order.
    - `sorted_entry`: bytes that a library takes, beside all buffers, for each entry of each array of a row
      that it sorts; 0 if none. Integers alone are sorted with a copy of half of a row.
    - `random_copies`: how many copies of its results the loop of a counter-based random generator takes.
    - `overwrites`: whether elementwise values may take the place of a value that they are computed from.
    - `stores_broadcasts`: whether an expensive value is stored before it is broadcast.
    - `fast_memory`: bytes of values that the compiler keeps apart from the device's memory, where they take
      none of it; a larger value is not kept there.
    - `rows`: the fewest rows with which a matrix product runs near full speed.
    - `tiles`: how matrix products are shared out by tiles of their results; None where that does not matter.
      With tiles, reading the operands of a product does not overlap with computing it.
    - `transposes_slowly`: whether a product of two transposed matrices is slower than others.
    - `panel_columns`: the number of columns of an operand that a matrix product packs at a time, in memory
      of its own. A batch of products packs all columns. 0 if nothing is packed.
    - `panel_tile`: the number of columns packed is a multiple of this one.
    - `least_panel`: bytes of the smallest packed panel that counts, as in the certificate.
    - `product_workspace`: bytes that a matrix product takes while it runs, whatever its size.
    - `widens`: whether products of narrow floats are computed of copies in single precision, and their
      results rounded afterwards. Slices of bfloat16 arrays in loops are taken of such copies, too (measured,
      jaxlib 0.10).
    - `narrow_products`: the dtypes of products of bfloat16 that take no such copies all the same.
    - `indexed_slices`: scans take slices of an array by their number, in which other axes come first, if it
      has at most so many bytes, or the slices are runs of at least a line of the cache (docs/xla.md). XLA
      copies others. 0: none are taken so, and it is not known what is copied.
    - `cache_line`: bytes of a line of the cache.
    - `packing`: the slowdown of a program whose products are emitted so that they pack less.
    - `lanes`: the number of entries, adjacent in memory, that are processed at once; 0 if their order does
      not matter.
    - `adds_rows`: whether the product of a vector and a matrix adds the matrix's rows one after the other:
      an entry's rounding error then grows with their number.
    - `joins`: whether products of one matrix with several narrow ones are taken as one.
    - `copies`: whether operands of short reductions may be copied to an order for `lanes`, and operands of
      products so that these can be taken as one.
    - `streamed`: bytes per second that a device gets of arrays outside its memory, as those in files are.
      1e9 is the rate of the disk that docs/larger-than-memory.md measures with.
    - `chunk`: seconds that a chunk of such an array takes in Python, however short it is. 2.3e-4 was measured
      on two cores of an AMD EPYC (0.22 to 0.30 ms).
    - `late_chunks`: how many such chunks a device may still hold when all that reads them has ended.
    - `link`: bytes per second that a device gets from the others of a mesh; `message`: seconds that they take
      to start a collective.
    - `clock`: cycles per second, if the compiler states the cycles of its kernels; else 0.
    """

    flops: float = 6e10
    reduced_flops: float = 0.0
    elements: float = 4e9
    bytes: float = 1e10
    cached_bytes: float = 4e10
    cache: int = 8 << 20
    kept: int = 32 << 20
    fresh: float = 1e9
    call: float = 4e-7
    iteration: float = 5e-6
    reduction: float = 1.0
    long_inlined: float = 1.0
    row: float = 0.0
    selected: float = 1.0
    sorted: float = 50.0
    sorted_integer: float = 10.0
    merges: bool = True
    patch: float = 24.0
    orders_convolutions: bool = True
    shifted_taps: int = 128
    shifted: float = 0.5
    fused_reduction: int = 32
    inlined_reduction: int = 0
    short_reduction: int = 0
    short_uses: float = 1
    written_sum: int = 0
    fuses_products: bool = False
    sums_pairs: bool = False
    cheap_uses: int = 1
    most_copies: int = 15  # measured, jaxlib 0.10
    shifted_work: float = 12.0  # measured, jaxlib 0.10
    repeated_work: float = 8.0  # measured, jaxlib 0.10
    repeated_run: int = 96  # measured, jaxlib 0.10
    stores_gathers: bool = True  # measured, jaxlib 0.10
    split_reduction: int = 0
    split_columns: int = 0
    few_columns: int = 0
    emits_steps: bool = False
    stores_broadcasts: bool = False
    fuses_joins: bool = False
    fuses_extremes: bool = False
    fuses_selections: bool = False
    sort_copies: int = 0
    sorted_entry: int = 0
    random_copies: int = 1
    overwrites: bool = True
    fast_memory: int = 0
    rows: int = 64
    tiles: ProductTiles | None = None
    transposes_slowly: bool = False
    panel_columns: int = 128
    panel_tile: int = 4
    least_panel: int = 1 << 17
    product_workspace: int = 0
    widens: bool = True
    narrow_products: frozenset[str] = frozenset({"float32"})
    indexed_slices: int = 8 << 20
    cache_line: int = 64
    packing: float = 1.2
    lanes: int = 8
    copies: bool = True
    adds_rows: bool = True
    joins: bool = True
    streamed: float = 1e9
    chunk: float = 2.3e-4
    late_chunks: int = 0
    link: float = 5e9
    message: float = 2e-5
    clock: float = 0.0

    @property
    def unemitted(self) -> Machine:
        """The machine for a program that is compiled without being emitted: it has none of our forms."""
        return replace(self, copies=False, fuses_selections=False, emits_steps=False)

    def product_flops(self, dtype: str, precise: bool) -> float:
        """Operations per second of a product.

        **Arguments:**

        - `dtype`: the name of the operands' dtype, as NumPy or as XLA writes it.
        - `precise`: whether more than the default precision is asked for.
        """
        reduced = dtype in REDUCED and not precise and self.reduced_flops
        return self.reduced_flops if reduced else self.flops

    def busy(self, rows: int, columns: int, batch: int = 1) -> float:
        """The share of its rate at which it computes products whose results have so many rows and columns."""
        return self.tiles.busy(rows, columns, batch) if self.tiles else 1.0

    def multiplying(self, computing: float, moving: float) -> float:
        """Seconds of a product, by those of its operations and of reading and writing, which may overlap."""
        return computing + moving if self.tiles else max(computing, moving)

    def sorting(self, length: int, integers: bool = False) -> float:
        """Additions for an entry of a row of that length that is sorted.

        **Arguments:**

        - `integers`: whether integers are sorted by themselves.
        """
        levels = max(math.log2(max(length, 2)), 1.0)
        return (self.sorted_integer if integers else self.sorted) * levels ** (1 if self.merges else 2)

    def taking(self, size: float) -> float:
        """Seconds to get a block of `size` bytes for a call. Large blocks are not kept between calls."""
        return size / self.fresh if size > self.kept else 0.0
