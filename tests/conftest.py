"""Strict numerics: float64, no silent broadcasting of ranks, no silent change of dtype.

Tests compile more than they run, so the compiler hurries unless the caller's XLA_FLAGS say otherwise, and programs are
kept on disk for this session: many tests, and processes that some of them start, run the same one.
"""

import os
import signal
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

HURRY = "--xla_backend_optimization_level=1"
if version("jaxlib").startswith("0.10."):  # XLA refuses flags it does not know, and these may not stay
    HURRY += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ.setdefault("XLA_FLAGS", HURRY)
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # pytest's workers find it there
    KEPT = tempfile.TemporaryDirectory(prefix="highway-rl-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = KEPT.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"
os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # clusters on 127.0.0.1, which would write a token into one's home
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so it is in a shell's background; tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

import jax  # noqa: E402

jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "allow")
jax.config.update("jax_numpy_dtype_promotion", "strict")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The pages of docs are the longest, and each worker takes a file of them first."""
    items.sort(key=lambda item: item.path.name not in ("test_docs.py", "test_tutorials.py"))
    asked = config.option.markexpr or ""
    for marker, reason, run in (
        ("full", "full size: run with -m full", "full" in asked),
        ("long", "takes long: run with -m long", "long" in asked or "full" in asked),
    ):
        for item in () if run else items:
            if marker in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))


TESTS = Path(__file__).parent
DEEP = ("deep", "runs", "data")
HURRIED = (*DEEP, "core", "envs", "experiments", "mdp", "solvers", "tabular", "theorems")
AS_USERS = (*DEEP, "integrations", "envs/minatar", "envs/test_wrappers.py")


def _under(request: pytest.FixtureRequest, places: tuple[str, ...]) -> bool:
    here = request.path.relative_to(TESTS) if request.path.is_relative_to(TESTS) else Path("elsewhere")
    return any(here.is_relative_to(place) for place in places)


@pytest.fixture(scope="module", autouse=True)
def _hurry(request: pytest.FixtureRequest) -> Iterator[None]:
    """Most tests compile long and run shortly; those of deep agents marked `learns` run long, and so do full ones."""
    if not _under(request, HURRIED):
        yield
        return
    from highway_rl.tabular.loop import COMPILER  # not above: pytest has to see packages before they are imported

    level = "xla_backend_optimization_level"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        if "full" not in (request.config.option.markexpr or ""):
            patch.setitem(COMPILER, level, 0)
        jax.config.update("jax_disable_most_optimizations", True)
        yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(autouse=True)
def _as_users_run_it(request: pytest.FixtureRequest) -> Iterator[None]:
    """Games and deep agents run in JAX's own defaults, 32 bits and its usual promotion, as outside the tests."""
    if not _under(request, AS_USERS):
        yield
        return
    learns, before = "learns" in request.keywords, jax.config.values["jax_disable_most_optimizations"]
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        jax.config.update("jax_disable_most_optimizations", before and not learns)
        yield
        jax.config.update("jax_disable_most_optimizations", before)
