"""The deep agent runs in JAX's own defaults, 32 bits and its usual promotion, as it does outside the tests."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def _as_users_run_it() -> Iterator[None]:
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield
