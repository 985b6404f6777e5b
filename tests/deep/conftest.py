"""The deep agent runs in JAX's own defaults, 32 bits and its usual promotion, as it does outside the tests.

Programs that take long to compile are kept on disk for this session: many tests, and the processes that some of them
kill, run the same one.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator

import jax
import pytest

# workers side by side share their parent, and so the folder; whoever is last to end finds it gone already
SESSION = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
KEPT = os.path.join(tempfile.gettempdir(), f"highway-rl-tests-{SESSION}")
os.environ["JAX_COMPILATION_CACHE_DIR"] = KEPT  # for other processes
jax.config.update("jax_compilation_cache_dir", KEPT)
atexit.register(shutil.rmtree, KEPT, ignore_errors=True)


@pytest.fixture(autouse=True)
def _as_users_run_it() -> Iterator[None]:
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield
