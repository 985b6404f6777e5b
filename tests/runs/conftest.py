"""What tests of training runs share: one real run that nobody disturbed, and a fake that only counts."""

from pathlib import Path

import pytest
import training

from highway_rl import runs


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, int], int]:
    return training.counting(monkeypatch)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[runs.Trained, Path]:
    """One uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    with training.as_users():
        return runs.fit(training.CONFIG, out), out
