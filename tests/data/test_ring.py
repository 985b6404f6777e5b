"""The ring against a plain list."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from highway_rl.data import ring as stores


def block(rng, count, start):
    """Random steps whose reward is their number."""
    number = np.arange(start, start + count)
    terminated = rng.random(count) < 0.1
    truncated = ~terminated & (rng.random(count) < 0.15)
    obs = (number % 251).astype(np.uint8)[:, None]
    rows = stores.Rows(
        obs=jnp.asarray(obs),
        action=jnp.asarray(number % 3, jnp.int32),
        reward=jnp.asarray(number, jnp.float32),
        terminated=jnp.asarray(terminated),
        behaviour=jnp.full(count, 0.5, jnp.float32),
        policy=jnp.asarray(number // 10, jnp.int32),
        born=jnp.asarray(number, jnp.int32),
        real=jnp.ones(count, bool),
    )
    return rows, jnp.asarray(truncated), jnp.asarray(obs + 1)


@pytest.mark.parametrize(("capacity", "count"), [(40, 7), (23, 7), (10, 7), (5, 7)])
def test_ring_against_a_list(capacity, count):
    """After any number of blocks the ring holds the newest rows of a list that was never cut."""
    rng = np.random.default_rng(capacity)
    store = stores.empty(capacity, jnp.zeros(1, jnp.uint8))
    add = jax.jit(stores.add)
    told = []  # (obs, reward, real, terminated)
    for i in range(9):
        rows, truncated, successor = block(rng, count, i * count)
        current = jnp.full(1, ((i + 1) * count) % 251, jnp.uint8)
        store = add(store, rows, truncated, successor, current)
        for t in range(count):
            told.append((int(rows.obs[t, 0]), float(rows.reward[t]), True, bool(rows.terminated[t])))
            if truncated[t]:
                told.append((int(successor[t, 0]), None, False, None))
        now = [*told, (int(current[0]), None, False, None)]
        found = stores.in_order(store, store.rows)
        kept = now[-(capacity + 1) :]
        offset = capacity + 1 - len(kept)
        assert not np.asarray(found.real)[:offset].any()
        for j, (obs, reward, real, terminated) in enumerate(kept):
            assert int(found.obs[offset + j, 0]) == obs
            assert bool(found.real[offset + j]) == real
            if real:
                assert float(found.reward[offset + j]) == reward
                assert bool(found.terminated[offset + j]) == terminated


def test_in_slots_undoes_in_order():
    store = stores.empty(11, jnp.zeros(1, jnp.uint8))
    store = stores.Store(store.rows, jnp.int32(7))
    x = jnp.arange(12)
    np.testing.assert_array_equal(stores.in_slots(store, stores.in_order(store, x)), x)
    assert stores.in_order(store, x)[-1] == 7


def test_pick_takes_real_rows_alike():
    """Only real rows, each as often as any other."""
    real = jnp.asarray(np.random.default_rng(0).random(60) < 0.7)
    draws = jax.random.uniform(jax.random.key(0), (60_000,))
    rows = np.asarray(stores.pick(real, draws))
    assert np.asarray(real)[rows].all()
    counts = np.bincount(rows, minlength=60)[np.asarray(real)]
    expected = 60_000 / counts.size
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


def test_paths_are_cut_where_the_next_row_was_not_acted_on():
    rows = stores.empty(5, jnp.zeros(1, jnp.uint8)).rows
    real = jnp.asarray([True, True, False, True, True, False])
    terminated = jnp.asarray([False, False, False, True, False, False])
    data = stores.trajectory(dataclasses.replace(rows, real=real, terminated=terminated), 0.9)
    np.testing.assert_array_equal(np.asarray(data.last)[real], [False, True, True, True])
    np.testing.assert_allclose(data.discount, [0.9, 0.9, 0.9, 0.0, 0.9, 0.9], rtol=1e-6)


def test_a_repeated_ring_is_full_of_its_first_rows():
    store = stores.empty(7, jnp.zeros(1, jnp.uint8))
    rows = dataclasses.replace(store.rows, reward=jnp.arange(8.0), real=jnp.arange(8) < 3)
    full = stores.repeated(stores.Store(rows, jnp.int32(3)), 3)
    np.testing.assert_array_equal(full.rows.reward, [0, 1, 2, 0, 1, 2, 0, 1])
    np.testing.assert_array_equal(stores.in_order(full, full.rows.real), [True] * 7 + [False])
