"""The loss of a language model's last layer over a large vocabulary, and its gradient.

    python -m examples.lm_head [--small]

The logits, tokens by words, take the memory. The gradient needs more arrays of this size than the loss.

What `python -m examples.lm_head` prints, on two cores shared with other work:

    Language-model head, loss: 4,096 tokens, 50,000 words
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 1.69 GB                 budget 150 MB                 eqsat 54.7 MB
      time    plain 11.2 s                  planning 20.3 s               eqsat 5.1 s
      error   plain 4.0e-08                 (float64, all of it)          eqsat 4.0e-08
      loops   embedding.0: 50000 in 100 chunks of 500, combined by rescaled_logarithm
      rules   split-safe-exponentials 6, contraction-order 6, chunk-contraction 2, look-up-of-product 2,
              split-logsumexp 1

    Language-model head, loss and gradient: 4,096 tokens, 50,000 words
    ────────────────────────────────────────────────────────────────────────────────────────────────────
      peak    plain 2.67 GB                 budget 150 MB                 eqsat 132 MB
      time    plain 9.6 s                   planning 13.0 s               eqsat 13.1 s
      error   plain 1.5e-06                 (float64, all of it)          eqsat 1.5e-06
      loops   hidden.0: 4096 in 64 chunks of 64, combined by concatenation and sum
      rules   chunk-map 15, contraction-order 6, split-result 4, split-contraction 3, chunk-contraction
              2, chunk-reduction 2, look-up-of-product 2, chunk-call 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import optax

from examples.comparison import Comparison, compare, in_double_precision
from examples.data import parse

Array = Any


def loss(embedding: Array, hidden: Array, words: Array) -> Array:
    """Returns the mean cross entropy of the next words.

    The shapes are embedding [vocabulary, d], hidden [tokens, d] and words [tokens].
    """
    return optax.softmax_cross_entropy_with_integer_labels(hidden @ embedding.T, words).mean()


def main(args: Sequence[str] | None = None) -> list[Comparison]:
    options = parse(args, __doc__)
    vocabulary, width, tokens = (700, 16, 300) if options.small else (50_000, 128, 4_096)
    rng = np.random.default_rng(0)
    embedding = rng.normal(size=(vocabulary, width)).astype(np.float32) / np.sqrt(np.float32(width))
    hidden = rng.normal(size=(tokens, width)).astype(np.float32)
    words = rng.integers(vocabulary, size=tokens)
    return [
        compare(
            f"Language-model head, {name}: {tokens:,} tokens, {vocabulary:,} words",
            function,
            embedding,
            hidden,
            words,
            budget=0.25 if options.small else "150MB",
            reference=in_double_precision(function),
        )
        for name, function in {"loss": loss, "loss and gradient": jax.value_and_grad(loss, (0, 1))}.items()
    ]


if __name__ == "__main__":
    main()
