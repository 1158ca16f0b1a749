"""The replay buffer: what is drawn was stored, it lies in place, and it is refused where it cannot be."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import toys
from shoal import algorithms
from shoal.algorithms import hatd3, iql
from shoal.equations.targets import team_reward
from shoal.errors import InputError
from shoal.learning.replay import ReplayConfig, as_trajectory, make_windows, window_as_transition
from shoal.networks.body import Body
from shoal.options.flags import override
from shoal.rollouts import fused
from shoal.runs import api
from shoal.runs.api import trainer_of
from shoal.training import feed, memory, sharding
from shoal.training.program import ONE, Program, compile_program, learning, stages, trajectory_shape
from shoal.training.settings import Settings
from shoal.types import Algorithm, Experience, Learner, Replay, Scale, Step, Trajectory
from support.trajectories import assert_trees_equal, make_spec, make_trajectory

T, E = 6, 3
REPLAY = Replay(
    keep=lambda traj: {"when": traj.action, "who": traj.step.first}, capacity=5 * T * E, warm_up=20, draws=4, batch=8,
    length=4, period=2,
)  # fmt: skip


def roll(number: int) -> Trajectory:
    """The rollout with this number: the action says when it was taken and where, 1000 e + t."""
    when = 1000 * jnp.arange(E)[None] + (number * T + jnp.arange(T))[:, None]
    step = Step(*(jnp.broadcast_to(jnp.arange(E), (T, E)) for _ in Step._fields))
    return Trajectory(step, when, {}, step, ())


def filled(replay: Any, count: int) -> tuple[feed.Feed, Any]:
    fed = feed.make_feed(replay, roll(0), E, 1)
    state = fed.init()
    for number in range(count):
        state = fed.put(state, roll(number))
    return fed, state


def drawn(replay: Any, count: int, seed: int = 0) -> Any:
    fed, state = filled(replay, count)
    batch = fed.take(state, roll(count - 1), jax.random.key(seed))
    assert isinstance(batch, Experience)
    np.testing.assert_array_equal(batch.newest.action, roll(count - 1).action)
    return batch.samples


@pytest.mark.parametrize("n", [1, 5])
def test_a_window_holds_what_its_transition_needs(n: int) -> None:
    """The windows of :func:`make_windows` against whole sequences of the same draws."""
    spec = make_spec()
    traj = make_trajectory(spec, length=40, envs=E)
    config = ReplayConfig(buffer_size=60 * E, batch_size=16, gradient_steps=3, learning_starts=n)
    windows = make_windows(config, n, state=True)
    found = {}
    for name, replay in (("whole", windows._replace(cut=None)), ("cut", windows)):
        fed = feed.make_feed(replay, traj, E, 1)
        state = fed.put(fed.put(fed.init(), traj), jax.tree.map(lambda x: x[::-1], traj))
        batch = fed.take(state, traj, jax.random.key(3))
        assert isinstance(batch, Experience)
        sample = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1).reshape(x.shape[1], -1, *x.shape[3:]), batch.samples)
        window = as_trajectory(sample, ())
        reward, discount = team_reward(window)
        value = window_as_transition(window)
        found[name] = (
            sample.obs.shape[0],
            value.step.obs,
            value._replace(step=None),
            reward,
            discount,
            window.outcome.last,
        )
    whole, cut = found.values()
    assert (whole[0], cut[0]) == (n, 1)
    assert_trees_equal(cut[1:], whole[1:])
    assert np.asarray(whole[5])[:-1].any() == (n > 1), "an episode ends within a window"


@pytest.mark.parametrize("count", [2, 5, 8])
def test_sequences_are_what_was_stored_in_its_order(count: int) -> None:
    """Also across the seam of the ring: rollouts 3 to 7 are what is left of eight."""
    samples = drawn(REPLAY, count)
    when, who = np.asarray(samples["when"]), np.asarray(samples["who"])
    assert when.shape == (4, 4, 8)  # draws, length, batch
    time, place = when % 1000, when // 1000
    np.testing.assert_array_equal(time - time[:, :1], np.arange(4)[None, :, None] + np.zeros_like(time))
    np.testing.assert_array_equal(place, who)
    assert (place == place[:, :1]).all()
    oldest = max(0, count - 5) * T
    assert time.min() >= oldest and time.max() < count * T
    assert set(np.unique(time[:, 0])) <= set(range(oldest, count * T, 2))


def test_every_sequence_is_drawn_sooner_or_later() -> None:
    fed, state = filled(REPLAY._replace(draws=60), 8)
    samples = fed.take(state, roll(7), jax.random.key(1))
    assert isinstance(samples, Experience)
    starts = np.unique(np.asarray(samples.samples["when"])[:, 0])
    assert len(starts) == E * ((5 * T - 4) // 2 + 1)


@pytest.mark.parametrize("count", [2, 8])
def test_sequences_start_where_they_are_asked_to_and_all_equally_often(count: int) -> None:
    """Also across the seam of the ring. Where none starts there, as in an episode longer than the ring, at any."""
    every = REPLAY._replace(draws=1000, starts=lambda kept: kept["when"] % 7 == 0)
    time = np.asarray(drawn(every, count)["when"])
    first = time[:, 0].ravel()
    oldest, newest = max(0, count - 5) * T, count * T - 4
    allowed = [1000 * e + t for e in range(E) for t in range(oldest, newest + 1) if (1000 * e + t) % 7 == 0]
    found = Counter(first.tolist())
    assert sorted(found) == allowed
    assert max(found.values()) < 1.5 * 8000 / len(allowed) and min(found.values()) > 0.5 * 8000 / len(allowed)
    np.testing.assert_array_equal(time, time[:, :1] + np.arange(4)[None, :, None])
    nowhere = REPLAY._replace(draws=200, starts=lambda kept: kept["when"] < 0)
    assert len(np.unique(drawn(nowhere, count)["when"][:, 0])) == E * (newest - oldest + 1)


def test_it_holds_and_draws_what_flashbax_does() -> None:
    """Written before the ring is full, at its end, and over its oldest; checkpoints have the same leaves."""
    import flashbax

    theirs = flashbax.make_trajectory_buffer(
        add_batch_size=E, sample_batch_size=32, sample_sequence_length=4, period=2, min_length_time_axis=7,
        max_length_time_axis=5 * T,
    )  # fmt: skip
    fed = feed.make_feed(REPLAY, roll(0), E, 1)
    assert fed.ready is not None
    state, there = fed.init(), theirs.init({"when": jnp.int32(0), "who": jnp.int32(0)})
    for number in range(8):
        rollout = roll(number)
        state = fed.put(state, rollout)
        there = theirs.add(there, {"when": rollout.action.T, "who": rollout.step.first.T})
        (paths, leaves), (_, expected) = (
            zip(*jax.tree_util.tree_leaves_with_path(tree), strict=True) for tree in (state[0], there)
        )
        assert paths == tuple(path for path, _ in jax.tree_util.tree_leaves_with_path(there))
        for found, leaf in zip(leaves, expected, strict=True):
            assert found.dtype == leaf.dtype
            np.testing.assert_array_equal(found, leaf)
        assert bool(fed.ready(state)) == bool(theirs.can_sample(there))
        batch = fed.take(state, rollout, jax.random.key(number))
        assert isinstance(batch, Experience)
        drawn = theirs.sample(there, jax.random.split(jax.random.key(number), 1)[0]).experience
        for name, found in batch.samples.items():
            np.testing.assert_array_equal(found, drawn[name].reshape(4, 8, 4).swapaxes(1, 2))


def test_several_buffers_keep_what_each_asks_for() -> None:
    only = REPLAY._replace(keep=lambda traj: traj.action[..., None], length=1, period=1, batch=2)
    first, second = drawn((REPLAY, only), 3)
    assert first["when"].shape == (4, 4, 8) and second.shape == (4, 1, 2, 1)


@pytest.mark.parametrize("least", [T * E, T * E + 1, 2 * T * E])
def test_the_buffer_is_ready_when_it_holds_learning_starts(least: int) -> None:
    for count in (1, 2):
        fed, state = filled(REPLAY._replace(warm_up=least), count)
        assert fed.ready is not None
        assert bool(fed.ready(state)) == (count * T * E >= least)
    rollouts = feed.updates_before_learning(REPLAY._replace(warm_up=least), E, T)
    assert rollouts == (0 if least == T * E else 1)


def test_rollouts_that_only_fill_the_buffer_are_observed_once() -> None:
    """The learner counts timesteps in ``statistics`` and updates in ``updates``."""

    def observe(learner: Learner, traj: Trajectory) -> Learner:
        return learner._replace(statistics=learner.statistics + traj.action.size)

    def update(learner: Learner, data: Experience, key: jax.Array) -> Any:
        learner = observe(learner, data.newest)
        return learner._replace(updates=learner.updates + 1), {"seen": learner.statistics}

    def idle(*_: Any) -> Any:
        return ()

    algorithm = Algorithm(idle, idle, idle, update, observe=observe)
    fed = feed.make_feed(REPLAY._replace(warm_up=3 * T * E), roll(0), E, 1)
    learn, state = jax.jit(learning(algorithm, fed, ONE)), fed.init()
    learner = Learner((), (), (), jnp.int32(0), jnp.int32(0))
    for number in range(1, 5):
        learner, state, metrics = learn(learner, state, roll(number), jax.random.key(number))
        assert learner.statistics == number * T * E and learner.updates == max(number - 2, 0)
        assert metrics["seen"] == (number * T * E if number > 2 else 0)


def test_on_policy_takes_the_trajectory_itself() -> None:
    fed = feed.make_feed((), (), E, 1)
    assert fed.ready is None and fed.num_bytes == 0
    newest = fed.take(fed.put(fed.init(), roll(0)), roll(1), jax.random.key(0))
    assert isinstance(newest, Trajectory) and newest.action[0, 0] == T


@pytest.mark.parametrize(
    ("change", "shards", "sentence"),
    [
        ({"batch": 9}, 2, "batch_size 9 is not divisible by devices 2: set batch_size or devices so that it is."),
        ({"batch": 9, "shares": 3}, 2, "batch_size 3 × ensemble 3 is not divisible by devices 2: "),
        ({"capacity": 17}, 1, "buffer_size 17 is too small .* it must be at least 18."),
        ({"length": 7}, 2, "sequences of 7 steps; it must be at least 72."),
        ({"warm_up": 91}, 1, "learning_starts 91 exceeds"),
    ],
)
def test_impossible_sizes_of_a_buffer_are_refused(change: dict[str, int], shards: int, sentence: str) -> None:
    small = {"capacity": 40} if "length" in change else {}
    with pytest.raises(InputError, match=sentence):
        feed.make_feed(REPLAY._replace(**(small | change)), roll(0), E, shards)


def test_memory_is_said_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = np.array(jax.devices("cpu")[:2])
    monkeypatch.setattr(memory, "free", lambda device: 1_000_000)
    assert (
        memory.check_memory(150_000, devices, 5000, 1)
        == "The replay buffer of 5,000 timesteps takes 300.0 kB of 1.0 MB free."
    )
    with pytest.raises(
        InputError, match=r"2 seeds' replay .* would take 600.0 kB, and writing .* 1.2 MB .* 1.0 MB are free; lower"
    ):
        memory.check_memory(300_000, devices, 5000, 2)
    monkeypatch.setattr(memory, "free", lambda device: None)
    assert "free" not in memory.check_memory(10**15, devices, 5000, 1)


def test_an_accelerator_needs_memory_for_the_buffer_and_its_computer_for_checkpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    devices = np.array([SimpleNamespace(platform="gpu")] * 2)
    monkeypatch.setattr(memory, "free", lambda device: 1_000_000 if device.platform == "gpu" else 1_500_000)
    assert memory.check_memory(700_000, devices, 5000, 1).endswith("takes 700.0 kB of 1.0 MB free on each device.")
    with pytest.raises(InputError, match=r"would take 900.0 kB on each device, but 1.0 MB are free"):
        memory.check_memory(900_000, devices, 5000, 1)
    with pytest.raises(InputError, match=r"take 780.0 kB on each device, and writing .* 1.6 MB .* 1.5 MB are free"):
        memory.check_memory(780_000, devices, 5000, 1)


def test_what_a_run_never_learns_from_is_said(tmp_path: Path) -> None:
    def said(learning_starts: int, **flags: Any) -> list[str]:
        settings = Settings(steps=96.0, num_envs=4, rollout_length=6, devices=1, tensorboard=False)
        settings = override(settings, {flag: flags.pop(flag) for flag in ["schedule_steps"] if flag in flags})
        config = override(iql.Config(), {"hidden": (4,), "buffer_size": 2400, "learning_starts": learning_starts})
        run = api.Run(tmp_path / "run", "iql", "toys:busy", {}, settings, override(config, flags), toys.busy())
        return trainer_of(run, False).warnings

    assert said(96) == [] == said(0, recurrent=4, sequence_length=7)
    filled = "A run of 96 steps has no update, the first of which takes 120: the replay buffer is filled first"
    assert said(97) == [f"{filled} (learning_starts 97)."]
    assert said(0, n_step=2) == [f"{filled} (sequences of 25 steps in each of 4 environments)."]
    assert said(0, n_step=2, sequence_length=24) == []
    (over,) = said(96, schedule_steps=72)
    assert over.startswith("Schedules of schedule_steps 72 are over when learning begins, after 72 steps (learning_s")
    assert said(96, schedule_steps=96) == []
    (cut,) = said(0, recurrent=4, sequence_length=6, sequence_start="episode")
    assert "learns from the first 6 steps of each episode only, and episodes of toys/busy have up to 7." in cut
    assert said(0, recurrent=4, sequence_length=7, sequence_start="episode") == []


def test_samples_are_counted_as_they_are_drawn() -> None:
    """Windows hold one observation and one outcome, however many rewards; the buffer holds whole rollouts."""
    env = toys.drift()
    for n, capacity in ((1, 960), (8, 959)):
        flags = {"hidden": (4,), "n_step": n, "batch_size": 5, "buffer_size": capacity, "learning_starts": 1}
        algorithm = hatd3.make(env.spec, override(hatd3.Config(), flags), Scale(4, 8, 10))
        (one,) = feed.wanted(algorithm.replay)
        made = stages(env, algorithm, 4, 8, 1).feed
        assert made.timesteps == capacity // 32 * 32
        shapes = trajectory_shape(algorithm, fused.make_rollout(env, 4, 8), 4)
        drawn = jax.jit(made.take)(
            made.init(), jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes), jax.random.key(0)
        )
        assert made.sample_bytes == sum(x.nbytes for x in jax.tree.leaves(drawn.samples))
        steps = one.draws * one.batch * memory.timestep_bytes(env.spec)
        assert made.sample_bytes < (1 if n == 1 else 2) * steps


@cache
def compiled(capacity: int) -> tuple[Program, Any]:
    env, layout = toys.busy(), sharding.plan_layout(2, 4, 1)
    config = iql.Config(network=Body((4,), orthogonal=False), buffer_size=capacity, learning_starts=100)
    algorithm = iql.make(env.spec, config, Scale(4, 6, 10))
    program = compile_program(env, algorithm, layout, 6, 10)
    return program, program.start(program.template())


def test_the_buffer_is_changed_in_place() -> None:
    """Beside the state, which is donated, the program needs as little memory for a large buffer as for a small one."""
    needs = {}
    for capacity in (2_400, 240_000):
        program, executable = compiled(capacity)
        analysis = executable.memory_analysis()
        assert analysis.alias_size_in_bytes >= program.feed.num_bytes > 200 * capacity
        needs[capacity] = analysis.temp_size_in_bytes
    assert needs[240_000] < 1.1 * needs[2_400] < 240_000


def test_nothing_is_learned_before_learning_starts() -> None:
    program, executable = compiled(2_400)
    state = program.init(jax.random.split(jax.random.key(0), 2))
    before = jax.device_get(state.learner.policy.actor)
    state, (metrics, _) = executable(state, np.int32(4))  # 96 timesteps
    assert (np.asarray(metrics["td_loss"])[:4] == 0).all() and (np.asarray(state.learner.updates) == 0).all()
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(state.learner.policy.actor), before)
    state, (metrics, _) = executable(state, np.int32(1))
    assert (np.asarray(metrics["td_loss"])[0] > 0).all() and (np.asarray(state.learner.updates) == 1).all()


@pytest.mark.parametrize(("name", "inits"), [("mappo", 1), ("iql", 2)])
def test_a_new_run_is_traced_once(name: str, inits: int) -> None:
    """Tracing takes longer than loading a compiled program. The shapes of a replay buffer need a trace of their own."""
    calls: Counter[str] = Counter()
    module = algorithms.get(name)
    made = module.make(toys.busy().spec, override(module.Config(), {"hidden": (4,)}), Scale(4, 12, 10))

    def counted(what: str) -> Callable:
        def call(*arguments: Any) -> Any:
            calls[what] += 1
            return getattr(made, what)(*arguments)

        return call

    algorithm = made._replace(init=counted("init"), act=counted("act"), update=counted("update"))
    layout = sharding.plan_layout(1, 4, 1)
    program = compile_program(toys.busy(), algorithm, layout, 12, 4)
    program.template()
    assert program.ahead is not None
    compiled = program.ahead()
    program.init(jax.device_put(jax.random.split(jax.random.key(0), 1), layout.named(layout.learner)))
    compiled()
    assert calls == {"init": inits, "act": inits, "update": 1}
