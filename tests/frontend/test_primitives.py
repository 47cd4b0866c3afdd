"""Every primitive that JAX has is classified, and what is said of it is so."""

from __future__ import annotations

import contextlib
import importlib
import sys

import jax
from jax.extend.core import Primitive

from eqsat.frontend.lower import HANDLERS  # all of them: the handlers are imported there
from eqsat.frontend.passing import RULES
from eqsat.frontend.primitives import ONLY, PRIMITIVES, Kind
from eqsat.ir.elementwise import ELEMENTWISE
from tests.primitives.table import CASES

MODULES = """
jax.ad_checkpoint jax.custom_batching jax.custom_derivatives jax.debug jax.export jax.ffi
jax.extend.core.primitives jax.extend.random jax.lax jax.lax.linalg jax.nn jax.random jax.scipy.special
jax.experimental.checkify jax.experimental.custom_partitioning jax.experimental.fused
jax.experimental.jet jax.experimental.key_reuse jax.experimental.layout
jax.experimental.multihost_utils jax.experimental.ode jax.experimental.pallas
jax.experimental.pallas.tpu jax.experimental.pallas.triton jax.experimental.rnn
jax.experimental.roofline jax.experimental.scheduling_groups jax.experimental.shard_map
jax.experimental.sparse jax.experimental.sparse.linalg jax.experimental.xla_metadata
jax.experimental.buffer_callback jax.experimental.hijax
"""
"""The public modules that primitives may come with. What they import is looked through, too."""

GPU_KERNELS = "jax.experimental.pallas.mosaic_gpu"
"""Needs packages that JAX does not install."""


def installed() -> dict[str, Primitive]:
    """Every primitive that JAX has here, by name."""
    for module in (*MODULES.split(), GPU_KERNELS):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    return {
        value.name: value
        for name, module in sorted(sys.modules.items())
        if name == "jax" or name.startswith("jax.")
        for value in list(vars(module).values())
        if isinstance(value, Primitive)
    }


HERE = installed()
VERSION = ".".join(jax.__version__.split(".")[:2])

ELSEWHERE: dict[str, str] = {
    "needs a TPU or GPU": """
        bcoo_spdot_general buffer_callback coo_spmm coo_spmv csr_spmm csr_spmv cudnn_fusion
        dot_product_attention_bwd dot_product_attention_bwd_wrapper dot_product_attention_fp8_bwd
        dot_product_attention_fp8_bwd_wrapper dot_product_attention_fp8_fwd
        dot_product_attention_fp8_fwd_wrapper dot_product_attention_fwd dot_product_attention_fwd_wrapper
        mosaic_gpu_p mpmd_map ormqr rnn_bwd rnn_fwd scaled_dot scaled_matmul scaled_matmul_wrapper
        tpu_custom_call with_memory_space_constraint
        """,
    "needs several devices": """
        all_gather_done all_gather_invariant all_gather_reduced all_gather_reduced_start all_gather_start
        all_to_all all_to_all_done all_to_all_start global_array_to_host_local_array pbroadcast_dynamic
        host_local_array_to_global_array pbroadcast pbroadcast_done pbroadcast_start pmin ppermute_done
        ppermute_start precv preduced psend psum_done psum_invariant psum_invariant_start psum_start pvary
        ragged_all_to_all reduce_scatter_done reduce_scatter_start reduced_vary_cast reduced_vary_cast_p
        relayout reshard unreduced_pmax unreduced_pmin unreduced_psum unreduced_psum_start
        unreduced_reduce_scatter unreduced_reduce_scatter_start vary_unreduced_cast vary_unreduced_cast_p
        """,
    "comes from other transformations": """
        accum_grad_in_ref add_dependency after_all call call_exported call_hi_primitive
        call_hi_primitive_linearized closed_call core_map create_linear create_token custom_lin
        dim_as_value dimension_size empty2 empty_ref eval_jaxpr free_ref from_edtype get
        inspect_sharding iota_2x32_shape layout_constraint new_box box_get box_set new_log log_extend
        log_read pin program_order remat_opt run_state shape_assertion tie to_edtype unpin
        """,
    "is called by what has no call here": """
        bcsr_extract bcsr_fromdense coo_fromdense csr_fromdense custom_partitioning ffi_call fused_call
        geqp3 philox2x32 philox4x32 spsolve threefry4x32 todense xla_metadata_call xla_metadata_value
        """,
}
"""Primitives without an example call, and why."""


def test_every_primitive_is_classified() -> None:
    """A primitive that a new JAX brings is to be thought about: enter it in frontend/primitives.py."""
    assert sorted(HERE.keys() - PRIMITIVES.keys()) == []


def test_every_entry_is_a_primitive() -> None:
    expected = {name for name, entry in PRIMITIVES.items() if not entry.only or VERSION in entry.only}
    if GPU_KERNELS not in sys.modules:
        # Kernels of GPUs came with 0.11, all of them, and are not to be seen here.
        newer = {name for name, entry in PRIMITIVES.items() if entry.only and "0.10" not in entry.only}
        expected -= {name for name in newer if PRIMITIVES[name].kind is Kind.KERNEL}
        expected -= {"mosaic_gpu_p"}
    assert sorted(expected - HERE.keys()) == []


def test_versions_are_told_of_what_has_an_entry() -> None:
    assert all(name in PRIMITIVES for names in ONLY.values() for name in names.split())


def test_what_passes_has_a_rule() -> None:
    passing = {name for name, entry in PRIMITIVES.items() if entry.kind is Kind.PASSES}
    assert passing <= RULES.keys()
    assert {name for name in PRIMITIVES if PRIMITIVES[name].kind is Kind.ELEMENTWISE} <= RULES.keys()


def test_barriers_have_a_reason_and_no_rule() -> None:
    barriers = {name for name, entry in PRIMITIVES.items() if entry.kind is Kind.BARRIER}
    assert all(PRIMITIVES[name].why for name in barriers)
    assert barriers & RULES.keys() == set()


def test_what_the_ir_has_is_handled() -> None:
    """And nothing is registered under a name that no JAX has."""
    kinds = (Kind.ELEMENTWISE, Kind.REDUCES, Kind.CONTRACTS, Kind.LAYOUT, Kind.INLINED)
    assert {name for name, entry in PRIMITIVES.items() if entry.kind in kinds} <= HANDLERS.keys()
    own = {name for name in HANDLERS if name.startswith("eqsat_")}
    assert (HANDLERS.keys() | RULES.keys()) - own - PRIMITIVES.keys() == set()
    assert ELEMENTWISE.keys() - {"convert"} <= PRIMITIVES.keys()


def test_every_primitive_has_an_example_call() -> None:
    none = {Kind.KERNEL, Kind.INTERNAL}
    needed = {name for name, entry in PRIMITIVES.items() if entry.kind not in none and name in HERE}
    without = {name for names in ELSEWHERE.values() for name in names.split()}
    called = {case.primitive for case in CASES.values()}
    assert sorted(needed - called - without) == []
    assert sorted(called & without) == []
