"""An agent that is trained in parts is the run that is trained at once."""

import errno
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import counters
import shoal as library
import toys
from shoal.errors import InputError, WriteError
from shoal.runs import build as building
from shoal.runs.agent import Agent
from shoal.runs.api import trainer_of
from shoal.storage.folders import acts_greedily
from shoal.training import ending
from shoal.training.trainer import Continued
from support.past_pools import PAST, noted_intervals
from support.trained import SMALL
from support.trained import one_program as shared_programs

FLAGS: dict[str, Any] = SMALL | {"steps": 120}
"""Five updates of 24 steps."""
FALLING: dict[str, Any] = FLAGS | {"schedule_steps": None, "recurrent": 3, "chunk_length": 3, "lr_final": 0.1}
"""The learning rate falls over these updates."""


@pytest.fixture(scope="module", autouse=True)
def one_program() -> Iterator[None]:
    """Resuming by a program that is traced again is tested in tests/training."""
    with shared_programs():
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> library.Run:
    folder = tmp_path_factory.mktemp("whole") / "run"
    return library.train("mappo", toys.busy, folder=folder, eval_episodes=0, **FLAGS)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with in_parts(tmp_path_factory.mktemp("parts") / "run", FLAGS) as agent:
        yield agent


@pytest.fixture(scope="module")
def falling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with in_parts(tmp_path_factory.mktemp("falling") / "run", FALLING) as agent:
        yield agent


@contextmanager
def in_parts(folder: Path, flags: dict[str, Any]) -> Iterator[Agent]:
    """Trained in parts of one, two and two updates, evaluated and acting in between."""
    with library.agent("mappo", toys.busy, folder=folder, **flags) as agent:
        assert agent.steps == 0
        before = agent.evaluate(4)
        assert agent.steps == 0 and agent._parts._trainer is not None and agent._parts._trainer._advance is None
        agent.train(1)
        advance = agent._parts._trainer._advance
        assert agent.steps == 24 and advance is not None
        assert (agent.evaluate(4).returns != before.returns).any()
        agent.act(np.zeros((3, 6)))
        agent.train(25).train(48)
        assert agent.steps == 120 and agent._parts._trainer._advance is advance
        yield agent


def arrays(run: library.Run) -> list[np.ndarray]:
    """All that is saved of a run's newest checkpoint."""
    run = library.open_run(run.folder, toys.busy)
    template = trainer_of(run, False).program.template()
    state, _, _ = trainer_of(run, False).checkpoints.restore(template)
    keys = lambda x: jax.random.key_data(x) if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key) else x  # noqa: E731
    return [np.asarray(keys(x)) for x in jax.tree.leaves(state)]


def test_parts_give_the_bits_of_the_whole(whole: library.Run, trained: Agent) -> None:
    pairs = zip(arrays(whole), arrays(trained.run), strict=True)
    assert all((x == y).all() for x, y in pairs)
    assert "120 steps" in repr(trained)


def test_parts_with_schedules_give_the_bits_of_the_whole(falling: Agent, tmp_path: Path) -> None:
    whole = library.train("mappo", toys.busy, folder=tmp_path / "run", eval_episodes=0, **FALLING)
    assert all((x == y).all() for x, y in zip(arrays(whole), arrays(falling.run), strict=True))


@pytest.mark.parametrize(("name", "flags", "every"), [("ippo", {}, 50), ("iql", {"learning_starts": 320}, 45)])
def test_past_selves_of_parts_are_those_of_the_whole(
    name: str, flags: dict[str, Any], every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the part ends in which the agent is built again. Of 100 rollouts, nine only fill the buffer of iql."""
    asked = noted_intervals(monkeypatch)
    small: dict[str, Any] = PAST | {"hidden": (4,)} | flags
    run = library.agent(name, toys.busy, folder=tmp_path / "run", steps=3200, **small).run
    for steps in (3200.0, 64.0, 6400.0):
        building.build(name, run.env, run.config, replace(run.settings, steps=steps))
        assert asked[-1] == every


def test_an_agent_that_goes_on_with_self_play_keeps_the_interval_of_its_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's two updates have an interval of one, which more updates would make longer."""
    asked = noted_intervals(monkeypatch)
    small: dict[str, Any] = PAST | {"hidden": (4,), "eval_episodes": 0, "progress": False}
    library.train("ippo", toys.busy, folder=tmp_path / "run", steps=64, **small)
    agent = library.agent(folder=tmp_path / "run", environment=toys.busy, progress=False)
    agent.train(256)
    agent.close()
    run = library.open_run(tmp_path / "run", toys.busy)
    building.build("ippo", run.env, run.config, run.settings)
    assert run.settings.steps == 320 and asked[-1] == 1


def test_it_evaluates_and_acts_as_the_run(whole: library.Run, trained: Agent) -> None:
    assert (trained.evaluate(4).returns == whole.evaluate(4).returns).all()
    assert (trained.evaluate(4, greedy=False, seed=3).returns == whole.evaluate(4, greedy=False, seed=3).returns).all()
    policies, rng = whole.policies(), np.random.default_rng(0)
    trained.reset()
    for _ in range(4):
        observations = rng.normal(size=(3, 6))
        assert (trained.act(observations) == policies.act(observations)).all()
    compiled = trained._policies
    trained.act(observations, greedy=False)
    assert trained._policies is compiled and not compiled.greedy


def test_numbers_of_episodes_and_modes_are_checked(
    whole: library.Run, trained: Agent, unchecked_annotations: None
) -> None:
    both: list[Any] = [whole, trained]
    for one in both:
        assert (one.evaluate(4.0, greedy=True).returns == one.evaluate(np.int64(4), greedy=np.True_).returns).all()
        calls: list[Callable[..., Any]] = [one.evaluate, lambda number, one=one: one.replay(episodes=number)]
        for call, given in itertools.product(calls, (4.5, "4", True, np.nan)):
            with pytest.raises(InputError, match=r"^episodes must be a whole number, not .*\.$"):
                call(given)
        with pytest.raises(InputError, match=r"^episodes must be at least 1, not 0\.$"):
            one.evaluate(0)
        calls = [one.evaluate, one.replay, partial(library.load, one.folder)]
        for call in calls:
            with pytest.raises(InputError, match=r"^greedy must be True or False or None, not 'yes'\.$"):
                call(greedy="yes")
        with pytest.raises(InputError, match=r"^seed must be a whole number, not 1\.5\.$"):
            one.evaluate(4, seed=1.5)


def test_pictures_for_notebooks(trained: Agent) -> None:
    curve, film = trained.curves(), trained.replay(episodes=1)
    assert Path(curve) == trained.folder / "curves.png" and Path(film).name == "replay.gif"
    for picture in (curve, film):
        assert "base64," in (picture._repr_html_() or "") and Path(picture).stat().st_size


def test_a_copied_folder_continues_elsewhere(falling: Agent, tmp_path: Path) -> None:
    """Also after the declared steps, with the last values of schedules: the agent itself goes the same way."""
    falling.evaluate(2)
    falling._greedy = False  # as if sampled actions had been better
    assert falling._evaluated is not None
    falling._evaluated = (falling._evaluated[0], falling._evaluated[1]._replace(greedy=False), 2)
    copy = falling.save(tmp_path / "copy")
    assert acts_greedily(copy, 24) is False
    with pytest.raises(InputError, match="already contains a run"):
        falling.save(copy)
    (own := tmp_path / "own").mkdir()
    for folder, text in ((own, "mine"), (falling.folder, "new")):
        (folder / "policy.onnx").write_text(text)
    with pytest.raises(InputError, match=r"policy\.onnx exists already and would be replaced"):
        falling.save(own)
    assert (own / "policy.onnx").read_text() == "mine" and len(list(own.iterdir())) == 1
    (falling.folder / "policy.onnx").unlink()
    other = library.agent(folder=copy, environment=toys.busy, progress=False)
    other.train(24)
    other.close()
    assert other.steps == 144 and falling.steps == 120
    falling.train(24)
    assert all((x == y).all() for x, y in zip(arrays(other.run), arrays(falling.run), strict=True))
    resumed = library.resume(copy, environment=toys.busy, steps=168, progress=False)
    assert resumed.last_step == 168
    other.train(24)  # from where somebody else has left it
    assert other.steps == 192
    other.close()


def test_ctrl_c_stops_at_the_end_of_an_update(
    whole: library.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = library.agent("mappo", toys.busy, folder=tmp_path / "run", **FLAGS)
    take, asked = Continued._take, []

    def interrupted(self: Continued, *given: Any) -> None:
        take(self, *given)
        if not asked:
            asked.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Continued, "_take", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"Stopped at step 96; train\(\) goes on from there"):
        agent.train(120)
    assert "Stopping after this call" in capsys.readouterr().err
    assert agent.steps == 96  # the first call makes four updates
    agent.train(24)
    assert all((x == y).all() for x, y in zip(arrays(whole), arrays(agent.run), strict=True))


def test_an_agent_continues_from_its_checkpoint_after_an_exception(
    whole: library.Run, trained: Agent, tmp_path: Path
) -> None:
    agent = library.agent("mappo", toys.busy, folder=tmp_path / "run", **FLAGS)
    agent.train(48)
    trainer = agent._parts._trainer
    assert trainer is not None

    def broken(*_: Any) -> Any:
        raise RuntimeError("broken")

    trainer._advance = broken
    with pytest.raises(RuntimeError, match="broken"):
        agent.train(24)
    rows: list[int] = []
    agent.train(48, callbacks=[lambda context, metrics: rows.append(int(metrics["step"]))])
    agent.train(24)
    assert rows == [72, 96]  # of its own part
    assert all((x == y).all() for x, y in zip(arrays(whole), arrays(agent.run), strict=True))


def test_training_beyond_a_learning_rate_of_zero_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Within the schedule it does not, also where both parts are rounded up; beyond it no parameter changes."""
    folder = tmp_path / "run"
    library.agent("mappo", toys.busy, folder=folder, **FALLING | {"lr_final": 0.0, "steps": 50}).train(25)
    with library.agent(environment=toys.busy, folder=folder, progress=False) as agent:
        agent.train(25)  # two updates each, and three in the schedule
        assert agent.steps == 96
        before = agent.evaluate(4)
        assert "learning rate" not in capsys.readouterr().err
        agent.train(24)
        assert "The learning rate is 0 from step 72 on (lr_final is 0)" in capsys.readouterr().err
        np.testing.assert_array_equal(agent.evaluate(4).returns, before.returns)


def test_only_steps_that_were_asked_for_count_for_that_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without training: each part ends with a whole update, and a checkpoint keeps what that adds."""
    kept: dict[str, Any] = {}

    def run(trainer: Continued) -> bool:
        trainer.at = trainer.at._replace(update=trainer.settings.num_updates)
        kept.update(json.loads(json.dumps(trainer.at.as_json())) | {"update": trainer.update})
        return True

    def restored(trainer: Continued) -> None:
        trainer.at = ending.standing(kept["update"], kept)

    monkeypatch.setattr(Continued, "run", run)
    agent = library.agent("mappo", toys.busy, folder=tmp_path / "run", **FALLING | {"lr_final": 0.0, "steps": 75})
    agent.train(25).train(25)  # two updates each, and four in the schedule
    assert kept["beyond"] == 46
    monkeypatch.setattr(Continued, "restore", restored)
    monkeypatch.setattr("shoal.runs.agent.Checkpoints", lambda _: SimpleNamespace(latest=lambda: kept["update"]))
    again = library.agent(environment=toys.busy, folder=tmp_path / "run", progress=False)
    again.train(25)
    assert kept["beyond"] == 69 and "learning rate" not in capsys.readouterr().err
    again.train(1)
    assert "The learning rate is 0 from step 96 on (lr_final is 0)" in capsys.readouterr().err


@pytest.mark.parametrize(("side", "whose"), [("side2_", " of side 2"), ("", " of side 1 and of side 2")])
def test_that_warning_names_the_sides_whose_rate_is_zero(
    side: str, whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Continued, "run", lambda trainer: True)
    flags = FALLING | {"sides": (1, 2, 2), "steps": 24, f"{side}lr_final": 0.0}
    library.agent("mappo+ippo", toys.busy, folder=tmp_path / "run", **flags).train(25)
    said = f"The learning rate{whose} is 0 from step 24 on (lr_final is 0), so training beyond it changes no parameter"
    assert f"{said}{whose}. Create" in capsys.readouterr().err


def test_an_opened_agent_may_evaluate_before_it_trains(trained: Agent, tmp_path: Path) -> None:
    """In a new process, where JAX starts its devices with the first of the two."""
    copy = shutil.copytree(trained.folder, tmp_path / "run", ignore=shutil.ignore_patterns("lock"))
    program = (
        f"import shoal, toys; agent = shoal.agent(environment=toys.busy, folder={str(copy)!r}, progress=False); "
        "agent.evaluate(4); print(agent.train(1).steps)"
    )
    paths = os.pathsep.join([str(Path(toys.__file__).parent), *sys.path])
    env = {name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"} | {"PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(trained.steps + 24)], done.stderr  # other tests may have trained it further


def test_a_host_environment_keeps_its_workers(tmp_path: Path) -> None:
    flags: dict[str, Any] = FLAGS | {"num_workers": 0, "seeds": 1}
    with library.agent("ippo", counters.hosted(), folder=tmp_path / "run", **flags) as agent:
        agent.train(24)
        trainer = agent._parts._trainer
        agent.train(24)
        assert agent._parts._trainer is trainer and agent.steps == 48
        assert agent.evaluate().scores.shape == (1, 32)


def test_by_default_in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    agent = library.agent("mappo", toys.busy, **FLAGS)
    assert agent.folder.is_relative_to(tmp_path) and not list(tmp_path.iterdir())
    monkeypatch.setattr(Continued, "run", lambda _: True)
    agent.train(24)
    assert agent.folder.is_dir() and agent.folder.parent.stat().st_mode & 0o77 == 0


def test_wrong_observations_are_refused_before_anything_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.runs.agent._Parts.begin", lambda _: pytest.fail("it begins to train"))
    agent = library.agent("mappo", toys.busy, folder=tmp_path / "run", **FLAGS)
    widths, first = agent.run.spec.obs_dims, agent.run.spec.agents[0]
    good = [np.zeros(width) for width in widths]
    with pytest.raises(InputError, match=f"{first}'s observation has width {widths[0]}, not 99"):
        agent.act([np.zeros(99), *good[1:]])
    with pytest.raises(InputError, match="legal actions has width"):
        agent.act(good, [np.ones(99)] * len(good))
    with pytest.raises(InputError, match="global state has width"):
        agent.act(good, state=np.zeros(99))


def test_invalid_input_is_refused(tmp_path: Path, trained: Agent) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({}, "needs an algorithm and an environment, or the folder"),
        ({"algorithm": "mappo"}, "mappo needs an environment"),
        ({"algorithm": "qmix", "folder": trained.folder}, "holds a run, whose algorithm .* keeps: omit 'qmix'"),
        ({"folder": trained.folder, "seeds": 2}, "takes no flags but stop_at and time_budget"),
        ({"folder": tmp_path}, "no run"),
        ({"algorithm": "mappo", "environment": toys.busy, "folder": trained.folder}, "already contains a run"),
        ({"algorithm": "mappo", "environment": toys.busy, "hiden": (3,)}, "hiden"),
    ]
    for given, message in refused:
        with pytest.raises(InputError, match=message):
            library.agent(**given)
    for steps in (0, -5, float("nan"), float("inf")):
        with pytest.raises(InputError, match="steps must be at least 1"):
            trained.train(steps)


def test_a_callback_s_stop_ends_one_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without training: to call train again is to go on."""
    before: list[str] = []

    def run(trainer: Continued) -> bool:
        before.append(trainer.at.stopped)
        trainer.at = trainer.at._replace(update=trainer.update + 1, stopped="enough")
        return True

    monkeypatch.setattr(Continued, "run", run)
    library.agent("mappo", toys.busy, folder=tmp_path / "run", **FLAGS).train(48).train(24)
    assert before == ["", ""]


def ends_of(agent: Agent) -> tuple[float, float | None]:
    """What ``run.json`` holds."""
    settings = library.open_run(agent.folder, toys.busy).settings
    return settings.steps, settings.time_budget


def test_a_part_that_a_limit_leaves_nothing_to_train_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And leaves run.json as it is."""
    folder = tmp_path / "run"
    agent = library.agent("mappo", toys.busy, folder=folder, **FLAGS, time_budget=1e-6)
    agent.train(72)
    assert agent.steps == 24 and ends_of(agent) == (72, 1e-6)
    capsys.readouterr()
    agent.train(48)
    assert agent.steps == 24 and ends_of(agent) == (72, 1e-6)
    told = "Nothing was trained: this run has ended at step 24 of 72: 1e-6 s of training are used up; "
    assert capsys.readouterr().err == f"{told}shoal.agent(folder={str(folder)!r}, time_budget=None) goes on with it.\n"
    settings, agent.run.by_name = agent.run.settings, False
    reached = ending.Standing(1, best=(2.0,) * settings.seeds)
    sentence = agent._parts._how_to_go_on(replace(settings, stop_at=1.0), reached)
    assert sentence.endswith(f"(folder={str(folder)!r}, environment=..., stop_at=None) goes on with it.")
    assert library.agent(folder=folder, environment=toys.busy, time_budget=None).run.settings.time_budget is None
    refused: list[tuple[dict[str, Any], str]] = [
        ({"time_budget": 0}, "time_budget must be above 0"),
        ({"stop_at": 1}, "requires eval_every"),
    ]
    for given, message in refused:
        with pytest.raises(InputError, match=message):
            library.agent(folder=folder, environment=toys.busy, **given)


def test_an_agent_goes_by_settings_that_others_have_changed(tmp_path: Path) -> None:
    """Another agent changes a limit, and resuming also a setting with which the trainer is made."""
    folder = tmp_path / "run"
    agent = library.agent("mappo", toys.busy, folder=folder, **FLAGS, time_budget=1e-6)
    agent.train(72)
    with library.agent(folder=folder, environment=toys.busy, time_budget=None, progress=False) as other:
        assert other.train(24).steps == 48 and ends_of(other) == (48, None)
    assert agent.train(24).steps == 72 and ends_of(agent) == (72, None)
    changed: dict[str, Any] = {"steps": 96, "time_budget": 1e6, "checkpoint_seconds": 5}
    library.resume(folder, environment=toys.busy, progress=False, eval_episodes=0, **changed)
    assert agent.train(24).steps == 120 and ends_of(agent) == (120, 1e6)
    assert library.open_run(folder, toys.busy).settings.checkpoint_seconds == 5
    agent.close()


@pytest.fixture
def saved(tmp_path: Path) -> Agent:
    """An agent with policies, which has not been trained."""
    agent = library.agent("mappo", toys.busy, folder=tmp_path / "run", **FLAGS)
    agent._parts.begin()
    return agent


@pytest.mark.parametrize("there", [False, True])
def test_a_copy_is_whole_or_not_there(
    there: bool, saved: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, copies = tmp_path / "copy", shutil.copy2
    if there:
        copy.mkdir()
        (copy / "mine").touch()

    def full(source: Any, target: Any, **_: Any) -> Any:
        if "policy" in str(source):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return copies(source, target)

    failing = SimpleNamespace(**vars(shutil) | {"copytree": partial(shutil.copytree, copy_function=full)})
    monkeypatch.setattr("shoal.runs.agent.shutil", failing)
    with pytest.raises(WriteError, match=r"copy cannot be written: .*No space left on device"):
        saved.save(copy)
    assert copy.exists() == there and [path.name for path in copy.glob("*")] == ["mine"] * there
    monkeypatch.undo()
    saved.save(copy)
    names = {path.name for path in saved.folder.iterdir()} - {".lock"}
    assert {path.name for path in copy.iterdir()} == names | ({"mine"} if there else set())


def test_a_copy_in_the_run_itself_is_refused(tmp_path: Path) -> None:
    agent = library.agent("mappo", toys.busy, folder=tmp_path / "run", **FLAGS)
    for inside in ("", "copy", "checkpoints/copy", "../run/copy"):
        with pytest.raises(InputError, match="lies in the folder of the run itself"):
            agent.save(agent.folder / inside)


def test_an_agent_whose_first_update_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    def refused(*given: Any) -> None:
        raise InputError("This update is wrong.")

    where = tmp_path / "run"
    agent = library.agent("mappo", toys.busy, folder=where, **FLAGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Continued, "_program", refused)
        with pytest.raises(InputError, match=r"This update is wrong\."):
            agent.train(24)
        assert not where.exists()
    agent.train(24)
    assert (where / "run.json").exists() and (where / "policy").exists()
