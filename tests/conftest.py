"""Strict numerics: float64, no silent broadcasting of ranks, no silent change of dtype.

Tests compile more than they run, so the compiler hurries unless the caller's XLA_FLAGS say otherwise, and programs are
kept on disk for this session: many tests, and processes that some of them start, run the same one.
"""

import os
import tempfile
from importlib.metadata import version

import pytest

HURRY = "--xla_backend_optimization_level=1"
if version("jaxlib").startswith("0.10."):  # XLA refuses flags it does not know, and this one may not stay
    HURRY += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", HURRY)
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # pytest's workers find it there
    KEPT = tempfile.TemporaryDirectory(prefix="highway-rl-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = KEPT.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"

import jax  # noqa: E402

jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "allow")
jax.config.update("jax_numpy_dtype_promotion", "strict")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "full" not in (config.option.markexpr or ""):
        skip = pytest.mark.skip(reason="full size: run with -m full")
        for item in items:
            if "full" in item.keywords:
                item.add_marker(skip)
