"""A budget on a whole training step: model, loss, gradient and optimiser as one program.

    python -m benchmarks.beyond.training [--quick] [--runs N]

The program is a small transformer of flax with its next-token loss and Adam of optax, unmodified, at growing
sequence lengths under one budget. The program written by hand uses `nn.remat`, which is `jax.checkpoint`, for
every block.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import optax

from benchmarks.beyond.table import Case, main

Array = Any
VOCABULARY, WIDTH, HEADS, LAYERS = 1_000, 64, 4, 2


class Block(nn.Module):
    """Attention and a layer of hidden units, each after a normalisation and with a residual connection."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        normal = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=HEADS)(normal, normal)
        hidden = nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x)))
        return x + nn.Dense(WIDTH)(hidden)


class Transformer(nn.Module):
    """A transformer from tokens to the logits of the next tokens; `block` is the module of its layers."""

    block: Callable[..., nn.Module] = Block

    @nn.compact
    def __call__(self, tokens: Array) -> Array:
        positions = self.param("positions", nn.initializers.normal(0.02), (tokens.shape[-1], WIDTH))
        x = nn.Embed(VOCABULARY, WIDTH)(tokens) + positions
        for layer in range(LAYERS):
            x = self.block(name=f"block_{layer}")(x)
        return nn.Dense(VOCABULARY)(nn.LayerNorm()(x))


OPTIMISER = optax.adam(1e-3)


def step(model: nn.Module, parameters: Any, state: Any, tokens: Array) -> tuple[Any, Any, Array]:
    """Returns the new parameters, the new state of the optimiser, and the loss."""

    def loss(parameters: Any) -> Array:
        logits: Any = model.apply(parameters, tokens)
        return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean()

    value, gradient = jax.value_and_grad(loss)(parameters)
    updates, state = OPTIMISER.update(gradient, state, parameters)
    return optax.apply_updates(parameters, updates), state, value


def data(positions: int) -> tuple[Any, Any, Array]:
    tokens = np.random.default_rng(0).integers(VOCABULARY, size=(1, positions)).astype(np.int32)
    parameters = Transformer().init(jax.random.key(0), tokens)
    return parameters, OPTIMISER.init(parameters), tokens


def moments(result: tuple[Any, Any, Array]) -> Array:
    """Returns Adam's first moments, a multiple of the gradient, as one vector.

    They are compared together, since some are 0 except for rounding.
    """
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(result[1][0].mu)])


def case(positions: int, budget: str) -> Case:
    by_hand = {"nn.remat of every block": partial(step, Transformer(nn.remat(Block)))}
    plain = partial(step, Transformer())
    return Case(f"{positions:,} positions", plain, partial(data, positions), (budget,), by_hand, part=moments)


CASES = tuple(case(positions, "150MB") for positions in (1_024, 2_048, 4_096))
QUICK = (case(128, "15MB"),)

if __name__ == "__main__":
    main("training", __doc__.splitlines()[0], CASES, QUICK)
