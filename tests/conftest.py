"""Strict numerics: float64, no silent broadcasting of ranks, no silent change of dtype.

Tests compile more than they run, so the compiler stops at its first level unless the caller's XLA_FLAGS say otherwise.
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")

import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "allow")
jax.config.update("jax_numpy_dtype_promotion", "strict")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "full" not in (config.option.markexpr or ""):
        skip = pytest.mark.skip(reason="full size: run with -m full")
        for item in items:
            if "full" in item.keywords:
                item.add_marker(skip)
