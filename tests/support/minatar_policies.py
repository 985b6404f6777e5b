"""Policies for the original games: random play, and scripted play good enough to reach the rare states.

They look at the original's own variables. `Notice` names the rare events of a step, for the tests to count.
"""

from __future__ import annotations

import copy

import numpy as np

NONE, LEFT, UP, RIGHT, DOWN, FIRE = range(6)


def random_policy(seed):
    source = np.random.RandomState(seed)
    return lambda env: int(source.randint(6))


class Notice:
    """Compares a step's variables with those of the step before and names what was rare about it."""

    def __init__(self, game):
        self.look = getattr(self, game)
        self.before = None

    def __call__(self, env, reward):
        now, events = self.look(env, reward)
        self.before = now
        return [name for name, happened in events.items() if happened]

    def breakout(self, env, reward):
        bricks = int(np.count_nonzero(env.brick_map))
        more = self.before is not None and bricks > self.before
        return bricks, {"brick": reward, "new rows": more, "passes a second brick": env.strike and not reward}

    def freeway(self, env, reward):
        fell = self.before is not None and self.before < 9 and env.pos == 9 and not reward
        return env.pos, {"crossing": reward, "hit by a car": fell, "last step": env.terminal}

    def asterix(self, env, reward):
        full = all(entity is not None for entity in env.entities)
        return None, {
            "gold": reward,
            "enemy": env.terminal,
            "top spawn rate": env.spawn_speed == 1,
            "top speed": env.move_speed == 1,
            "all rows taken": full,
        }

    def space_invaders(self, env, reward):
        aliens = int(np.count_nonzero(env.alien_map))
        cleared = self.before is not None and aliens > self.before
        low = int(np.max(np.where(np.any(env.alien_map, axis=1)))) if aliens else 0
        return aliens, {
            "kill": reward,
            "two kills in a step": reward > 1,
            "wave cleared": cleared,
            "fastest wave": env.enemy_move_interval == 6,
            "one alien left": aliens == 1,
            "aliens at the bottom": low == 9,
            "end": env.terminal,
        }

    def seaquest(self, env, reward):
        enemies = len(env.e_fish) + len(env.e_subs)
        surfaced = self.before is not None and env.sub_y == 0 and self.before[0] > 0 and env.surface
        return (env.sub_y, env.diver_count), {
            "reward": reward,
            "surfaced": surfaced,
            "surfaced with six divers": surfaced and self.before[1] == 6,
            "surfaced with a negative count": surfaced and self.before[1] < 0,
            "six divers": env.diver_count == 6,
            "top spawn rate": env.e_spawn_speed == 1,
            "top speed": env.move_speed == 2,
            "ten enemies": enemies >= 10,
            "enemy bullet": len(env.e_bullets) > 0,
            "two divers": len(env.divers) > 1,
            "out of oxygen": env.terminal and env.oxygen < 0,
            "surfaced without a diver": env.terminal and env.sub_y == 0 and env.diver_count == 0,
        }


def breakout(seed):
    """Follows the ball to where it will come down, and catches it by the middle or by the edge as the dice say."""
    source = np.random.RandomState(seed)
    plan = {"edge": False, "descending": False}

    def landing(env):
        steps = {0: (-1, -1), 1: (1, -1), 2: (1, 1), 3: (-1, 1)}
        x, y, (dx, dy), bricks, strike = env.ball_x, env.ball_y, steps[env.ball_dir], env.brick_map.copy(), env.strike
        for _ in range(60):
            nx, ny = x + dx, y + dy
            if not 0 <= nx <= 9:
                nx, dx = min(max(nx, 0), 9), -dx
            if ny < 0:
                ny, dy, strike = 0, -dy, False
            elif bricks[ny, nx]:
                if not strike:
                    bricks[ny, nx], ny, dy = 0, y, -dy
                strike = True
            elif ny == 9:
                return x, nx
            else:
                strike = False
            x, y = nx, ny
        return x, x

    def act(env):
        descending = env.ball_dir in (2, 3)
        if descending and not plan["descending"]:
            plan["edge"] = source.rand() < 0.4
        plan["descending"] = descending
        target = landing(env)[plan["edge"]]
        return LEFT if env.pos > target else RIGHT if env.pos < target else NONE

    return act


def freeway(seed):
    """Goes up unless a car is about to be in the way; now and then walks into it."""
    source = np.random.RandomState(seed)

    def act(env):
        row = env.pos - 1
        if 1 <= row <= 8 and source.rand() < 0.9:
            x, _, wait, speed = env.cars[row - 1]
            ahead = (4 - x) * (1 if speed > 0 else -1) % 10
            if x == 4 or (ahead == 1 and wait <= 2):
                return NONE
        return UP if source.rand() < 0.95 else DOWN

    return act


def reachable(cells):
    """The cells from which one move, or none, leads into the given cells."""
    padded = np.pad(cells, 1)
    return padded[1:-1, 1:-1] | padded[:-2, 1:-1] | padded[2:, 1:-1] | padded[1:-1, :-2] | padded[1:-1, 2:]


def survivable(dangers, walkable):
    """The cells one may step on now and still have a way through the dangers of the coming steps."""
    safe = walkable.copy()
    for danger in reversed(dangers):
        safe = ~danger & walkable & reachable(safe)
    return safe


def walk_dangers(things, steps):
    """For each coming step the cells met by things given as (x, y, rightward, steps until a move, steps between)."""
    dangers = [np.zeros((10, 10), bool) for _ in range(steps)]
    for x, y, right, wait, every in things:
        for danger in dangers:
            if not 0 <= x <= 9:
                break
            danger[y, x] = True
            if wait == 0:
                x, wait = x + (1 if right else -1), every
                if 0 <= x <= 9:
                    danger[y, x] = True
            else:
                wait -= 1
    return dangers


STEP = {NONE: (0, 0), LEFT: (0, -1), UP: (-1, 0), RIGHT: (0, 1), DOWN: (1, 0)}


def safest(safe, y, x, worth, low, high):
    """The action onto a survivable cell that is worth most."""
    options = []
    for action, (dy, dx) in STEP.items():
        ny, nx = min(max(y + dy, low), high), min(max(x + dx, 0), 9)
        options.append((bool(safe[ny, nx]), worth(ny, nx, action), action))
    return max(options)[2]


def asterix(seed):
    """Plans a way between the enemies, towards the nearest gold."""
    source = np.random.RandomState(seed)
    walkable = np.zeros((10, 10), bool)
    walkable[1:9] = True

    def act(env):
        every = env.move_speed - 1
        things = [(e[0], e[1], e[2], env.move_timer, every) for e in env.entities if e is not None and not e[3]]
        golds = [(e[1], e[0]) for e in env.entities if e is not None and e[3]]
        safe = survivable(walk_dangers(things, 8), walkable)

        def worth(y, x, action):
            near = min((abs(gy - y) + abs(gx - x) for gy, gx in golds), default=0)
            return -near - 3 * (x in (0, 9)) - 0.3 * abs(x - 4.5) + 0.1 * source.rand()

        return safest(safe, env.player_y, env.player_x, worth, 1, 8)

    return act


def space_invaders(seed):
    """Steps out of the way of bullets, stands below the deepest aliens, and fires when that will hit."""
    source = np.random.RandomState(seed)

    def will_hit(env):
        trial = copy.deepcopy(env)
        gained, _ = trial.act(FIRE)
        for _ in range(8):
            gained += trial.act(NONE)[0]
        return gained > 0

    def act(env):
        rows, columns = np.nonzero(env.e_bullet_map)
        under_fire = {int(x) for y, x in zip(rows, columns, strict=True) if y >= 6}
        if env.pos in under_fire:
            return LEFT if env.pos > 0 and (env.pos == 9 or source.rand() < 0.5) else RIGHT
        if env.shot_timer == 0 and will_hit(env):
            return FIRE
        lowest = [(int(np.max(np.nonzero(env.alien_map[:, x]))), x) for x in range(10) if env.alien_map[:, x].any()]
        deepest = max(y for y, _ in lowest)
        target = min((x for y, x in lowest if y == deepest), key=lambda x: abs(x - env.pos))
        target = min(max(target, 2), 7) if deepest > 6 else target
        step = LEFT if target < env.pos else RIGHT if target > env.pos else NONE
        landing = env.pos + {LEFT: -1, RIGHT: 1, NONE: 0}[step]
        return NONE if landing in under_fire else step

    return act


def seaquest(seed):
    """Fetches divers between the enemies, comes up with six of them, and from the count of -1 again and again.

    One seed in five forgets to breathe, and some roam the deep once the sea is as crowded as it gets.
    """
    source = np.random.RandomState(seed)
    walkable = np.zeros((10, 10), bool)
    walkable[:9] = True
    forgetful = seed % 5 == 4

    def act(env):
        things = [(*e[:4], env.move_speed) for e in env.e_fish + env.e_subs]
        things += [(*b, 0, 0) for b in env.e_bullets] + [(*e[:3], 0, 0) for e in env.e_subs if e[4] <= 4]
        floor = walkable.copy()
        floor[0] = env.diver_count != 0 or (env.surface and env.sub_y == 0)
        safe = survivable(walk_dangers(things, 7), floor)
        low_air = env.oxygen < 4 * env.sub_y + 20 and env.diver_count > 0
        bobbing = env.diver_count < 0 and not (seed % 3 == 1 and env.e_spawn_speed == 1)
        home = not forgetful and (env.diver_count == 6 or low_air or (bobbing and env.sub_y > 0))
        divers = [(d[1], d[0]) for d in env.divers]
        row_ahead = [e[0] - env.sub_x for e in env.e_fish + env.e_subs if e[1] == env.sub_y]
        facing = any((dx > 0) == env.sub_or and dx != 0 for dx in row_ahead)
        if facing and env.shot_timer == 0 and safe[env.sub_y, env.sub_x]:
            return FIRE

        def worth(y, x, action):
            near = min((abs(dy - y) + abs(dx - x) for dy, dx in divers), default=abs(y - 4))
            edge = 3 * (x in (0, 1, 8, 9)) if not divers else 1.5 * (x in (0, 9))
            goal = 3 * y if home else 3 * abs(y - 1) if bobbing else near
            return -goal - edge + 0.1 * source.rand()

        return safest(safe, env.sub_y, env.sub_x, worth, 0, 8)

    return act


def roaming(seed):
    """Seaquest: moves among the enemies, shooting half of the time."""
    source = np.random.RandomState(seed)
    plan = seaquest(3 * seed + 1)
    return lambda env: FIRE if env.shot_timer == 0 and source.rand() < 0.5 else plan(env)


SCRIPTED = {
    "asterix": asterix,
    "breakout": breakout,
    "freeway": freeway,
    "seaquest": seaquest,
    "space_invaders": space_invaders,
}
