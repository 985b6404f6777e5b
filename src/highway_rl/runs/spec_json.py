"""What an agent knows of its environment, as JSON: trees of shapes and types, and back.

array           {"shape": [4], "dtype": "float32"}
dict            {"dict": [["key", …], …]}
tuple, list     {"tuple": […]}, {"list": […]}
named tuple or record                 {"class": "module:Name", "fields": {"name": …}}
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from highway_rl import checks, registry
from highway_rl.types import Spec


def spec_to_json(spec: Spec) -> dict[str, Any]:
    """A spec as JSON holds it."""
    found = {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec)}
    return found | {"observation": tree_to_json(spec.observation)}


def spec_from_json(found: dict[str, Any], imports: Collection[str] = ()) -> Spec:
    """The spec that `spec_to_json` wrote. Classes are those of highway_rl and of the modules in `imports`."""
    spec = Spec(**{**found, "observation": tree_from_json(found["observation"], imports)})
    checks.whole("num_actions", spec.num_actions, 1)
    if not isinstance(spec.name, str):
        raise checks.refusal("name", spec.name, "the name of an environment")
    if spec.discount is not None:
        checks.number("discount", spec.discount, 0, 1)
    if spec.horizon is not None:
        checks.whole("horizon", spec.horizon, 1)
    return spec


def tree_to_json(tree: PyTree) -> dict[str, Any]:
    """A tree of shapes and types as JSON holds it."""
    if hasattr(tree, "shape") and hasattr(tree, "dtype"):
        return {"shape": [int(n) for n in tree.shape], "dtype": jnp.dtype(tree.dtype).name}
    if type(tree) is dict and all(isinstance(key, str | int) for key in tree):
        return {"dict": [[key, tree_to_json(part)] for key, part in tree.items()]}
    if type(tree) in (tuple, list):
        return {type(tree).__name__: [tree_to_json(part) for part in tree]}
    names = field_names(type(tree))
    if not names:
        raise ValueError(
            f"observation holds a {type(tree).__name__}: give a tree of dicts, tuples, lists, named tuples or records"
        )
    kind = f"{type(tree).__module__}:{type(tree).__qualname__}"
    return {"class": kind, "fields": {name: tree_to_json(getattr(tree, name)) for name in names}}


def tree_from_json(found: dict[str, Any], imports: Collection[str] = ()) -> PyTree:
    """The tree that `tree_to_json` wrote."""
    again = lambda part: tree_from_json(part, imports)  # noqa: E731
    if "dtype" in found:
        shape = tuple(checks.whole("shape", n, 0) for n in found["shape"])
        return jax.ShapeDtypeStruct(shape, jnp.dtype(found["dtype"]))
    if "dict" in found:
        return {key: again(part) for key, part in found["dict"]}
    if "class" in found:
        fields = {name: again(part) for name, part in found["fields"].items()}
        return _class(found["class"], list(fields), imports)(**fields)
    return tuple(map(again, found["tuple"])) if "tuple" in found else [again(part) for part in found["list"]]


def field_names(kind: Any) -> list[str]:
    """The fields of a named tuple or a record; none of anything else."""
    if not isinstance(kind, type):
        return []
    if issubclass(kind, tuple):
        return list(getattr(kind, "_fields", ()))
    return [f.name for f in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []


def _class(name: str, fields: list[str], imports: Collection[str]) -> Any:
    module = name.partition(":")[0]
    known = module.split(".")[0] == "highway_rl" or module in imports or module in sys.modules
    found: Any = registry.imported(name) if known else None
    if field_names(found) != fields:
        raise ValueError(
            f"observation is a {name}, which is not here with fields {', '.join(fields)}: call `import {module}` first"
        )
    return found
