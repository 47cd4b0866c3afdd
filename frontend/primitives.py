"""The table of JAX's primitives, with one entry each.

An entry says how equations with the primitive are lowered. Most entries follow from the registries.
Primitives that no registry has are listed here, with the reason why no axis passes. `tests/frontend` compares
the table with the primitives of the installed JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from eqsat.frontend.handlers_reductions import REDUCTIONS
from eqsat.frontend.passing import RULES
from eqsat.frontend.value_numbering import CALLS, TRANSPARENT
from eqsat.ir.elementwise import ELEMENTWISE


class Kind(Enum):
    """How an equation is lowered."""

    ELEMENTWISE = "a Map; every axis passes"
    REDUCES = "an op that some axes end in"
    CONTRACTS = "a Dot"
    LAYOUT = "no node at all, or one without operands"
    PASSES = "a call by chunks, along the axes that its rule says"
    BARRIER = "a call of whole arrays"
    CONTROL_FLOW = "branches and loops"
    INLINED = "what it calls, in its place"
    CALL = "a call of a function that stays one"
    EFFECT = "left as it is: it does something besides giving results"
    COLLECTIVE = "left as it is: it is about a mesh of devices"
    KERNEL = "never in a jaxpr but inside a kernel, which is left as it is"
    INTERNAL = "never in the jaxpr of a function: JAX's own machinery"


@dataclass(frozen=True, slots=True)
class Primitive:
    """An entry.

    **Attributes:**

    - `kind`: what becomes of it where its handler or rule takes its parameters; else it is a barrier.
    - `why`: of a barrier, why nothing passes.
    - `only`: the versions of JAX that have it, if not all do.
    """

    kind: Kind
    why: str = ""
    only: tuple[str, ...] = ()


LAYOUTS = """
broadcast_in_dim device_put empty empty2 iota reshape squeeze transpose
"""

BARRIERS: Mapping[str, str] = {
    "what is computed along one dimension depends on all the others": """
        cholesky_update spsolve
        """,
    "the elements are drawn from one stream, in order": """
        random_gamma rng_bit_generator rng_uniform
        """,
    "it is for generators that nothing is known of": """
        iota_2x32_shape philox2x32 philox4x32 random_clone threefry4x32
        """,
    "where its entries lie is data": """
        bcoo_dot_general_sampled bcoo_extract bcoo_fromdense bcoo_sort_indices bcoo_spdot_general
        bcoo_sum_duplicates bcoo_todense bcoo_transpose bcsr_extract bcsr_fromdense bcsr_todense
        coo_fromdense coo_matvec coo_spmm coo_spmv coo_todense csr_fromdense csr_matvec csr_spmm csr_spmv
        csr_todense todense
        """,
    "a library computes it for shapes that were fixed when it was called": """
        cudnn_fusion dot_product_attention_bwd dot_product_attention_bwd_wrapper
        dot_product_attention_fp8_bwd dot_product_attention_fp8_bwd_wrapper dot_product_attention_fp8_fwd
        dot_product_attention_fp8_fwd_wrapper dot_product_attention_fwd dot_product_attention_fwd_wrapper
        mosaic_gpu_p rnn_bwd rnn_fwd scaled_dot scaled_matmul scaled_matmul_wrapper tpu_custom_call
        """,
    "nobody says what it computes": """
        buffer_callback call_exported ffi_call pallas_call pure_callback
        """,
    "its operand is to lie where and as it says, as a whole": """
        layout_constraint relayout reshard sharding_constraint with_memory_space_constraint
        """,
    "it is about the order of what runs": """
        add_dependency after_all create_token program_order tie
        """,
    "its dtype is one of JAX's own": """
        from_edtype to_edtype
        """,
    "it is a number": """
        dim_as_value dimension_size
        """,
}
"""By the reason why nothing passes through."""

ONLY: Mapping[str, str] = {
    "0.10": """
        box_get box_set call closed_call core_map jaxpr_call log_extend log_read new_box new_log
        pbroadcast_done pbroadcast_start psum_start unreduced_psum_start unreduced_reduce_scatter_start
        """,
    "0.10 0.11": """
        debug_barrier_p elementwise_inline_asm_p reduced_vary_cast_p vary_unreduced_cast_p
        """,
    "0.11": """
        inline_mgpu_p program_order set_max_registers_p wgmma_accumulator_deref_p
        wgmma_accumulator_store_p
        """,
    "0.11 0.12": """
        _copysign async_copy_scales_to_tmem async_copy_smem_to_tmem async_copy_sparse_metadata_to_tmem
        async_load async_prefetch async_store_smem async_store_tmem barrier_arrive barrier_test
        barrier_wait commit_group commit_smem commit_tmem conv copy_gmem_to_smem copy_smem_to_gmem
        custom_fusion griddepcontrol_launch_dependents griddepcontrol_wait layout_cast load log2
        matmul_lhs_fifo matmul_pop_fifo mgpu_atomic_store mma mosaic_gpu_p multimem_load_reduce
        multimem_store one_minus_square pack_dtype print_layout query_cluster_cancel relayout
        semaphore_signal_multicast semaphore_signal_parallel tcgen05_commit_arrive tcgen05_mma
        try_cluster_cancel unpack_dtype unreduced_pmax unreduced_pmin wait_gmem_to_smem wait_load_tmem
        wait_smem_to_gmem wgmma wgmma_ref wgmma_wait
        """,
    "0.12": """
        barrier_arrive_and_wait debug_barrier elementwise_inline_asm has_memory_space inline_mgpu
        mosaic_gpu_reduce_max mosaic_gpu_reduce_min mosaic_gpu_reduce_prod mosaic_gpu_reduce_sum
        pbroadcast_dynamic polynomial reduced_vary_cast set_max_registers store vary_unreduced_cast
        wgmma_accumulator_deref wgmma_accumulator_store
        """,
}
"""Primitives that only some versions of JAX have, by version."""

OTHERS: Mapping[Kind, str] = {
    Kind.CONTRACTS: "dot_general",
    Kind.CONTROL_FLOW: "cond platform_index scan while",
    Kind.INLINED: "custom_linear_solve",
    Kind.CALL: """
        call_hi_primitive call_hi_primitive_linearized custom_lin custom_partitioning
        fused_call mpmd_map remat_opt xla_metadata_call xla_metadata_value
        """,
    Kind.EFFECT: """
        accum_grad_in_ref addupdate box_get box_set check core_map create_linear debug_callback debug_print
        empty_ref free_ref freeze get inspect_sharding io_callback log_extend log_read new_box new_log
        new_ref pin run_state shape_assertion swap unpin
        """,
    Kind.COLLECTIVE: """
        all_gather all_gather_done all_gather_invariant all_gather_reduced all_gather_reduced_start
        all_gather_start all_to_all all_to_all_done all_to_all_start axis_index
        global_array_to_host_local_array host_local_array_to_global_array pbroadcast pbroadcast_done
        pbroadcast_dynamic pbroadcast_start pmax pmin ppermute ppermute_done ppermute_start precv preduced
        psend psum psum_done psum_invariant psum_invariant_start psum_start pvary ragged_all_to_all
        reduce_scatter reduce_scatter_done reduce_scatter_start reduced_vary_cast reduced_vary_cast_p
        shard_map unreduced_pmax unreduced_pmin unreduced_psum unreduced_psum_start unreduced_reduce_scatter
        unreduced_reduce_scatter_start vary_unreduced_cast vary_unreduced_cast_p
        """,
    Kind.KERNEL: """
        _copysign async_copy_scales_to_tmem async_copy_smem_to_tmem
        async_copy_sparse_metadata_to_tmem async_load async_prefetch async_store_smem
        async_store_tmem atomic_cas atomic_rmw barrier_arrive barrier_arrive_and_wait barrier_test
        barrier_wait bitcast broadcast_to commit_group commit_smem commit_tmem conv
        copy_gmem_to_smem copy_smem_to_gmem custom_fusion debug_barrier debug_barrier_p delay
        dma_start dma_wait einshape_lo elementwise_inline_asm elementwise_inline_asm_p emit_pipeline
        get_barrier_semaphore get_global griddepcontrol_launch_dependents griddepcontrol_wait
        has_memory_space inline_mgpu inline_mgpu_p jaxpr_call layout_cast load masked_load
        masked_swap matmul_acc_lhs matmul_lhs_fifo matmul_pop matmul_pop_fifo matmul_push_rhs
        max_contiguous mgpu_atomic_store mma mosaic_gpu_reduce_max mosaic_gpu_reduce_min
        mosaic_gpu_reduce_prod mosaic_gpu_reduce_sum multimem_load_reduce multimem_store multiple_of
        num_programs pack_dtype pack_elementwise pipeline_body print_layout prng_join
        prng_random_bits prng_seed prng_split program_id query_cluster_cancel reciprocal
        remove_memory_space roll run_scoped semaphore_read semaphore_signal
        semaphore_signal_multicast semaphore_signal_parallel semaphore_wait set_max_registers
        set_max_registers_p stochastic_round store tcgen05_commit_arrive tcgen05_mma trace_value
        try_cluster_cancel unpack_dtype unpack_elementwise wait_gmem_to_smem wait_load_tmem
        wait_smem_to_gmem wgmma wgmma_accumulator_deref wgmma_accumulator_deref_p
        wgmma_accumulator_store wgmma_accumulator_store_p wgmma_ref wgmma_wait
        """,
    Kind.INTERNAL: """
        custom_jvp_call_jaxpr dce_sink stage unreachable zeros_like
        """,
}
"""The primitives that have neither an entry in a registry nor a reason."""


def _table() -> dict[str, Primitive]:
    versions = {name: tuple(some.split()) for some, names in ONLY.items() for name in names.split()}
    table: dict[str, Primitive] = {}

    def enter(kind: Kind, names: str, why: str = "") -> None:
        for name in names.split():
            assert name not in table, f"two entries for {name}"
            table[name] = Primitive(kind, why, versions.get(name, ()))

    # `convert` is what the IR calls convert_element_type.
    elementwise = ELEMENTWISE.keys() - {"convert"} - TRANSPARENT | {"convert_element_type"}
    enter(Kind.ELEMENTWISE, " ".join(sorted(elementwise)))
    enter(Kind.REDUCES, " ".join([*REDUCTIONS, "argmax", "argmin", "top_k"]))
    enter(Kind.LAYOUT, " ".join([*sorted(TRANSPARENT), LAYOUTS]))
    enter(Kind.INLINED, " ".join(sorted(CALLS)))
    for kind, names in OTHERS.items():
        enter(kind, names)
    for why, names in BARRIERS.items():
        enter(Kind.BARRIER, names, why)
    enter(Kind.PASSES, " ".join(name for name in RULES if name not in table))
    return table


PRIMITIVES: Mapping[str, Primitive] = _table()
"""By name."""
