"""Three tasks that keep books and pay once, at the end: a year's inventory, a machine to maintain, a harvest.

What was earned so far stands in the observation, so that it is Markov though no reward tells it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from highway_rl import checks
from highway_rl.types import Env, Spec, Step, record


def hot(index: Array, size: int) -> Bool[Array, " n"]:
    """Which of `size` places is the index; none, if it is outside."""
    return index == jnp.arange(size, dtype=jnp.int32)


def _vector(bits: Array, *numbers: Array) -> Array:
    """Bits and numbers as one float32 vector."""
    return jnp.concatenate([bits.astype(jnp.float32), jnp.stack(numbers).astype(jnp.float32)])


@record
class Shop:
    """Units in stock, the week, and the profit so far."""

    stock: Array
    week: Array
    books: Array


CAPACITY, CUSTOMERS, BUYS = 8, 4, 0.25
PRICE, COST, ORDER, HOLD = 5.0, 2.0, 1.0, 0.25
WEEKLY = 2.0  # about what the best policy earns in a week


def inventory_year(weeks: int = 26) -> Env:
    """Order 0 to 4 units each week, under random demand. Late: the profit of all weeks is paid as one sum at the end.

    Orders arrive at once, cost 2 a unit and 1 on top, and what does not fit into 8 places is lost. Four customers buy a
    unit at 5 each with probability ¼, as long as there is one; each unit left over costs 0.25 a week to hold, and at
    the end is worth nothing. The sum is divided by 2·weeks, about what the best policy earns: with V₀ = 0,

        Vₜ(s) = maxₐ E[5·sold − 2·a − 1{a > 0} − left/4 + Vₜ₋₁(left)],  sold = min(demand, min(s + a, 8)),
        left = min(s + a, 8) − sold,  and the optimal return is V_weeks(0)/(2·weeks)

    1.021 by default, −0.666 for random play. Observation: one-hot stock, week/weeks, the books on the scale of the pay.
    """
    weeks = checks.whole("weeks", weeks, 1, 10**4)
    scale = WEEKLY * weeks

    def observe(state: Shop) -> Array:
        return _vector(hot(state.stock, CAPACITY + 1), state.week.astype(jnp.float32) / weeks, state.books / scale)

    def reset(key: PRNGKeyArray) -> tuple[Shop, Array]:
        del key
        state = Shop(jnp.int32(0), jnp.int32(0), jnp.float32(0))
        return state, observe(state)

    def step(state: Shop, action: Array, key: PRNGKeyArray) -> Step:
        order = jnp.asarray(action, jnp.int32)
        had = jnp.minimum(state.stock + order, CAPACITY)
        sold = jnp.minimum(had, jax.random.bernoulli(key, BUYS, (CUSTOMERS,)).sum(dtype=jnp.int32))
        left = had - sold
        amounts = jnp.stack([sold, order, jnp.minimum(order, 1), left]).astype(jnp.float32)
        profit = amounts @ jnp.array([PRICE, -COST, -ORDER, -HOLD], jnp.float32)
        new = Shop(left, state.week + 1, state.books + profit)
        over = new.week >= weeks
        return Step(new, observe(new), jnp.where(over, new.books / scale, 0.0), over, jnp.zeros_like(over))

    shape = jax.ShapeDtypeStruct((CAPACITY + 3,), jnp.float32)
    return Env(Spec(f"inventory-year-{weeks}", shape, 5, horizon=weeks), reset, step)


@record
class Machine:
    """The wear, for how many more days it stands still, the day, and what it made so far."""

    wear: Array
    still: Array
    day: Array
    made: Array


WEAR, FAILS, WEARS = 5, 0.08, 0.5
SERVICED, REPAIR = 2, 4
DAILY = 0.7  # about what the best policy makes in a day


def maintenance(days: int = 60) -> Env:
    """Run (0), service (1) or replace (2) a machine each day. Late: all it made is paid as one sum at the end.

    A day's run fails with probability 0.08·wear, makes nothing then and is followed by four days of repair that leave
    the wear as it was; else it makes 1, and the wear, 0 to 5, grows by one with probability ½. A service takes the day
    and two levels of wear, a replacement today and tomorrow and all wear. While the machine stands still, actions
    change nothing. The sum is divided by 0.7·days, about what the best policy makes.

    Optimal return, by backward induction over (wear, days still): 0.995 by default; random play: 0.345. Observation:
    one-hot wear, one-hot days still, day/days, made on the scale of the pay.
    """
    days = checks.whole("days", days, 1, 10**4)
    scale = DAILY * days

    def observe(state: Machine) -> Array:
        bits = jnp.concatenate([hot(state.wear, WEAR + 1), hot(state.still, REPAIR + 1)])
        return _vector(bits, state.day.astype(jnp.float32) / days, state.made.astype(jnp.float32) / scale)

    def reset(key: PRNGKeyArray) -> tuple[Machine, Array]:
        del key
        state = Machine(jnp.int32(0), jnp.int32(0), jnp.int32(0), jnp.int32(0))
        return state, observe(state)

    def step(state: Machine, action: Array, key: PRNGKeyArray) -> Step:
        fate, worn = jax.random.uniform(key, (2,), jnp.float32)
        able = state.still == 0
        run, service, replace = (able & (action == choice) for choice in range(3))
        broke = run & (fate < FAILS * state.wear.astype(jnp.float32))
        ran = run & ~broke
        used = jnp.minimum(state.wear + (worn < WEARS).astype(jnp.int32), WEAR)
        wear = jnp.where(ran, used, jnp.where(service, jnp.maximum(state.wear - SERVICED, 0), state.wear))
        still = jnp.where(broke, REPAIR, jnp.where(replace, 1, jnp.maximum(state.still - 1, 0)))
        new = Machine(jnp.where(replace, 0, wear), still, state.day + 1, state.made + ran.astype(jnp.int32))
        over = new.day >= days
        paid = jnp.where(over, new.made.astype(jnp.float32) / scale, 0.0)
        return Step(new, observe(new), paid, over, jnp.zeros_like(over))

    shape = jax.ShapeDtypeStruct((WEAR + REPAIR + 4,), jnp.float32)
    return Env(Spec(f"maintenance-{days}", shape, 3, horizon=days), reset, step)


@record
class Farm:
    """The season, how often was sown, and what lies in the barn."""

    season: Array
    sown: Array
    barn: Array


GROWTH, REAPED = 1.3, 4  # m·1.3^−m is greatest at m = 4


def harvest(seasons: int = 20) -> Env:
    """Sow the crop (1), or bring it in (0). Late: what lies in the barn is paid at the end.

    The field bears 1.3ᵏ after it was sown k times. A season's crop goes either into the ground, which gives nothing to
    the barn, or into the barn. Whoever sows k seasons and then brings in the rest gets 1.3ᵏ·(seasons − k), which is
    greatest, and by nothing else matched, where the last 4 seasons are brought in. The pay is divided by that.

    Optimal return: 1. Random play: ½·(1.15ⁿ − 1)/0.15 / (4·1.3ⁿ⁻⁴), n = seasons, 0.192 by default. Observation:
    season/seasons, sown/seasons, and the field and the barn on the scale of the pay.
    """
    seasons = checks.whole("seasons", seasons, REAPED, 200)
    scale = REAPED * GROWTH ** (seasons - REAPED)

    def observe(state: Farm) -> Array:
        times = jnp.stack([state.season, state.sown]).astype(jnp.float32) / seasons
        return _vector(times, field(state) / scale, state.barn / scale)

    def field(state: Farm) -> Array:
        return jnp.float32(GROWTH) ** state.sown.astype(jnp.float32)

    def reset(key: PRNGKeyArray) -> tuple[Farm, Array]:
        del key
        state = Farm(jnp.int32(0), jnp.int32(0), jnp.float32(0))
        return state, observe(state)

    def step(state: Farm, action: Array, key: PRNGKeyArray) -> Step:
        del key
        sows = action == 1
        barn = state.barn + jnp.where(sows, 0.0, field(state))
        new = Farm(state.season + 1, state.sown + sows.astype(jnp.int32), barn)
        over = new.season >= seasons
        return Step(new, observe(new), jnp.where(over, barn / scale, 0.0), over, jnp.zeros_like(over))

    shape = jax.ShapeDtypeStruct((4,), jnp.float32)
    return Env(Spec(f"harvest-{seasons}", shape, 2, horizon=seasons), reset, step)
