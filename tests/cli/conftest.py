"""Commands that train run as users run them; the others in the suite's strict numerics."""

from collections.abc import Iterator

import pytest
import training

TRAIN = ("test_train.py", "test_live.py", "test_refused.py", "test_explain.py", "test_doctor.py")


@pytest.fixture(autouse=True)
def _as_users(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.path.name not in TRAIN:
        yield
        return
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    with training.as_users():
        yield


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, int], int]:
    return training.counting(monkeypatch)
