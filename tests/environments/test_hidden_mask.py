"""``action_mask=False``: what agents are shown, what the environment receives, and what deployed policies return."""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shoal
import toys
from shoal.deploy import Policies
from shoal.environments import registry
from shoal.environments.changes import Change, chain
from shoal.environments.registry import validate
from shoal.environments.wrappers import Wrapping, unwrapped, wrap
from shoal.errors import InputError
from shoal.game import HostEnvironment, HostTimestep, blank, own_actions, refresh
from shoal.rollouts import fused
from shoal.spec import Discrete, EnvSpec
from shoal.types import Algorithm, Batched, Environment, Learner, Step

SPEC = EnvSpec(
    name="gates",
    agents=("a", "b", "c"),
    obs_dims=(1, 1, 1),
    state_dim=0,
    action=Discrete(4),
    action_dims=(3, 2, 4),
    roles=(0, 1, 2),
    horizon=9,
    shared_reward=False,
)
END = 6
rng = np.random.default_rng(0)
LEGAL = (rng.random((END + 1, 3, 4)) < 0.5) & own_actions(SPEC)
LEGAL[:, :, 1] |= ~LEGAL.any(-1)
LEGAL[3, 2] = False
"""[t, agent, action]; agent c is dead and has no legal action at timestep 3."""
CHOSEN = rng.integers(0, SPEC.action_dims, (2, END, 3)).astype(np.int32)
"""[episode, t, agent]."""
BARE = Wrapping(action_mask=False)
ALL = Wrapping(8, frame_stack=2, last_action=True, agent_ids=True, reward_scale=3.0, action_mask=False)


def look(xp: Any, t: Any, received: Any) -> dict[str, Any]:
    """Each agent observes 1 + the action that the environment received of it."""
    alive = (xp.arange(3) < 2) | (t != 3)
    return {
        "obs": xp.where(alive, received + 1, 0)[:, None].astype("float32"),
        "legal": xp.asarray(LEGAL)[t],
        "alive": alive,
        "reward": xp.maximum(received, 0).astype("float32"),
        "last": t >= END,
    }


def device() -> Environment:
    nothing = {"state": jnp.zeros(0), "discount": jnp.ones(3)}

    def reset(key: Any) -> tuple[Any, Step]:
        t, received = jnp.int32(0), jnp.full(3, -1)
        return (t, received), Step(**look(jnp, t, received), **nothing, first=jnp.asarray(True))

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Step]:
        t = state[0] + 1
        return (t, action), Step(**look(jnp, t, action), **nothing, first=jnp.asarray(False))

    return Environment(SPEC, reset, step)


class Gates:
    spec = SPEC

    def __init__(self, render: bool = False):
        self.draws = render

    def reset(self, seed: int, out: HostTimestep) -> None:
        self.t = -1
        self.step(np.full(3, -1, np.int32), out)

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        assert action.dtype == np.int32
        self.t += 1
        for name, x in look(np, np.int32(self.t), action).items():
            getattr(out, name)[...] = x

    def render(self) -> None:
        return None

    def close(self) -> None:
        return None


def executed(t: int, chosen: np.ndarray) -> list[int]:
    """The definition, agent by agent."""
    found = []
    for legal, action in zip(LEGAL[t].tolist(), chosen.tolist(), strict=True):
        found.append(action if legal[action] else legal.index(True) if True in legal else 0)
    return found


def expected(episode: int, w: Wrapping) -> list[np.ndarray]:
    """Each timestep's observations [N, O]."""
    did = [executed(t, chosen) for t, chosen in enumerate(CHOSEN[episode])]
    frames, timesteps = [[0, 0, 0]] + [[1 + action for action in joint] for joint in did], []
    for t in range(END + 1):
        rows = []
        for i, dim in enumerate(SPEC.action_dims):
            seen = [frames[max(0, t - back)][i] for back in reversed(range(w.frame_stack))]
            if i == 2 and t == 4 and w.frame_stack == 2:
                seen[0] = 0  # it was dead one timestep earlier and observed nothing
            if w.last_action:
                acted = t > 0 and not (i == 2 and t - 1 == 3)
                seen += [float(acted and did[t - 1][i] == k) for k in range(dim)]
            seen += [float(i == k) for k in range(3)] if w.agent_ids else []
            rows.append(np.array(seen) * (not (i == 2 and t == 3)))
        wide = max(map(len, rows))
        timesteps.append(np.stack([np.pad(row, (0, wide - len(row))) for row in rows]))
    return timesteps


def check(seen: Any, t: int, episode: int, w: Wrapping, where: str) -> None:
    np.testing.assert_array_equal(seen.legal, own_actions(SPEC), err_msg=where)
    np.testing.assert_array_equal(seen.obs, expected(episode, w)[t], err_msg=f"{where}, timestep {t}")
    if t:
        reward = np.array(executed(t - 1, CHOSEN[episode, t - 1])) * w.reward_scale
        np.testing.assert_array_equal(seen.reward, reward, err_msg=where)


def test_the_choices_tell_the_wrapper_from_others() -> None:
    """Or the tests below would prove nothing."""
    which = [(t, i) for t in range(END) for i in range(3)]
    replaced = [(t, i) for t, i in which if executed(t, CHOSEN[0, t])[i] != CHOSEN[0, t, i]]
    assert 4 < len(replaced) < 14 and {executed(t, CHOSEN[0, t])[i] for t, i in replaced} >= {0, 1, 3}


@pytest.mark.parametrize("w", [BARE, ALL], ids=["alone", "with all others"])
def test_device_and_host_execute_the_first_legal_action(w: Wrapping) -> None:
    env, host = wrap(device(), w), wrap(HostEnvironment(SPEC, Gates), w)
    validate(env)
    assert env.spec == host.spec
    assert unwrapped(env.spec, w) == replace(SPEC, novel=None, horizon=min(SPEC.horizon, w.time_limit or 9))
    game, advance = host.make(), jax.jit(env.step)
    for episode in range(2):  # the second remembers nothing of the first
        state, now = jax.jit(env.reset)(jax.random.key(0))
        for t in range(END + 1):
            out = blank(game.spec)
            refresh(out, own_actions(game.spec))
            if t == 0:
                game.reset(0, out)
            else:
                joint = CHOSEN[episode, t - 1].copy()
                game.step(joint, out)
                np.testing.assert_array_equal(joint, CHOSEN[episode, t - 1])  # the array belongs to the caller
                state, now = advance(jax.random.key(0), state, jnp.asarray(joint))
            check(now, t, episode, w, "device")
            check(out, t, episode, w, "host")
            assert now.legal.dtype == bool
            for leaf in out:
                leaf[...] = 1  # so does this memory


def test_the_batched_form_executes_the_same() -> None:
    """Two environments, of which the second starts a new episode on the way."""
    plain = device()
    reset, step = jax.vmap(plain.reset), jax.vmap(plain.step, (None, 0, 0))

    def restart(key: Any, which: Any, state: Any) -> tuple[Any, Step]:
        new, first = reset(jnp.zeros(2))
        return jax.tree.map(lambda a, b: jnp.where(which.reshape(2, *[1] * (b.ndim - 1)), a, b), new, state), first

    many = wrap(replace(plain, batched=Batched(lambda key, count: reset(jnp.zeros(2)), step, restart)), ALL).batched
    assert many is not None

    @jax.jit
    def play() -> list[Step]:
        key = jax.random.key(0)
        state, now = many.reset(key, 2)
        seen = [now]
        for t in range(2):
            state, now = many.step(key, state, jnp.asarray(CHOSEN[:, t]))
            seen.append(now)
        state, _ = many.restart(key, jnp.array([False, True]), state)
        return [*seen, many.step(key, state, jnp.stack([CHOSEN[0, 2], CHOSEN[1, 0]]))[1]]

    for at, now in enumerate(play()):
        for e in range(2):
            t = 1 if e == 1 and at == 3 else at
            check(jax.tree.map(lambda x, e=e: x[e], now), t, e, ALL, f"environment {e}")


def test_changes_in_sequence_pass_an_action_on_from_the_last_to_the_first() -> None:
    def maker(spec: EnvSpec, times: int, plus: int) -> Change:
        nothing = Change(spec, lambda step: ((), step), lambda memory, step, action: (memory, step))
        return nothing._replace(execute=lambda memory, action: times * action + plus)

    change = chain(SPEC, [functools.partial(maker, times=2, plus=0), functools.partial(maker, times=1, plus=1)])
    assert change.execute(((), ()), 3) == 2 * (3 + 1)


def test_a_rollout_records_the_actions_that_the_policy_chose() -> None:
    rollout = fused.make_rollout(wrap(device(), ALL), 2, END)

    def act(policy: Any, carry: Any, step: Step, key: Any, greedy: bool) -> Any:
        return carry, jnp.broadcast_to(policy, (2, 3)), {}

    policy = jnp.array([2, 1, 3])
    start = jax.jit(rollout.init)(jax.random.key(1), ())
    _, traj, _ = jax.jit(rollout.collect, static_argnums=0)(act, policy, start, jax.random.key(2))
    np.testing.assert_array_equal(traj.action, np.broadcast_to([2, 1, 3], (END, 2, 3)))
    did = np.array([executed(t, np.array([2, 1, 3])) for t in range(END)])
    np.testing.assert_array_equal(traj.outcome.reward, np.repeat(did[:, None] * 3.0, 2, 1))
    assert (did != [2, 1, 3]).any()


def test_a_dead_agent_of_a_skirmish_does_nothing_and_a_living_one_stops() -> None:
    env = wrap(registry.make("skirmish/3m", horizon=12), BARE)
    assert isinstance(env, Environment)
    advance = jax.jit(env.step)
    state, now = jax.jit(env.reset)(jax.random.key(0))
    health = state.inner.health
    dying = state._replace(inner=state.inner._replace(health=health.at[0].set(0.0)))
    state, now = advance(jax.random.key(1), dying, jnp.array([0, 0, 5]))  # no-op is illegal for the living
    assert state.inner.action.tolist() == [1, 1, 5]  # it was alive when the masks were made
    assert now.alive.tolist() == [False, True, True] and bool(now.legal.all())
    state, now = advance(jax.random.key(2), state, jnp.array([8, 8, 3]))  # all enemies are out of range
    assert state.inner.action.tolist() == [0, 1, 3]


def test_a_deployed_policy_does_what_is_executed_in_training() -> None:
    """A policy that chooses each agent's last action of those that it is shown as legal."""

    def act(learner: Learner, carry: Any, step: Step, key: Any, greedy: bool) -> Any:
        return carry, (step.legal * jnp.arange(1, 5)).argmax(-1).astype(jnp.int32), {}

    raw, env = toys.busy(), wrap(toys.busy(), BARE)
    algorithm: Any = Algorithm(None, lambda _: (), act, None)  # type: ignore[arg-type]
    team = Policies(env.spec, algorithm, (), wrapping=BARE)
    alone = team.agent(1)
    assert team.spec.obs_dims == raw.spec.obs_dims
    inside, outside = jax.jit(raw.step), jax.jit(env.step)
    (state, now), (outer, shown) = jax.jit(raw.reset)(jax.random.key(3)), jax.jit(env.reset)(jax.random.key(3))
    replaced, rows = 0, []
    for t in range(5):
        legal = np.asarray(now.legal)
        rows = [row[:width] for row, width in zip(now.obs, raw.spec.obs_dims, strict=True)]
        acted = team.act(rows, legal, alive=list(now.alive))
        np.testing.assert_array_equal(team._executed, acted)
        assert alone.act(rows[1], legal[1]) == acted[1]
        replaced += (acted != [2, 3, 1]).sum()
        assert legal[np.arange(3), acted].all()
        chosen = act(algorithm, (), shown, None, True)[1]
        assert chosen.tolist() == [2, 3, 1]
        turn = jax.random.key(t)
        (state, now), (outer, shown) = inside(turn, state, jnp.asarray(acted)), outside(turn, outer, chosen)
        np.testing.assert_array_equal(now.reward, shown.reward)
        np.testing.assert_array_equal(now.obs, shown.obs)
        assert now.reward.min() > -999.0  # the price of an illegal action
    assert replaced > 2
    assert team.act(rows).tolist() == [2, 3, 1]  # without masks all actions count as legal


def test_continuous_actions_are_refused(tmp_path: Any) -> None:
    said = "--no-action-mask needs discrete actions, but those of toys/drift are continuous."
    spec = toys.drift().spec
    for env in (toys.drift(), HostEnvironment(spec, Gates)):
        with pytest.raises(InputError, match=said):
            wrap(env, BARE)
    with pytest.raises(InputError, match=said):
        shoal.train("mappo", "toys:drift", action_mask=False, folder=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    assert wrap(toys.drift(), Wrapping(last_action=True)).spec.action == spec.action
