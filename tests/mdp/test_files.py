"""Model files: what is written is read back; what is damaged, missing or foreign is refused in one line."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import dense, random_mdp

from highway_rl.mdp.files import load_mdp, save_mdp


def assert_same(a: Any, b: Any) -> None:
    a, b = a.sparse(), b.sparse()
    np.testing.assert_allclose(a.transition.toarray(), b.transition.toarray(), atol=1e-15)
    np.testing.assert_allclose(a.reward, b.reward, atol=1e-15)
    np.testing.assert_array_equal(a.discount, b.discount)


def refused(path: Any, *says: str, **options: Any) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        load_mdp(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    for part in says:
        assert part in message, message


@pytest.mark.parametrize("seed", range(5))
def test_saved_models_come_back(tmp_path: Path, seed: int) -> None:
    """Padded or sparse, with a discount per state and action: the same model."""
    mdp = random_mdp(seed, discount="per pair")
    for model in (mdp, mdp.sparse()):
        save_mdp(tmp_path / "model.npz", model)
        assert_same(load_mdp(tmp_path / "model.npz"), mdp)
    assert load_mdp(str(tmp_path / "model.npz"), discount=0.5).discount[0, 0] == 0.5


def test_dense_files(tmp_path: Path) -> None:
    """P, R and perhaps discount, as `numpy.savez` writes them; arguments fill in or replace."""
    mdp = random_mdp(1, discount=0.9)
    P, R, g = dense(mdp)
    file = tmp_path / "dense.npz"
    np.savez(file, P=P, R=R, discount=g)
    assert_same(load_mdp(file), mdp)
    np.savez(file, P=P, R=R)
    assert_same(load_mdp(file, discount=0.9), mdp)
    refused(file, "dense.npz", "discount is missing")
    np.savez(file, P=P)
    assert_same(load_mdp(file, reward=R, discount=0.9), mdp)
    refused(file, "dense.npz", "give P and R", discount=0.9)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
def test_scipy_files(tmp_path: Path, kind: str) -> None:
    """Rows (s,a) in one file or one file per action, with the rewards in every kind of reward file."""
    mdp = random_mdp(3, discount=0.9)
    P, R, _ = dense(mdp)
    S, A = R.shape
    rows = tmp_path / "rows.npz"
    sp.save_npz(rows, sp.coo_array(P.reshape(S * A, S)).asformat(kind))
    by_action = [tmp_path / f"action{a}.npz" for a in range(A)]
    for a, file in enumerate(by_action):
        sp.save_npz(file, sp.coo_matrix(P[:, a]).asformat(kind))
    np.save(tmp_path / "reward.npy", R)
    np.savez(tmp_path / "reward.npz", R=R)
    np.savetxt(tmp_path / "reward.csv", R, delimiter=",", fmt="%.17g")
    for reward in ("reward.npy", "reward.npz", "reward.csv"):
        assert_same(load_mdp(rows, tmp_path / reward, 0.9), mdp)
        assert_same(load_mdp(by_action, str(tmp_path / reward), 0.9), mdp)
    refused(rows, "rows.npz", "reward is missing", discount=0.9)
    refused(rows, "rows.npz", "discount is missing", reward=R)
    refused([*by_action, rows], f"P[{A}]", reward=R, discount=0.9) if A > 1 else None


def test_files_that_are_not_models(tmp_path: Path) -> None:
    """Missing, empty, foreign, of the wrong suffix, with other keys: the file and what to give are named."""
    refused(tmp_path / "none.npz", "none.npz is not there: give")
    refused(tmp_path, "give a model file that ends in .npz")
    refused([], "path is empty")
    (tmp_path / "empty.npz").touch()
    refused(tmp_path / "empty.npz", "empty.npz", "damaged or of another kind")
    (tmp_path / "text.npz").write_text("hello\nworld")
    refused(tmp_path / "text.npz", "text.npz", "damaged or of another kind")
    (tmp_path / "model.txt").touch()
    refused(tmp_path / "model.txt", "model.txt", ".npz")
    np.savez(tmp_path / "keys.npz", A=np.zeros(2), B=np.zeros(2))
    refused(tmp_path / "keys.npz", "keys.npz", "found A, B: give P and R")
    np.savez(tmp_path / "nothing.npz")
    refused(tmp_path / "nothing.npz", "found nothing")
    with open(tmp_path / "single.npz", "wb") as file:
        np.save(file, np.zeros(3))
    refused(tmp_path / "single.npz", "single.npz", "a single array")
    np.savez(tmp_path / "bad.npz", P=np.full((2, 1, 2), 0.4), R=np.zeros((2, 1)), discount=0.9)
    refused(tmp_path / "bad.npz", "bad.npz", "P at state 0, action 0 sums to 0.8")
    np.savez(tmp_path / "format.npz", format="xyz", shape=[2, 2], data=[1.0])
    refused(
        tmp_path / "format.npz",
        "format.npz",
        "unknown sparse format 'xyz': choose from csr",
        reward=[0, 0],
        discount=0.9,
    )
    np.savez(tmp_path / "csr.npz", format="csr", shape=[2, 2], data=[1.0, 1.0], indices=[0, 9], indptr=[0, 1, 2])
    refused(tmp_path / "csr.npz", "csr.npz", reward=[0, 0], discount=0.9)


def test_reward_files_that_are_none(tmp_path: Path) -> None:
    file = tmp_path / "dense.npz"
    np.savez(file, P=np.ones((1, 1, 1)), discount=0.9)
    for name, content in (("words.csv", "a,b"), ("empty.csv", ""), ("ragged.csv", "1,2\n3"), ("broken.npy", "x")):
        (tmp_path / name).write_text(content)
        refused(file, name, ": give", reward=tmp_path / name)
    refused(file, "reward.json", ".npy, .npz or .csv", reward=tmp_path / "reward.json")
    refused(file, "gone.csv is not there: give", reward=tmp_path / "gone.csv")
    np.savez(tmp_path / "two.npz", x=np.zeros(1), y=np.zeros(1))
    refused(file, "two.npz", "give one array, or R", reward=tmp_path / "two.npz")


class Trap:
    """Unpickling one of these would create a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (self.path, "w"))


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    """Neither a bare pickle nor an array of objects is unpickled: the trap inside does not go off."""
    sprung = tmp_path / "sprung"
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Trap(str(sprung))))
    refused(tmp_path / "pickle.npz", "pickle.npz", "damaged or of another kind")
    P = np.empty((1,), object)
    P[0] = Trap(str(sprung))
    with open(tmp_path / "objects.npz", "wb") as file:
        np.savez(file, P=P, R=np.zeros(1))
    opened = sprung.exists()
    refused(tmp_path / "objects.npz", "objects.npz", "damaged or of another kind")
    assert sprung.exists() == opened is False


def test_writing_where_it_cannot(tmp_path: Path) -> None:
    mdp = random_mdp(0)
    for path, says in (
        (tmp_path / "model.json", ".npz"),
        (tmp_path / "no" / "such" / "model.npz", "cannot be written"),
    ):
        with pytest.raises(ValueError, match=says) as caught:
            save_mdp(path, mdp)
        assert "\n" not in str(caught.value)


@settings(max_examples=300, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 255), st.booleans())
def test_damaged_files(tmp_path_factory: pytest.TempPathFactory, seed: int, where: int, byte: int, cut: bool) -> None:
    """Truncated anywhere or with any byte changed: refused in one line, or (an unused byte) still the same model."""
    folder = tmp_path_factory.getbasetemp()
    mdp = random_mdp(seed % 3, discount=0.9)
    good, bad = folder / "good.npz", folder / "damaged.npz"
    save_mdp(good, mdp)
    content = bytearray(good.read_bytes())
    if cut:
        content = content[: where % len(content)]
    else:
        content[where % len(content)] = byte
    bad.write_bytes(content)
    message, loaded = "", None
    try:
        loaded = load_mdp(bad)
    except ValueError as error:
        message = str(error)
    assert "\n" not in message
    if loaded is None:
        assert "damaged.npz" in message
    else:
        assert_same(loaded, mdp)
