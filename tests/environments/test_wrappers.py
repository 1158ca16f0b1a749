"""Wrappers: the same code on a device environment and on the same environment as a game, against the definition."""

import functools
import pickle
import subprocess
import sys
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.environments.registry import validate
from shoal.environments.wrappers import Wrapped, WrappedGame, Wrapping, change_of, unwrapped, wrap
from shoal.errors import InputError
from shoal.game import HostEnvironment, HostTimestep, blank, own_actions, refresh
from shoal.rollouts import fused
from shoal.spec import Box, Discrete, EnvSpec
from shoal.types import Batched, Environment, Step

SPEC = EnvSpec(
    name="odd",
    agents=("a", "b", "c"),
    obs_dims=(2, 4, 3),
    state_dim=2,
    action=Discrete(4),
    action_dims=(3, 2, 4),
    roles=(0, 1, 2),
    horizon=9,
    shared_reward=False,
    novel=(1, 2),
)
ALONE = replace(SPEC, obs_dims=(4, 4, 4))
BOX = replace(SPEC, action=Box(3, -1.0, 2.0), action_dims=(1, 3, 2))
END, DEATH = 6, 4
"""The episode terminates after ``END`` steps; after ``DEATH`` steps the last agent is dead, for one timestep."""


def look(spec: EnvSpec, xp: Any, t: Any, luck: Any) -> dict[str, Any]:
    """What there is to see after ``t`` steps: every feature of every agent at every timestep is another number."""
    alive = (xp.arange(3) < 2) | (t != DEATH)
    features = luck + 10.0 * t + xp.arange(12).reshape(3, 4)
    real = (xp.arange(4) < xp.asarray(spec.obs_dims)[:, None]) & alive[:, None]
    return {
        "obs": xp.where(real, features, 0.0).astype("float32"),
        "state": xp.stack([t * 1.0, luck * 1.0]).astype("float32"),
        "alive": alive,
        "reward": xp.where(t > 0, xp.arange(3) + t, 0).astype("float32"),
        "discount": xp.where(t >= END, 0.0, xp.ones(3)).astype("float32"),
        "last": t >= END,
    }


def joint(spec: EnvSpec, t: int) -> np.ndarray:
    """The joint action at timestep ``t``; the actions of a box extend beyond an agent's own dimensions."""
    if isinstance(spec.action, Box):
        return (0.5 + t + np.arange(9).reshape(3, 3)).astype(np.float32)
    return ((t + np.arange(3)) % np.array(spec.action_dims)).astype(np.int32)


def device(spec: EnvSpec) -> Environment:
    def shown(state: Any) -> tuple[Any, Step]:
        legal, first = jnp.asarray(own_actions(spec)), state["t"] == 0
        return state, Step(**look(spec, jnp, state["t"], state["luck"]), legal=legal, first=first)

    def reset(key: Any) -> tuple[Any, Step]:
        return shown({"t": jnp.int32(0), "luck": jax.random.key_data(key)[-1] % 7})

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Step]:
        return shown(state | {"t": state["t"] + 1})

    return Environment(spec, reset, step, render=lambda state: np.full((1, 1, 3), int(state["t"]), np.uint8))


class Odd:
    def __init__(self, spec: EnvSpec, render: bool = False):
        self.spec, self.draws, self.closed = spec, render, False

    def reset(self, seed: int, out: HostTimestep) -> None:
        self.t, self.luck = -1, np.uint32(seed % 7)
        self.step(np.zeros(3), out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        self.t += 1
        for name, x in look(self.spec, np, np.int32(self.t), self.luck).items():
            if name == "obs":  # as adapters do: padding is left alone
                for i, width in enumerate(self.spec.obs_dims):
                    out.obs[i, :width] = x[i, :width]
            else:
                getattr(out, name)[...] = x

    def render(self) -> np.ndarray | None:
        return np.full((1, 1, 3), self.t, np.uint8) if self.draws else None

    def close(self) -> None:
        self.closed = True


def wrapped(game: Any, wrapping: Wrapping) -> WrappedGame:
    return WrappedGame(game, functools.partial(change_of, wrapping=wrapping))


def played_on_device(env: Environment, steps: int, seed: int) -> list[Step]:
    state, first = jax.jit(env.reset)(jax.random.wrap_key_data(jnp.array([0, seed], jnp.uint32)))
    seen, advance = [first], jax.jit(env.step)
    for t in range(steps):
        state, outcome = advance(jax.random.key(0), state, jnp.asarray(joint(env.spec, t)))
        seen.append(outcome)
    return [jax.tree.map(np.asarray, step) for step in seen]


def played_on_host(game: Any, steps: int, seed: int) -> list[HostTimestep]:
    seen = []
    for t in range(steps + 1):
        out = blank(game.spec)  # other memory every time: nothing is left over from the step before
        refresh(out, own_actions(game.spec))
        if t == 0:
            game.reset(seed, out)
        else:
            action = joint(game.spec, t - 1)
            game.step(action, out)
            action[...] = 1  # the array belongs to the caller
        seen.append(HostTimestep._make(leaf.copy() for leaf in out))
        for leaf in out:
            leaf[...] = 1  # so does this memory
    return seen


def expected(plain: list[Any], spec: EnvSpec, w: Wrapping) -> list[dict[str, np.ndarray]]:
    """The definition, agent by agent."""
    timesteps = []
    for t, now in enumerate(plain):
        rows = []
        for i, width in enumerate(spec.obs_dims):
            if w.blind:
                limit = min(spec.horizon, w.time_limit or spec.horizon)
                past = [np.array([min(1.0, np.float32(t) * np.float32(1 / limit))])]
            else:
                past = [plain[max(0, t - back)].obs[i, :width] for back in reversed(range(w.frame_stack))]
            if w.last_action:
                acted = joint(spec, t - 1)[i]
                own = (
                    acted[: spec.action_dims[i]] if isinstance(spec.action, Box) else np.eye(spec.action_dims[i])[acted]
                )
                past.append(own if t and plain[t - 1].alive[i] else np.zeros_like(own))
            row = np.concatenate([*past, np.eye(3)[i]] if w.agent_ids else past).astype(np.float32)
            rows.append(row if now.alive[i] else np.zeros_like(row))
        widest = max(map(len, rows))
        timesteps.append(
            {
                "obs": np.stack([np.pad(row, (0, widest - len(row))) for row in rows]),
                "reward": now.reward * w.reward_scale,
                "last": now.last | (w.time_limit is not None and t >= w.time_limit),
                "discount": now.discount * (not (w.limit_terminates and t >= (w.time_limit or END))),
                **{name: getattr(now, name) for name in ("state", "alive", "legal")},
            }
        )
    return timesteps


CASES = {
    "limit": (SPEC, Wrapping(time_limit=4)),
    "limit that terminates": (SPEC, Wrapping(time_limit=4, limit_terminates=True)),
    "limit where it ends": (SPEC, Wrapping(time_limit=END)),
    "stack": (SPEC, Wrapping(frame_stack=3)),
    "stack of one width": (ALONE, Wrapping(frame_stack=2)),
    "last action": (SPEC, Wrapping(last_action=True)),
    "last action of a box": (BOX, Wrapping(last_action=True, agent_ids=True)),
    "last action after equal widths": (replace(ALONE, action_dims=(4, 4, 4)), Wrapping(last_action=True)),
    "ids": (SPEC, Wrapping(agent_ids=True)),
    "scale": (SPEC, Wrapping(reward_scale=0.25)),
    "blind": (SPEC, Wrapping(blind=True)),
    "blind of one width": (replace(ALONE, horizon=5), Wrapping(blind=True)),
    "blind with its actions and ids": (SPEC, Wrapping(7, frame_stack=2, blind=True, last_action=True, agent_ids=True)),
    "all": (SPEC, Wrapping(5, frame_stack=2, last_action=True, agent_ids=True, reward_scale=3.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_device_and_host_show_what_the_definition_says(name: str) -> None:
    spec, wrapping = CASES[name]
    env, game = wrap(device(spec), wrapping), wrapped(Odd(spec), wrapping)
    assert env.spec == game.spec
    validate(env)
    for seed in (3, 5):  # the second episode remembers nothing of the first
        plain = played_on_host(Odd(spec), END, seed)
        there, here = played_on_device(env, END, seed), played_on_host(game, END, seed)
        for one, two, should in zip(there, here, expected(plain, spec, wrapping), strict=True):
            for field, x in should.items():
                np.testing.assert_array_equal(getattr(one, field), x, err_msg=f"device {field}")
                np.testing.assert_array_equal(getattr(two, field), x, err_msg=f"host {field}")
                assert getattr(one, field).dtype == getattr(two, field).dtype


def test_the_batched_form_shows_the_same() -> None:
    """Two environments, of which the second starts a new episode on the way."""
    plain, w, keys = device(SPEC), CASES["all"][1], jax.vmap(jax.random.key)(jnp.array([3, 5]))
    reset, step = jax.vmap(plain.reset), jax.vmap(plain.step)

    def restart(key: Any, which: Any, state: Any) -> tuple[Any, Step]:
        new, first = reset(keys)
        return jax.tree.map(lambda a, b: jnp.where(which, a, b), new, state), first

    batched = Batched(lambda key, count: reset(keys), lambda key, state, action: step(keys, state, action), restart)
    one, many = wrap(plain, w), wrap(replace(plain, batched=batched), w).batched
    assert many is not None

    @jax.jit
    def play() -> list[Any]:
        state, first = many.reset(keys[0], 2)
        seen = [first]
        for t in range(3):
            state, outcome = many.step(keys[0], state, jnp.stack([joint(SPEC, t), joint(SPEC, t)]))
            seen.append(outcome)
        state, anew = many.restart(keys[0], jnp.array([False, True]), state)
        return [*seen, anew, many.step(keys[0], state, jnp.stack([joint(SPEC, 3), joint(SPEC, 0)]))[1]]

    seen = play()
    for e, seed in enumerate((3, 5)):
        alone = played_on_device(one, 4, seed)
        for now, should in zip(seen, [*alone[:4], alone[0], alone[1 if e else 4]], strict=True):
            for field in ("obs", "reward", "last", "alive"):
                np.testing.assert_array_equal(getattr(now, field)[e], getattr(should, field), err_msg=field)


def test_a_time_limit_is_a_truncation_and_an_end_stays_an_end() -> None:
    cut = played_on_host(wrapped(Odd(SPEC), Wrapping(time_limit=4)), 4, 0)
    assert [bool(m.last) for m in cut] == [False] * 4 + [True]
    assert cut[-1].discount.all()
    ended = played_on_host(wrapped(Odd(SPEC), Wrapping(time_limit=END)), END, 0)[-1]
    assert ended.last and not ended.discount.any()
    assert wrap(device(SPEC), Wrapping(time_limit=4)).spec.horizon == 4
    assert wrap(device(SPEC), Wrapping(time_limit=40)).spec.horizon == SPEC.horizon


def test_in_a_roll_out_a_stack_starts_anew_with_each_episode() -> None:
    env = wrap(device(SPEC), Wrapping(time_limit=3, frame_stack=2))
    rollout = fused.make_rollout(env, 2, 8)

    def act(policy: Any, carry: Any, step: Step, key: Any, greedy: bool) -> Any:
        return carry, jnp.zeros((2, 3), jnp.int32), {}

    start = jax.jit(rollout.init)(jax.random.key(1), ())
    _, traj, _ = jax.jit(rollout.collect, static_argnums=0)(act, (), start, jax.random.key(2))
    step = jax.tree.map(np.asarray, traj.step)
    np.testing.assert_array_equal(step.first[:, 0], np.arange(8) % 3 == 0)
    own = step.obs[:, 0, 0, :4]  # agent a: two observations of two features
    np.testing.assert_array_equal(own[:, :2], np.where(step.first[:, :1], own[:, 2:], np.roll(own[:, 2:], 1, 0)))


def test_specs() -> None:
    stacked = wrap(device(SPEC), Wrapping(frame_stack=2, agent_ids=True)).spec
    assert stacked.obs_dims == (2 * 2 + 3, 2 * 4 + 3, 2 * 3 + 3)
    # Older observations of widths 2, 4 and 3, and features 1 and 2 of the newest ones after them.
    assert stacked.novel == tuple(sorted({0, 1, 2, 3} | {2 + 1} | {4 + 1, 4 + 2} | {3 + 1, 3 + 2}))
    assert wrap(device(SPEC), Wrapping(agent_ids=True)).spec.novel == SPEC.novel
    assert unwrapped(stacked, Wrapping(frame_stack=2, agent_ids=True)) == replace(SPEC, novel=None)
    acting = wrap(device(SPEC), Wrapping(last_action=True)).spec
    assert acting.obs_dims == (2 + 3, 4 + 2, 3 + 4)
    assert acting.novel == tuple(sorted({1, 2} | {2, 3, 4} | {4, 5} | {3, 4, 5, 6}))
    assert wrap(device(replace(SPEC, novel=None)), Wrapping(last_action=True)).spec.novel is None
    for w in (
        Wrapping(last_action=True),
        Wrapping(4, frame_stack=3, last_action=True, agent_ids=True, reward_scale=2.0),
    ):
        assert unwrapped(wrap(device(SPEC), w).spec, w) == replace(SPEC, novel=None, horizon=w.time_limit or 9)


def test_pictures_are_of_the_environment_inside() -> None:
    wrapping = Wrapping(time_limit=3, frame_stack=2)
    env = wrap(device(SPEC), wrapping)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    state, _ = jax.jit(env.step)(jax.random.key(0), state, jnp.zeros(3, jnp.int32))
    assert isinstance(state, Wrapped) and env.render is not None
    assert np.asarray(env.render(state)).max() == 1
    assert wrap(replace(device(SPEC), render=None), wrapping).render is None
    host = wrap(HostEnvironment(SPEC, functools.partial(Odd, SPEC)), wrapping)
    drawing, plain = host.make(render=True), host.make()
    for game in (drawing, plain):
        game.reset(0, blank(game.spec))
    picture = drawing.render()
    assert picture is not None and picture.max() == 0 and plain.render() is None
    drawing.close()
    assert drawing._inner.closed  # type: ignore[attr-defined]


def test_a_wrapped_game_travels_to_its_worker() -> None:
    wrapping = Wrapping(frame_stack=2, agent_ids=True)
    host = wrap(HostEnvironment(SPEC, functools.partial(Odd, SPEC)), wrapping)
    made = pickle.loads(pickle.dumps(host.make))()
    assert made.spec == host.spec
    one, two = played_on_host(made, 4, 1), played_on_host(wrapped(Odd(SPEC), wrapping), 4, 1)
    np.testing.assert_array_equal(one[-1].obs, two[-1].obs)


def test_workers_need_no_jax() -> None:
    said = "import sys, shoal.environments.wrappers; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", said], check=True, timeout=60)


def test_wrappers_without_options_change_nothing() -> None:
    env, host = device(SPEC), HostEnvironment(SPEC, functools.partial(Odd, SPEC))
    assert wrap(env, Wrapping()) is env and wrap(host, Wrapping()) is host


@pytest.mark.parametrize(
    ("wrapping", "said"),
    [
        (Wrapping(time_limit=0), "time_limit must be at least 1 and at most .*, not 0"),
        (Wrapping(frame_stack=0), "frame_stack must be at least 1 and at most .*, not 0"),
        (Wrapping(reward_scale=0.0), "reward_scale must be above 0 and at most 1e6, not 0"),
        (Wrapping(reward_scale=float("inf")), "reward_scale must be above 0 and at most 1e6, not inf"),
        (Wrapping(reward_scale=float("nan")), "reward_scale must be above 0 and at most 1e6, not nan"),
    ],
)
def test_options_without_a_meaning_are_refused(wrapping: Wrapping, said: str) -> None:
    with pytest.raises(InputError, match=said):
        wrap(device(SPEC), wrapping)
