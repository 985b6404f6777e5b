"""Models on disk: NumPy and SciPy files, never pickles.

    .npz with P[s,a,s'], R and perhaps discount      what `numpy.savez` of the dense arrays writes
    .npz of `save_mdp`                               the CSR rows (s,a), rewards and discounts of any model
    .npz of `scipy.sparse.save_npz`                  rows (s,a), or several files, one per action, with a reward file

A reward file is `.npy`, `.npz` (one array, or `R` or `reward`; or sparse) or `.csv`.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from highway_rl import checks
from highway_rl.mdp.model import MDP, SparseMDP

OWN_KEYS = ("reward", "discount", "data", "indices", "indptr")
LAYOUTS = "P and R (dense), the arrays of save_mdp, or a matrix of scipy.sparse.save_npz"
# what numpy.load and zipfile raise on files that are not theirs
DAMAGED = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    zipfile.BadZipFile,
    zlib.error,
)

PathLike = str | Path


def save_mdp(path: PathLike, mdp: MDP | SparseMDP) -> None:
    """Write any model to one `.npz`, to be read back by `load_mdp`."""
    file = Path(path)
    if file.suffix != ".npz":
        raise ValueError(f"{file}: give a file name that ends in .npz")
    model = mdp.sparse()
    P = model.transition
    try:
        np.savez_compressed(
            file, reward=model.reward, discount=model.discount, data=P.data, indices=P.indices, indptr=P.indptr
        )
    except OSError as error:
        raise ValueError(f"{file} cannot be written ({checks.one_line(error)}): give another path") from None


def load_mdp(path: PathLike | Sequence[PathLike], reward: Any = None, discount: Any = None) -> MDP | SparseMDP:
    """Read a model; `reward` (an array or a file) and `discount` fill in or replace what the file holds.

    Several paths are one sparse matrix [s,s'] per action, in the order of the actions.
    """
    files = [Path(path)] if isinstance(path, str | Path) else [Path(p) for p in path]
    if not files:
        raise ValueError("path is empty: give a model file, or one sparse matrix file per action")
    found = [_arrays(file) for file in files]
    named = ", ".join(str(file) for file in files)
    R = _reward(Path(reward)) if isinstance(reward, str | Path) else reward
    try:
        if len(found) == 1 and {"P", "R"} <= found[0].keys() | ({"R"} if R is not None else set()):
            return MDP.from_dense(
                found[0]["P"],
                found[0]["R"] if R is None else R,
                _given("discount", discount, found[0].get("discount"), "discount"),
            )
        if len(found) == 1 and found[0].keys() >= set(OWN_KEYS):
            own = found[0]
            shape = (len(own["indptr"]) - 1, len(own["reward"]))
            P = _compressed("csr", own["data"], own["indices"], own["indptr"], shape)
            return MDP.from_scipy(
                P, own["reward"] if R is None else R, own["discount"] if discount is None else discount
            )
        matrices = [_sparse(arrays) for arrays in found]
        R = _given("reward", R, None, "a sparse matrix file holds transitions only: reward")
        discount = _given("discount", discount, None, "discount")
        return MDP.from_scipy(matrices[0] if len(matrices) == 1 else matrices, R, discount)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise ValueError(f"{named}: {checks.one_line(error)}") from None


def _given(name: str, value: Any, stored: Any, what: str) -> Any:
    if value is None and stored is None:
        raise ValueError(f"{what} is missing: give {name}=..., on the command line --{name}")
    return stored if value is None else value


def _arrays(file: Path) -> dict[str, np.ndarray]:
    """All arrays of an `.npz` file."""
    if file.suffix != ".npz":
        raise ValueError(f"{file}: give a model file that ends in .npz")
    loaded = _load(file)
    if isinstance(loaded, np.ndarray):
        raise ValueError(f"{file} holds a single array: give an .npz archive with {LAYOUTS}")
    return loaded


def _missing(file: Path) -> ValueError:
    return ValueError(f"{file} is {'not a file' if file.exists() else 'not there'}: give the path of a file")


def _load(file: Path) -> Any:
    if not file.is_file():
        raise _missing(file)
    try:
        with open(file, "rb") as stream:
            if not stream.read(6).startswith((b"PK", b"\x93NUMPY")):
                raise zipfile.BadZipFile("neither an archive nor an array")
            stream.seek(0)
            loaded = np.load(stream, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except DAMAGED as error:
        raise ValueError(
            f"{file} is damaged or of another kind ({checks.one_line(error)}): give plain NumPy arrays"
        ) from None


def _sparse(arrays: dict[str, np.ndarray]) -> Any:
    """A matrix that `scipy.sparse.save_npz` wrote."""
    if not {"format", "shape", "data"} <= arrays.keys():
        raise ValueError(f"found {', '.join(arrays) or 'nothing'}: give {LAYOUTS}")
    kind = arrays["format"].item()
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    shape = tuple(int(n) for n in arrays["shape"].ravel())
    if kind in ("csr", "csc", "bsr"):
        return _compressed(kind, arrays["data"], arrays["indices"], arrays["indptr"], shape)
    if kind == "coo":
        coordinates = arrays["coords"] if "coords" in arrays else (arrays["row"], arrays["col"])
        return sp.coo_array((arrays["data"], tuple(coordinates)), shape=shape)
    if kind == "dia":
        return sp.dia_array((arrays["data"], arrays["offsets"]), shape=shape)
    raise checks.unknown("sparse format", kind, ("csr", "csc", "bsr", "coo", "dia"))


def _compressed(kind: str, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, ...]) -> Any:
    for name, array in (("indices", indices), ("indptr", indptr)):
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise ValueError(f"{name} has dtype {array.dtype} and shape {array.shape}: give a row of whole numbers")
    build = {"csr": sp.csr_array, "csc": sp.csc_array, "bsr": sp.bsr_array}[kind]
    return build((data, indices, indptr), shape=shape)


def _reward(file: Path) -> Any:
    if file.suffix not in (".npy", ".npz", ".csv"):
        raise ValueError(f"{file}: give a reward file that ends in .npy, .npz or .csv")
    if file.suffix == ".csv":
        if not file.is_file():
            raise _missing(file)
        try:
            rows = [line.split(",") for line in file.read_text("utf-8").splitlines() if line.strip()]
            table = np.array([[float(x) for x in row] for row in rows])
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{file} is no table of numbers ({checks.one_line(error)}): give rows with commas between"
            ) from None
        if table.size == 0:
            raise ValueError(f"{file} is empty: give rows of numbers")
        return table[:, 0] if table.shape[1] == 1 else table
    loaded = _load(file)
    if isinstance(loaded, np.ndarray):
        return loaded
    for name in ("R", "reward"):
        if name in loaded:
            return loaded[name]
    if len(loaded) == 1:
        return next(iter(loaded.values()))
    try:
        return _sparse(loaded)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{file} holds no reward ({checks.one_line(error)}): give one array, or R, or reward"
        ) from None
