"""The deep agent runs in JAX's own defaults, 32 bits and its usual promotion, as it does outside the tests.

Most tests here compile long and run shortly, so the compiler is told to hurry; those marked `learns` run long.
"""

import os
from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def _hurry() -> Iterator[None]:
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    del os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"]
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(autouse=True)
def _as_users_run_it(request: pytest.FixtureRequest) -> Iterator[None]:
    learns = "learns" in request.keywords
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        jax.config.update("jax_disable_most_optimizations", not learns)
        yield
        jax.config.update("jax_disable_most_optimizations", True)
