"""One episode as training sees it: the returns the gate compared at every step, which won, and what really followed.

episode ──rows of a store──> dqn.targets, the code of every refresh ──> Explained: rows, a table, a picture
"""

from __future__ import annotations

import collections
import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from highway_rl.core.backup import TO_END, Backup
from highway_rl.core.lookahead import lookahead
from highway_rl.core.targets import TargetRule
from highway_rl.data import ring
from highway_rl.data.codec import codec_of
from highway_rl.data.ring import Rows
from highway_rl.deep import dqn
from highway_rl.deep.dqn import DQN
from highway_rl.deep.grouping import Group, hash_rows
from highway_rl.deep.scales import in_units, unit_of
from highway_rl.records import episode as picture
from highway_rl.runs.episode import Episode
from highway_rl.types import AnyArray, Spec


class Told(NamedTuple):
    """What is computed of each row: Q, the returns of the rule's depths and the one its gate compares with, the 1-step
    return, the target, and the discounted rewards that followed."""

    q: Float[AnyArray, "t a"]
    returns: Float[AnyArray, "t n"]
    reference: Float[AnyArray, "t"]
    one_step: Float[AnyArray, "t"]
    target: Float[AnyArray, "t"]
    followed: Float[AnyArray, "t"]


@dataclasses.dataclass(frozen=True, repr=False)
class Explained:
    """An episode, explained. `rows` has a dict a step:

    step, action, reward     what was done and what came of it
    value, q                 max Q(s,·) and Q(s,a)
    one_step                 the 1-step return
    return_1, return_end, …  the return of each depth of the agent's rule
    reference                the return that its gate compares with, or would if there were one
    won                      which of these is the largest; ties go to the reference
    target                   what Q(s,a) would be moved to
    followed                 the discounted rewards that really followed, up to the last step
    """

    title: str
    rows: list[dict[str, Any]]
    depths: tuple[int, ...]
    gate_depth: int | None
    discount: float
    terminated: bool

    def __repr__(self) -> str:
        return f"<{self.title}>"

    def __str__(self) -> str:
        return self.table()

    @property
    def won(self) -> dict[str, int]:
        """At how many steps each return won."""
        return dict(collections.Counter(row["won"] for row in self.rows).most_common())

    def table(self) -> str:
        """A line a step, and what the columns mean."""
        from rich.box import SIMPLE
        from rich.console import Console
        from rich.table import Table

        shown = {"step": "step", "action": "action", "reward": "reward", "value": "max Q", "q": "Q(s,a)"}
        shown |= {column: name for name, column in self._returns.items()}
        shown |= {name: name for name in ("won", "target", "followed")}
        table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
        for title in shown.values():
            table.add_column(title, justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(*(_cell(row[name]) for name in shown))
        text = io.StringIO()
        Console(file=text, width=20 * len(shown), color_system=None).print(table)
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        return "\n".join([self.title, "", *lines, "", *self._notes()])

    def _notes(self) -> list[str]:
        counts = ", ".join(f"{name} {count}" for name, count in self.won.items())
        gate = f"the gate compares with {named(self.gate_depth)}" if self.gate_depth is not None else "there is no gate"
        cut = "" if self.terminated else "; the episode was cut off, so this is not all"
        return [
            f"won: the largest return, at how many steps: {counts}; {gate}",
            f"followed: the rewards that came, discounted by {self.discount:g}{cut}",
        ]

    def plot(self, path: Path | str) -> Path:
        """The same as a picture, a PNG."""
        rivals = list(dict.fromkeys([named(_compared(self.gate_depth)), *map(named, self.depths)]))
        return picture.draw(self.rows, self._returns, rivals, self.title, Path(path))

    @property
    def _returns(self) -> dict[str, str]:
        """The name of each return, and its column: first the 1-step one, then what the gate compares with."""
        found = {named(1): "one_step"}
        if self.gate_depth:
            found.setdefault(named(self.gate_depth), "reference")
        return found | {named(n): f"return_{short(n)}" for n in self.depths if named(n) not in found}


def teller(agent: DQN, spec: Spec, step: int) -> Callable[[PyTree, Episode, Bool[Array, "t"]], Told]:
    """(params, episode, real) → what training would make of these rows, of which those that are not real end paths.

    An agent keeps its newest networks only, so a rule that doubles has them choose and price.
    """
    rule = rule_of(agent)
    single = dataclasses.replace(rule, backup=Backup((1,), gate_depth=None))

    def tell(params: PyTree, episode: Episode, real: Bool[Array, "t"]) -> Told:
        coded = jax.vmap(codec_of(spec).encode)(episode.obs)
        none = jnp.zeros(real.shape, jnp.int32)
        did: dict[str, Any] = episode._replace(obs=coded)._asdict()
        data = ring.trajectory(Rows(**did, policy=none, born=none, real=real), agent.discount)
        q, averages = dqn.split_heads(agent, spec, dqn.prepared(agent, spec, params)(episode.obs))
        more: dict[str, Any] = {"newer_q": q if dqn.doubles(rule) else None, "averages": averages}
        if agent.num_policies > 1:
            more |= {"group": Group(hash_rows(coded), none, real), "key": jax.random.key(0)}
        unit = unit_of(dqn.network(agent, spec, jax.tree.map(lambda x: x[0], params)))
        found = dqn.targets(agent, in_units(rule, unit), data, q, step, **more)
        one = dqn.targets(agent, single, data, q, step, **more | {"averages": None})
        end = lookahead(data.reward, data.discount, data.last, (TO_END,))[0]
        return Told(q, found.returns, found.reference, one.target, found.target, end.reward)

    return tell


def rule_of(agent: DQN) -> TargetRule:
    """The rule that counts among those of an agent."""
    return agent.rules[int(agent.which)]


def explained(tell: Any, agent: DQN, params: PyTree, episode: Episode, title: str) -> Explained:
    """The episode with what was computed of it, by a compiled `teller`. Rows are filled up to a power of two, so that
    episodes of many lengths share few programs."""
    count = len(episode.action)
    room = 1 << count.bit_length()
    filled = jax.tree.map(lambda x: np.concatenate([x, np.repeat(x[-1:], room - len(x), axis=0)]), episode)
    told = Told(*(x[:count] for x in jax.device_get(tell(params, filled, np.arange(room) < count))))
    backup = rule_of(agent).backup
    rows = [_row(i, episode, told, backup) for i in range(count)]
    ended = bool(episode.terminated[-1])
    return Explained(title, rows, backup.depths, backup.gate_depth, float(agent.discount), ended)


def _row(i: int, episode: Episode, told: Told, backup: Backup) -> dict[str, Any]:
    action = int(episode.action[i])
    best = int(told.returns[i].argmax())
    won = backup.depths[best] if told.returns[i, best] > told.reference[i] else _compared(backup.gate_depth)
    row: dict[str, Any] = {"step": i, "action": action, "reward": float(episode.reward[i])}
    row |= {"value": float(told.q[i].max()), "q": float(told.q[i, action]), "one_step": float(told.one_step[i])}
    row |= {f"return_{short(n)}": float(x) for n, x in zip(backup.depths, told.returns[i], strict=True)}
    row |= {"reference": float(told.reference[i]), "won": named(won)}
    return row | {"target": float(told.target[i]), "followed": float(told.followed[i])}


def _compared(gate_depth: int | None) -> int:
    """The depth of the return that a gate compares with, or would."""
    return 1 if gate_depth is None else gate_depth


def short(depth: int) -> str:
    return "end" if depth == TO_END else str(depth)


def named(depth: int) -> str:
    """A return in words."""
    return "to the end" if depth == TO_END else f"{depth}-step" if depth else "Q(s,a)"


def _cell(value: Any) -> str:
    return f"{value + 0.0:.4g}" if isinstance(value, float) else str(value)  # no -0
