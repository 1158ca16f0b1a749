"""Worker processes mean what the device means; and what becomes of a run when they die, hang, raise or give NaN."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counters
from shoal.errors import GameError, InputError
from shoal.game import HostEnvironment, blank
from shoal.rollouts import fused
from shoal.rollouts.host import PLAYED, Ended, Episodes, Half, HostRollout, Parallelism
from shoal.types import Step, Trajectory

E, T = 6, 9
SOURCES = Path(counters.__file__).parent


def act(policy: Any, carry: Any, step: Step, key: Any, greedy: bool) -> Any:
    """Random legal actions, and a recurrent state that remembers all of an episode."""
    carry = jnp.where(step.first[:, None], 0.0, carry) + step.obs.sum(-1) + policy
    action = jax.random.categorical(key, jnp.where(step.legal, 0.0, -jnp.inf))
    return carry, action, {"memory": carry}


def moving(policy: Any, carry: Any, step: Step, key: Any, greedy: bool) -> Any:
    """Actions beyond the box."""
    return carry, 3.0 * jax.random.normal(key, (*step.alive.shape, 2)), {}


def zeros(num_envs: int) -> Any:
    return jnp.zeros((num_envs, 2))


@contextmanager
def rolling(env: HostEnvironment, workers: int = 1, seeds: int = 1, **width: Any) -> Iterator[tuple[HostRollout, list]]:
    said: list[str] = []
    with closing(HostRollout(env, zeros, Parallelism(seeds, E, workers, **width), T, said.append)) as rollout:
        rollout.init(jax.random.split(jax.random.key(5), seeds))
        yield rollout, said


def collected(rollout: HostRollout, number: int = 0, how: Any = act) -> tuple[Trajectory, Any]:
    seeds = rollout.parallelism.seeds
    return rollout.collect(how, jnp.arange(seeds) / 4, jax.random.split(jax.random.key(7 + number), seeds))


@pytest.mark.parametrize(("continuous", "workers"), [(False, 0), (False, 2), (True, 2)])
def test_the_trajectory_is_the_devices(continuous: bool, workers: int) -> None:
    """Two rollouts of two seeds, episodes running on from one into the other: each half is one device's."""
    how = moving if continuous else act
    device = fused.make_rollout(counters.device(continuous), E // 2, T)
    start, collect = jax.jit(device.init), jax.jit(partial(device.collect, how))
    with rolling(counters.hosted(continuous), workers, seeds=2) as (rollout, said):
        mine = [collected(rollout, number, how) for number in range(2)]
    assert said == []
    for seed in range(2):
        stats = []
        for half in range(2):
            state = start(jax.random.fold_in(jax.random.split(jax.random.key(5), 2)[seed], half), zeros(E // 2))
            for number in range(2):
                key = jax.random.fold_in(jax.random.split(jax.random.key(7 + number), 2)[seed], half)
                state, theirs, ended = collect(jnp.float32(seed / 4), state, key)
                stats.append((number, ended))
                rows = slice(half * E // 2, (half + 1) * E // 2)
                whole = mine[number][0]
                ours = jax.tree.map(lambda x, rows=rows, seed=seed: x[seed][:, rows], whole._replace(carry=()))
                ours = ours._replace(carry=whole.carry[seed][rows])
                assert jax.tree.structure(ours) == jax.tree.structure(theirs)
                for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
                    assert (a.shape, a.dtype) == (b.shape, b.dtype)
                    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
        for number in range(2):
            both = [ended for n, ended in stats if n == number]
            total = jax.tree.map(lambda *x: np.sum(x, axis=0), *both)
            jax.tree.map(
                lambda a, b, seed=seed: np.testing.assert_allclose(a[seed], b, atol=1e-5), mine[number][1], total
            )
            assert total.episodes > 3
    assert not whole.outcome.alive.all() and (whole.outcome.discount == 0).any()  # the toy does what it is for


def test_actions_that_a_game_keeps_stay_what_they_were() -> None:
    kept: list[tuple[Any, Any]] = []
    with rolling(counters.hosted(), 0) as (rollout, _):
        assert rollout.pool.here is not None
        for game in rollout.pool.here.games.values():

            def keeping(action: Any, out: Any, step: Any = game.step) -> None:
                kept.append((action, action.tolist()))
                step(action, out)

            game.step = keeping  # type: ignore[method-assign]
        collected(rollout)
    assert len(kept) == E * T and all(action.tolist() == then for action, then in kept)


@pytest.mark.parametrize(("trouble", "how"), [("die", r"died \(exit code 7\)"), ("hang", "did not answer for 0.5 s")])
def test_a_lost_worker_is_started_again(trouble: str, how: str, tmp_path: Path) -> None:
    with rolling(counters.hosted(False, trouble, str(tmp_path)), 2, timeout=0.5 if trouble == "hang" else 60.0) as made:
        rollout, said = made
        pids = [one.process.pid for one in rollout.pool.workers if one.process]
        files = len(list(Path("/dev/fd").iterdir()))
        trajectory, stats = collected(rollout)
        after, _ = collected(rollout, 1)
        now = [one.process.pid for one in rollout.pool.workers if one.process]
        assert len(list(Path("/dev/fd").iterdir())) <= files
    assert len(said) == 1 and sum(a != b for a, b in zip(pids, now, strict=True)) == 1
    assert re.search(rf"Worker \d {how} and is started again; \d episodes were cut off.", said[0])
    with rolling(counters.hosted(), 2) as (rollout, _):
        undisturbed, calm = collected(rollout)
    last, calm_last = trajectory.outcome.last[0], undisturbed.outcome.last[0]
    # Not only by last: an episode may be cut off at the step at which it ends anyway.
    leaves = [(one.last, one.reward, one.discount, one.obs) for one in (trajectory.outcome, undisturbed.outcome)]
    differs = np.any([(a[0] != b[0]).reshape(T, E, -1).any(-1) for a, b in zip(*leaves, strict=True)], axis=0)
    lost = [e for e in range(E) if differs[:, e].any()]
    assert 0 < len(lost) <= E // 2 + 1  # the other worker's environments never noticed
    for e in set(range(E)) - set(lost):
        jax.tree.map(
            lambda a, b, e=e: np.testing.assert_array_equal(a[:, :, e], b[:, :, e]),
            *[t._replace(carry=(), extras=()) for t in (trajectory, undisturbed)],
        )
    for e in lost:
        t = int(np.argmax(differs[:, e]))
        outcome, step = trajectory.outcome, trajectory.step
        assert outcome.last[0, t, e] and (outcome.discount[0, t, e] == 1).all() and (outcome.reward[0, t, e] == 0).all()
        np.testing.assert_array_equal(outcome.obs[0, t, e], step.obs[0, t, e])
        assert t + 1 == T or (step.first[0, t + 1, e] and step.state[0, t + 1, e, 2] == 0)
    assert stats.episodes.sum() == last.sum() - len(lost)  # cut off by us, so not what the policy earns
    assert np.isfinite(after.outcome.reward).all() and calm.episodes.sum() == calm_last.sum()


def test_a_worker_that_always_dies_ends_the_run() -> None:
    with rolling(counters.hosted(False, "die always"), 1) as (rollout, said), pytest.raises(GameError) as error:
        collected(rollout)
    assert "toys/counters: worker 0 died (exit code 7), 4 times in a row" in str(error.value) and len(said) == 3


def test_an_evaluation_of_which_every_episode_is_lost_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although workers step in between."""
    monkeypatch.setattr("shoal.rollouts.host.PATIENCE", 1)
    said: list[str] = []

    def warn(message: str) -> None:
        said.append(message)
        assert len(said) < 4, "it goes on"

    with rolling(counters.hosted(False, "die in every episode"), 1) as (rollout, _):
        rollout.pool.warn = warn
        with pytest.raises(GameError, match=r"^toys/counters: a worker died or did not answer in 2 episodes of one en"):
            rollout.play(act, jnp.zeros(1), jax.random.split(jax.random.key(1), 1), E)
        assert len(said) == 2


def test_lost_episodes_are_counted_from_the_last_that_was_finished() -> None:
    """And only of environments that still have an episode to play."""
    env, half = counters.hosted(), Half(0, 1, 2, zeros)

    def play(played: Episodes, *lost: bool) -> None:
        outcome = blank(env.spec, 2)
        outcome.last[:] = True
        played.add(half, Ended(outcome, np.zeros((2, 2)), np.ones(2), np.array(lost)))

    played = Episodes(env, Parallelism(1, 2, 0), 20)
    for _ in range(3):
        for lost in (True, True, True, False):
            play(played, lost, False)
    for _ in range(3):
        play(played, True, False)
    with pytest.raises(GameError, match="in 4 episodes of one environment in a row"):
        play(played, True, False)
    played = Episodes(env, Parallelism(1, 2, 0), 2)
    play(played, False, True)
    for _ in range(2):
        play(played, True, True)
    assert played.losses.tolist() == [[0, 3]]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("raise", r"raised ValueError: the counter is stuck in step 3 of an episode, at the action \[\d, \d\]\.$"),
        ("exit", r"raised SystemExit: 0 in step 3 of an episode, at the action \[\d, \d\]\.$"),
        ("nan", r"gave two's reward as nan in step 3 of an episode, at the action \[\d, \d\]\.$"),
        ("nan at reset", r"gave feature 0 of two's observation as nan while it was reset\.$"),
        ("reset", r"raised RuntimeError: no board while it was reset\.$"),
        ("second reset", r"raised RuntimeError: no board while it was reset\.$"),
    ],
    ids=["raise", "exit", "nan", "nan-at-reset", "reset", "second-reset"],
)
def test_a_fault_names_the_environment_the_step_and_the_action(trouble: str, words: str, workers: int) -> None:
    with pytest.raises(GameError, match=f"^toys/counters {words}") as error:  # noqa: SIM117
        with rolling(counters.hosted(False, trouble), workers) as (rollout, _):
            collected(rollout)
    assert trouble.startswith("nan") or "counters.py" in error.value.trace


def test_no_worker_is_waited_for_that_has_answered_before_a_fault() -> None:
    with rolling(counters.hosted(False, "raise later"), 1, timeout=3.0) as (rollout, said):
        with pytest.raises(GameError, match="stuck"):
            rollout.play(act, jnp.zeros(1), jax.random.split(jax.random.key(1), 1), 100)
        (one,) = rollout.pool.workers
        assert one.asked == [1], "the other half has not answered yet, and the one that raised has"
    assert said == []


def test_an_environment_that_cannot_be_built() -> None:
    with pytest.raises(InputError, match="cannot be built in a worker process: OSError: no licence"):  # noqa: SIM117
        with rolling(counters.hosted(False, "make")):
            pass


def test_an_environment_that_cannot_be_built_again(tmp_path: Path) -> None:
    """It could when the run began, so what was learned is saved, as after any fault of a game."""
    with rolling(counters.hosted(False, "die and break", str(tmp_path)), 1) as (rollout, said):
        with pytest.raises(GameError, match="cannot be built in a worker process: OSError: no licence"):
            collected(rollout)
        assert len(said) == 1


def test_a_worker_that_cannot_be_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was learned is saved then, too."""

    def full(*_: object, **__: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    with rolling(counters.hosted(False, "die", str(tmp_path)), 1) as (rollout, _):
        monkeypatch.setattr("shoal.rollouts.worker.subprocess.Popen", full)
        with pytest.raises(GameError, match=r"worker 0 died \(exit code 7\) and cannot be started again: Resource"):
            collected(rollout)


@pytest.mark.parametrize(("envs", "workers"), [(5, 3), (3, 8), (1, 2)])
def test_any_number_of_workers(envs: int, workers: int) -> None:
    """Also where they have unequally many games, more than one seed's, or there are more of them than games."""
    made = []
    for count in (0, workers):
        with closing(HostRollout(counters.hosted(), zeros, Parallelism(2, envs, count), T)) as rollout:
            rollout.init(jax.random.split(jax.random.key(5), 2))
            made.append(jax.tree.leaves([collected(rollout, number) for number in range(2)]))
            assert len(rollout.pool.workers) == min(count, 2 * envs)
    for a, b in zip(*made, strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(made[0]) > 30


def test_environments_that_workers_cannot_import_run_in_this_process() -> None:
    env = HostEnvironment(counters.spec_of(), lambda render=False: counters.Counters())
    with pytest.raises(InputError, match="num_workers 0"):  # noqa: SIM117
        with rolling(env, 2):
            pass
    with rolling(env, 0) as (rollout, _):
        assert collected(rollout)[1].episodes > 0


def test_whole_episodes_are_played_by_all_alike() -> None:
    """As many as asked, from every environment equally many, each with its own return and length."""
    with rolling(counters.hosted(), 2, seeds=2) as (rollout, _):
        keys = jax.random.split(jax.random.key(1), 2)
        returns, lengths, _ = rollout.play(act, jnp.zeros(2), keys, 15)
        again = rollout.play(act, jnp.zeros(2), keys, 15)
    assert returns.shape == (2, 15, 2) and (lengths >= 1).all() and (lengths <= counters.HORIZON).all()
    np.testing.assert_array_equal(returns, again[0])
    with rolling(counters.hosted(), 0, seeds=2) as (rollout, _):
        np.testing.assert_array_equal(rollout.play(act, jnp.zeros(2), keys, 15)[0], returns)
    assert len(np.unique(returns.round(4), axis=1)) > 1 and not (lengths == lengths[0, 0]).all()


@pytest.mark.parametrize("bound", [False, True])
def test_nothing_compiles_in_what_was_prepared(bound: bool) -> None:
    """Its time would be in the seconds of training and of evaluations; also where the policy is bound to a device."""
    compiled: list[str] = []
    learner, keys = np.zeros(1, np.float32), jax.random.split(jax.random.key(1), 1)
    if bound:
        learner, keys = jax.device_put((learner, keys), jax.devices()[0])
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
    with rolling(counters.hosted(), 0) as (rollout, _):
        rollout.init(jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys))
        rollout.prepare(act, learner, keys, False, T)
        rollout.prepare(act, learner, keys, True, PLAYED, 0)
        assert any("backend_compile" in event for event in compiled)
        compiled.clear()
        rollout.collect(act, learner, keys)
        rollout.play(act, learner, keys, 4)
    assert not any("backend_compile" in event for event in compiled)


def test_a_game_is_not_stepped_after_its_last_episode() -> None:
    """Nor one that has none to play; all games are stepped in the next rollout."""
    steps = np.zeros(E, int)
    with rolling(counters.hosted(), 0) as (rollout, _):
        assert rollout.pool.here is not None
        for i, game in rollout.pool.here.games.items():

            def counted(action: Any, out: Any, i: int = i, step: Any = game.step) -> None:
                steps[i] += 1
                step(action, out)

            game.step = counted  # type: ignore[method-assign]
        lengths = rollout.play(act, jnp.zeros(1), jax.random.split(jax.random.key(1), 1), E - 2)[1][0]
        np.testing.assert_array_equal(steps, [*lengths, 0, 0])
        assert len(np.unique(lengths)) > 1
        collected(rollout)
    np.testing.assert_array_equal(steps, [*(lengths + T), T, T])


def gone(pid: int, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_no_worker_outlives_the_training_process(tmp_path: Path) -> None:
    """Neither one that waits for orders nor one that hangs, when nobody could tell them to end."""
    program = f"""
import counters
from shoal.rollouts.pool import Pool
pool = Pool(counters.hosted(False, "hang", {str(tmp_path)!r}), 1, 2, 2)
pool.board.seed[:] = 81  # counters at 1 and 5, which never agree
pool.reset(0); pool.wait(0)
print(*(one.process.pid for one in pool.workers), flush=True)
for _ in range(9):
    pool.step(0); pool.wait(0)
"""
    paths = os.pathsep.join([str(SOURCES), *sys.path])
    main = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": paths}
    )
    assert main.stdout is not None
    pids = [int(word) for word in main.stdout.readline().split()]
    while not (tmp_path / "done").exists() and main.poll() is None:
        time.sleep(0.05)
    main.send_signal(signal.SIGKILL)
    main.wait()
    main.stdout.close()
    assert len(pids) == 2 and all(gone(pid) for pid in pids)


def test_a_worker_needs_no_jax() -> None:
    program = (
        "import pkgutil, sys, importlib; import shoal.rollouts.worker, counters; "
        "import shoal.environments.adapters as a; "
        "on_the_device = {'jaxmarl', 'jaxmarl_families', 'jumanji', 'jumanji_outlines'}; "
        "[importlib.import_module(f'{a.__name__}.{m.name}') for m in pkgutil.iter_modules(a.__path__)"
        " if m.name not in on_the_device]; "
        "assert 'jax' not in sys.modules and 'shoal.runs.api' not in sys.modules"
    )
    paths = os.pathsep.join([str(SOURCES), *sys.path])
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | {"PYTHONPATH": paths})
