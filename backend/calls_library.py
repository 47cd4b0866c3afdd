"""How calls of contractions, linear algebra, transforms and random number generators are printed."""

from __future__ import annotations

from eqsat.backend.calls_registry import CallSite, Unprintable, call, prints
from eqsat.backend.literals import dtype_name, items, literal

# Contractions, linear algebra, transforms


@prints("dot_general")
def _dot_general(site: CallSite) -> str:
    numbers = literal(site.params["dimension_numbers"])
    options = site.given(precision=None)
    if site.params["preferred_element_type"] is not None:
        options["preferred_element_type"] = dtype_name(site.params["preferred_element_type"])
    return call("lax.dot_general", *site.args, numbers, **options)


@prints("conv_general_dilated")
def _convolution(site: CallSite) -> str:
    names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "dimension_numbers")
    options = {name: literal(site.params[name]) for name in names}
    options |= site.given(feature_group_count=1, batch_group_count=1, precision=None)
    numbers = site.params["dimension_numbers"]
    # Of a part of the groups, there are as many as its shape says.
    images, kernel = site.arg_shapes
    if "feature_group_count" in options:
        features, of_each = images[numbers.lhs_spec[1]], kernel[numbers.rhs_spec[1]]
        options["feature_group_count"] = _quotient(features, of_each)
    if "batch_group_count" in options:
        batch, of_each = images[numbers.lhs_spec[0]], site.out_shapes[0][numbers.out_spec[0]]
        options["batch_group_count"] = _quotient(batch, of_each)
    if site.params["preferred_element_type"] is not None:
        options["preferred_element_type"] = dtype_name(site.params["preferred_element_type"])
    return call("lax.conv_general_dilated", *site.args, **options)


def _quotient(length: str, part: str) -> str:
    """How many parts a length consists of."""
    if length.isdigit() and part.isdigit():
        return str(int(length) // int(part))
    return length if part == "1" else f"({length}) // ({part})"


@prints("triangular_solve")
def _triangular_solve(site: CallSite) -> str:
    options = site.given(
        left_side=False, lower=False, transpose_a=False, conjugate_a=False, unit_diagonal=False
    )
    if "left_side" not in options or len(site.arg_shapes[1]) > 2:
        return call("lax.linalg.triangular_solve", *site.args, **options)
    # LAPACK reads an array by columns. Transposed, and solved from the right, it is read as it lies: else
    # the compiler copies it first, and where chunks of it are solved in a loop, it copies all of it at once.
    del options["left_side"]
    options.pop("transpose_a", None)
    if not site.params["transpose_a"]:
        options["transpose_a"] = "True"
    matrix, right = site.args
    solved = call("lax.linalg.triangular_solve", matrix, f"jnp.transpose({right})", **options)
    return f"jnp.transpose({solved})"


@prints("lu")
def _lu(site: CallSite) -> str:
    return f"tuple({call('lax.linalg.lu', site.args[0])})"


@prints("tridiagonal_solve")
def _tridiagonal_solve(site: CallSite) -> str:
    return call("lax.linalg.tridiagonal_solve", *site.args, **site.given(perturb_singular=False))


@prints("lu_pivots_to_permutation")
def _lu_pivots_to_permutation(site: CallSite) -> str:
    size = literal(site.params["permutation_size"])
    return call("lax.linalg.lu_pivots_to_permutation", site.args[0], size)


@prints("fft")
def _fft(site: CallSite) -> str:
    return call(
        "lax.fft", site.args[0], literal(site.params["fft_type"]), literal(site.params["fft_lengths"])
    )


# Random numbers. The functions take one key; the primitives take arrays of them, too.

IMPLEMENTATIONS = {"threefry2x32", "rbg", "unsafe_rbg"}
"""Implementations of keys that JAX knows by name; users may register others."""


def _one_key(site: CallSite) -> str:
    if site.arg_shapes[0]:
        raise Unprintable("an array of keys")
    return site.args[0]


def _implementation(site: CallSite) -> str:
    name = site.params["impl"].name
    if name not in IMPLEMENTATIONS:
        raise Unprintable("keys of the user's own making")
    return literal(name)


@prints("random_bits")
def _random_bits(site: CallSite) -> str:
    site.params.skip("shape")
    return call(
        "jax.random.bits",
        _one_key(site),
        items(site.out_shapes[0]),
        f"jnp.uint{site.params['bit_width']}",
    )


@prints("random_split")
def _random_split(site: CallSite) -> str:
    return call("jax.random.split", _one_key(site), literal(site.params["shape"]))


@prints("random_fold_in")
def _random_fold_in(site: CallSite) -> str:
    if site.arg_shapes[1]:
        raise Unprintable("an array of numbers")
    return call("jax.random.fold_in", _one_key(site), site.args[1])


@prints("random_seed")
def _random_seed(site: CallSite) -> str:
    return call("jax.random.key", _one_key(site), impl=_implementation(site))


@prints("random_wrap")
def _random_wrap(site: CallSite) -> str:
    return call("jax.random.wrap_key_data", site.args[0], impl=_implementation(site))


@prints("random_unwrap")
def _random_unwrap(site: CallSite) -> str:
    return call("jax.random.key_data", site.args[0])
