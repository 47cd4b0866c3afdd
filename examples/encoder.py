"""The forward pass and a training step of a transformer encoder in flax, on a long sequence.

    python -m examples.encoder [--small]

What `python -m examples.encoder` prints, on two cores shared with other work:

    Encoder, forward: 4,096 tokens, width 128, 4 heads, 2 blocks
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 829 MB                  budget 82.9 MB                eqsat 57.4 MB
      time    plain 6.8 s                   planning 45.0 s               eqsat 2.0 s
      error   plain 7.1e-07                 (float64, all of it)          eqsat 6.6e-07
      loops   tokens.1: 4096 in 32 chunks of 128, combined by concatenation; tokens.1: 4096 in 32 chunks
              of 128, combined by concatenation
      rules   chunk-map 110, chunk-reduction 18, chunk-contraction 17, split-result 5, rename-map 2,
              sum-as-mean 2, rename-contracted 2, contraction-order 2

    Encoder, one step of AdamW: 4,096 tokens, width 128, 4 heads, 2 blocks
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 1.49 GB                 budget 223 MB                 eqsat 213 MB
      time    plain 23.6 s                  planning 227.1 s              eqsat 11.3 s
      error   plain 5.4e-07                 (float64, loss and momentum)  eqsat 4.4e-07
      loops   tokens.1: 4096 in 32 chunks of 128, combined by concatenation; tokens.1: 4096 in 32 chunks
              of 128, combined by concatenation; tokens.1: 4096 in 2 chunks of 2048, combined by
              concatenation and sum; tokens.1: 4096 in 32 chunks of 128, combined by concatenation and
              sum; tokens.1: 4096 in 32 chunks of 128, combined by sum and concatenation; tokens.1: 4096
              in 1 chunks of 4096, combined by sum; tokens.1: 4096 in 1 chunks of 4096, combined by sum;
              tokens.1: 4096 in 1 chunks of 4096, combined by sum; tokens.1: 4096 in 1 chunks of 4096,
              combined by sum; tokens.1: 4096 in 1 chunks of 4096, combined by concatenation; tokens.1:
              4096 in 1 chunks of 4096, combined by sum
      rules   contraction-order 120, chunk-map 92, split-contraction 27, chunk-contraction 25,
              sum-of-addition 16, split-result 15, split-reduction 9, pull-factor-from-dot 7,
              sum-as-mean 6, chunk-reduction 6, rename-map 6, add-negation 5, sum-of-product 3,
              look-up-of-product 2, look-up-of-sum 2, product-with-negation 2, sum-through-dot 2,
              rename-contraction 2, pull-divisor-from-dot 2, chunk-call 1, pull-negation-from-dot 1,
              pull-divisor 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from jax.flatten_util import ravel_pytree

from examples.comparison import Comparison, compare, in_double_precision
from examples.data import parse

Array = Any


class Block(nnx.Module):
    """Attention, then two dense layers, each after a normalisation and with a residual connection."""

    def __init__(self, width: int, heads: int, rngs: nnx.Rngs) -> None:
        self.before_attention = nnx.LayerNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(heads, width, decode=False, rngs=rngs)
        self.before_dense = nnx.LayerNorm(width, rngs=rngs)
        self.wide = nnx.Linear(width, 4 * width, rngs=rngs)
        self.narrow = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        x = x + self.attention(self.before_attention(x))
        return x + self.narrow(nnx.gelu(self.wide(self.before_dense(x))))


class Encoder(nnx.Module):
    """An encoder from tokens [batch, length] to the logits of the token in each place.

    The logits have shape [batch, length, vocabulary].
    """

    def __init__(self, vocabulary: int, width: int, heads: int, blocks: int, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(vocabulary, width, rngs=rngs)
        self.blocks = nnx.List([Block(width, heads, rngs) for _ in range(blocks)])
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.head = nnx.Linear(width, vocabulary, rngs=rngs)

    def __call__(self, tokens: Array) -> Array:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_and_moments(result: Any) -> tuple[Array, Array]:
    """Returns the loss, and AdamW's first moments as one vector, which are a tenth of the gradient.

    The parameters themselves don't reveal errors. The first step of AdamW moves all of them by the same
    amount, even those whose gradient is only rounding, such as the keys' biases.
    """
    value, _, state = result
    return value, ravel_pytree(state[0].mu)[0]


def programs(length: int, width: int, heads: int, blocks: int, vocabulary: int) -> list[tuple[Any, Any]]:
    """Returns the forward pass and a training step, each with its arguments."""
    graph, parameters = nnx.split(Encoder(vocabulary, width, heads, blocks, nnx.Rngs(0)), nnx.Param)
    optimizer = optax.adamw(1e-3)
    tokens, targets = np.random.default_rng(0).integers(vocabulary, size=(2, 1, length))

    def forward(parameters: Any, tokens: Array) -> Array:
        return nnx.merge(graph, parameters)(tokens)

    def step(parameters: Any, state: Any, tokens: Array, targets: Array) -> Any:
        def loss(parameters: Any) -> Array:
            logits = forward(parameters, tokens)
            return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

        value, gradient = jax.value_and_grad(loss)(parameters)
        updates, state = optimizer.update(gradient, state, parameters)
        return value, optax.apply_updates(parameters, updates), state

    state = optimizer.init(parameters)
    return [(forward, (parameters, tokens)), (step, (parameters, state, tokens, targets))]


def main(args: Sequence[str] | None = None) -> list[Comparison]:
    options = parse(args, __doc__)
    length, width, heads, blocks = (400, 16, 2, 1) if options.small else (4_096, 128, 4, 2)
    (forward, inputs), (step, more_inputs) = programs(
        length, width, heads, blocks, vocabulary=50 if options.small else 1_000
    )
    size = f"{length:,} tokens, width {width}, {heads} heads, {blocks} blocks"
    return [
        compare(
            f"Encoder, forward: {size}",
            forward,
            *inputs,
            budget=0.5 if options.small else 0.1,
            reference=in_double_precision(forward),
        ),
        compare(
            f"Encoder, one step of AdamW: {size}",
            step,
            *more_inputs,
            budget=0.8 if options.small else 0.15,
            reference=lambda *arguments: loss_and_moments(in_double_precision(step)(*arguments)),
            part=loss_and_moments,
            note="float64, loss and momentum",
        ),
    ]


if __name__ == "__main__":
    main()
