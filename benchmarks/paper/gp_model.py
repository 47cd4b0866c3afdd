"""The sparse Gaussian process regression of GPJax, as the benchmarks train and use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import gpjax as gpx
import jax
import jax.numpy as jnp
import numpy as np

Array = Any
KERNELS: dict[str, Any] = {"Matérn-3/2": gpx.kernels.Matern32, "RBF": gpx.kernels.RBF}
JITTER = {"float32": 1e-4, "float64": 1e-6}


@dataclass(frozen=True)
class Model:
    """A model, split into the parameters that are trained and the rest.

    **Attributes:**

    - `parameters`: the length scales, the variances, the mean and the inducing inputs.
    - `static`: everything else.
    """

    parameters: Any
    static: Any

    def negative_bound(self, parameters: Any, x: Array, y: Array) -> Array:
        """Returns GPJax's `collapsed_elbo`, negated and divided by the number of points; x [n, d], y [n]."""
        family = eqx.combine(parameters, self.static)
        return -gpx.objectives.collapsed_elbo(family, gpx.Dataset(x, y[:, None])) / x.shape[0]

    @property
    def value_and_gradient(self) -> Callable[..., tuple[Array, Any]]:
        """The function that gives the negative bound and its gradient with respect to all parameters."""
        return jax.value_and_grad(self.negative_bound)

    def predict(self, parameters: Any, x: Array, y: Array, x_test: Array) -> tuple[Array, Array]:
        """Returns the mean and the variance of the targets at other inputs, with noise; both are [n_test]."""
        family = eqx.combine(parameters, self.static)
        predicted = family.condition(gpx.Dataset(x, y[:, None]))(x_test, covariance="diagonal")
        noise = gpx.parameters.val(family.model.likelihood.obs_stddev) ** 2
        return predicted.mean.ravel(), predicted.variance.ravel() + noise


def model(kernel: str, inducing: np.ndarray) -> Model:
    """Returns an untrained model with the inducing inputs [m, d], whose dtype all parameters have.

    The length scales are sqrt(d), the variance is 1, and the noise has variance 0.1.
    """
    dtype, dimensions = inducing.dtype, inducing.shape[1]
    prior = gpx.gps.Prior(
        mean_function=gpx.mean_functions.Constant(jnp.zeros((), dtype)),
        kernel=KERNELS[kernel](
            lengthscale=jnp.full(dimensions, dimensions**0.5, dtype), variance=jnp.ones((), dtype)
        ),
        jitter=JITTER[str(dtype)],
    )
    likelihood = gpx.likelihoods.Gaussian(obs_stddev=jnp.full((), 0.1**0.5, dtype))
    family = gpx.variational_families.CollapsedVariationalGaussian(
        model=prior * likelihood, inducing_inputs=jnp.asarray(inducing)
    )
    return Model(*eqx.partition(family, eqx.is_inexact_array))


def with_inducing(parameters: Any, inducing: np.ndarray) -> Any:
    """Returns the parameters with other inducing inputs."""
    return eqx.tree_at(lambda tree: tree.inducing_inputs.value, parameters, jnp.asarray(inducing))
