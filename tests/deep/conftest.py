"""The deep agent runs in JAX's own defaults, 32 bits and its usual promotion, as it does outside the tests.

Programs that take long to compile are kept on disk for this session: many tests, and the processes that some of them
kill, run the same one.
"""

import os
import tempfile
from collections.abc import Iterator

import jax
import pytest

KEPT = tempfile.TemporaryDirectory(prefix="highway-rl-tests-")
os.environ["JAX_COMPILATION_CACHE_DIR"] = KEPT.name  # for other processes
jax.config.update("jax_compilation_cache_dir", KEPT.name)


@pytest.fixture(autouse=True)
def _as_users_run_it() -> Iterator[None]:
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield
