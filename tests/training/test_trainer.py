"""The loop around the program: rows, signals, sizes, the live line; nothing here compiles a training program."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import toys
from shoal.algorithms import mappo
from shoal.environments.spec_rules import COLUMNS
from shoal.errors import InputError, NonFiniteError
from shoal.options.flags import override
from shoal.runs import api
from shoal.runs.api import trainer_of
from shoal.storage import log
from shoal.training import sharding
from shoal.training.progress import Progress, clock, readable
from shoal.training.settings import Settings
from shoal.training.trainer import Trainer
from shoal.types import Environment, EpisodeStats
from support import trained

SEEDS, UPDATES = 2, 30


def trainer_in(folder: Path, env: Environment | None = None, **flags: Any) -> Trainer:
    settings = override(Settings(seeds=SEEDS, num_envs=4, rollout_length=12, tensorboard=False), flags)
    run = api.Run(folder, "mappo", "toys:busy", {}, settings, mappo.Config(), env or toys.busy())
    return trainer_of(run, False)


def reports(seed: int = 0) -> tuple[dict[str, np.ndarray], EpisodeStats]:
    """What 30 updates say, in numbers of very different size: their float sum depends on the order."""
    rng = np.random.default_rng(seed)

    def wild(*shape: int) -> np.ndarray:
        return rng.normal(size=(UPDATES, SEEDS, *shape)) * 10.0 ** rng.integers(-20, 20, (UPDATES, SEEDS, *shape))

    episodes = rng.integers(0, 3, (UPDATES, SEEDS)).astype(float)
    stats = EpisodeStats(episodes, wild(3) * (episodes[..., None] > 0), episodes * 5)  # type: ignore[arg-type]
    return {"value_loss": wild(), "entropy": rng.random((UPDATES, SEEDS))}, stats


def feed(trainer: Trainer, cuts: list[int], said: Any) -> list[dict[str, Any]]:
    trainer.log.folder.mkdir(exist_ok=True)
    for start, stop in zip([0, *cuts], [*cuts, UPDATES], strict=True):
        trainer._take(jax.tree.map(lambda x, a=start, b=stop: x[a:b], said), stop - start, 0.5)
    trainer.log.flush()
    return log.read_log(trainer.log.folder)


def test_rows_are_means_over_their_updates(tmp_path: Path) -> None:
    metrics, stats = said = reports()
    rows = feed(trainer_in(tmp_path, steps=UPDATES * 48, rows=4), [11], said)  # 30 // 4 = 7 updates in a row
    assert [row["update"] for row in rows] == [7, 14, 21, 28, 30]
    assert [row["step"] for row in rows] == [48 * row["update"] for row in rows]
    for row, start in zip(rows, (0, 7, 14, 21, 28), strict=True):
        part = slice(start, min(start + 7, UPDATES))
        np.testing.assert_allclose(row["value_loss"], metrics["value_loss"][part].mean(0), rtol=1e-9)
        np.testing.assert_allclose(row["entropy"], metrics["entropy"][part].mean(0))
        for s in range(SEEDS):
            count = stats.episodes[part, s].sum()
            if count == 0:
                assert row["return"][s] is None and row["episode_length"][s] is None
                continue
            each = stats.returns[part, s].sum(0) / count
            np.testing.assert_allclose([row[f"return/agent_{i}"][s] for i in range(3)], each, rtol=1e-9)
            np.testing.assert_allclose(row["return"][s], each.sum(), rtol=1e-9)  # the score of toys.busy is the sum
            assert row["episode_length"][s] == 5.0


def test_updates_that_only_fill_replay_buffers_are_in_no_mean(tmp_path: Path) -> None:
    metrics, stats = reports()
    loss = np.where(np.arange(UPDATES)[:, None] < 11, 0.0, metrics["entropy"])
    trainer = trainer_in(tmp_path, steps=UPDATES * 48, rows=4)
    trainer._filling = 11
    rows = feed(trainer, [9, 13], ({"td_loss": loss}, stats))
    assert rows[0]["td_loss"] == [0.0] * SEEDS
    for row, part in zip(rows[1:], (slice(11, 14), slice(14, 21), slice(21, 28), slice(28, 30)), strict=True):
        np.testing.assert_allclose(row["td_loss"], loss[part].mean(0))


def test_a_score_can_be_the_mean_over_agents(tmp_path: Path) -> None:
    said = reports()
    rows = feed(trainer_in(tmp_path, toys.tempting(), steps=UPDATES * 48, rows=1), [], said)
    total = said[1].returns[..., :2].sum(0) / said[1].episodes.sum(0)[:, None]
    np.testing.assert_allclose(rows[0]["return"], (said[1].returns.sum(0) / said[1].episodes.sum(0)[:, None]).mean(-1))
    assert [rows[0][f"return/agent_{i}"] for i in range(2)] == total.T.tolist()


def test_metrics_of_episodes_are_columns_by_their_names(tmp_path: Path) -> None:
    """Each over the episodes in which it is known; an update's metric of the same name steps aside."""
    env = toys.busy()
    env = dataclasses.replace(env, spec=dataclasses.replace(env.spec, metrics=("won", "entropy", "luck")))
    metrics, stats = reports()
    rng = np.random.default_rng(5)
    known = rng.integers(0, 2, (UPDATES, SEEDS, 3)) * stats.episodes[..., None]
    known[:7, 0, 1] = 0
    sums = rng.random(known.shape) * known
    stats = stats._replace(metrics=sums, known=known)  # type: ignore[arg-type]
    rows = feed(trainer_in(tmp_path, env, steps=UPDATES * 48, rows=4), [11], (metrics, stats))
    for row, start in zip(rows, (0, 7, 14, 21, 28), strict=True):
        part = slice(start, min(start + 7, UPDATES))
        for s in range(SEEDS):
            for i, name in enumerate(("won", "entropy", "luck")):
                count = known[part, s, i].sum()
                expected = sums[part, s, i].sum() / count if count else None
                assert row[name][s] == (None if expected is None else pytest.approx(expected))
        np.testing.assert_allclose(row["update/entropy"], metrics["entropy"][part].mean(0))
    assert rows[0]["entropy"][0] is None
    assert {"metrics", "known"}.isdisjoint(rows[0])
    fixed = set(rows[0]) - {"won", "luck", "update/entropy", *metrics}
    assert {name for name in fixed if "/" not in name} == set(COLUMNS)  # names that check_spec refuses


def test_metrics_of_an_update_do_not_replace_other_columns(tmp_path: Path) -> None:
    metrics, stats = reports()
    names = ("return", "return/agent_0", "returns", "episodes", "step", "count", "learned", "spent")
    own = metrics | dict.fromkeys(names, metrics["entropy"])
    plain, rows = (
        feed(trainer_in(tmp_path / str(i), steps=UPDATES * 48, rows=4), [11], (found, stats))
        for i, found in enumerate((metrics, own))
    )
    for row, other in zip(rows, plain, strict=True):
        aside = {name: row.pop(f"update/{name}") for name in names}
        assert all(values == row["entropy"] for values in aside.values())
        for timed in ("seconds", "steps_per_second"):
            del row[timed], other[timed]
        assert row == other


def test_metrics_that_no_episode_has_are_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, stats = reports()
    known = np.repeat(stats.episodes[..., None], 3, -1)
    known[..., 1] = 0
    stats = stats._replace(metrics=1.0 * known, known=known)  # type: ignore[arg-type]
    monkeypatch.setattr("shoal.training.trainer.HEARD", int(stats.episodes[:12].sum()))
    trainer = trainer_in(tmp_path, steps=UPDATES * 48, rows=UPDATES)
    for i in range(UPDATES):
        part = jax.tree.map(lambda x, i=i: x[i : i + 1], (metrics, stats))
        trainer._take(part, 1, 0.5)
        said = capsys.readouterr().err
        named = f"None of the first {stats.episodes[:12].sum():.0f} episodes had the metric steps. An environment"
        assert (named in said) == ("None of" in said) == (i == 11)


def test_a_row_is_the_same_to_the_bit_however_calls_cut_it(tmp_path: Path) -> None:
    """Calls are as long as the clock says, so rows may not depend on where one ends: a resumed run would differ."""
    rng, said = np.random.default_rng(1), reports()
    expected = None
    for i in range(6):
        cuts = sorted(rng.choice(np.arange(1, UPDATES), size=i, replace=False).tolist())
        trainer = trainer_in(tmp_path / str(i), steps=UPDATES * 48, rows=4)
        rows = [
            {k: v for k, v in row.items() if "seconds" not in k and "second" not in k}
            for row in feed(trainer, cuts, said)
        ]
        expected = expected or rows
        assert rows == expected


def test_a_shorter_row_after_resuming(tmp_path: Path) -> None:
    """Fewer steps make shorter rows; the row under way may already be longer than that."""
    trainer = trainer_in(tmp_path, steps=UPDATES * 48, rows=1)
    said = reports()
    trainer._take(jax.tree.map(lambda x: x[:20], said), 20, 0.5)
    trainer.per_row = 5
    trainer._take(jax.tree.map(lambda x: x[20:], said), 10, 0.5)
    trainer.log.flush()
    assert trainer.update == UPDATES
    assert [row["update"] for row in log.read_log(tmp_path)] == [21, 26, 30]


@pytest.mark.parametrize("names", [("won", "steps", "luck", "calm"), ("won", "steps", "calm")])
def test_a_row_goes_on_where_the_metrics_of_episodes_have_changed(names: tuple[str, ...], tmp_path: Path) -> None:
    """With sums of the new metrics alone."""
    metrics, stats = reports()
    state = trained.idle_program().init(None)

    def trainer(env: Environment) -> Trainer:
        made = trainer_in(tmp_path, env, steps=UPDATES * 48, rows=1, devices=1)
        made.program = made.program._replace(template=lambda: state)
        return made

    def said(part: slice, count: int, value: float) -> Any:
        known = np.repeat(stats.episodes[..., None], count, -1)
        return jax.tree.map(lambda x: x[part], (metrics, stats._replace(metrics=value * known, known=known)))

    env = toys.busy()
    first = trainer(env)
    first.state = state
    first._take(said(slice(0, 20), 3, 1.0), 20, 0.5)
    first.save()

    def step(*given: Any) -> Any:
        after, outcome = env.step(*given)
        metrics: Any = outcome.metrics
        return after, outcome._replace(metrics=jax.numpy.resize(metrics, (len(names),)))

    later = trainer(Environment(dataclasses.replace(env.spec, metrics=names), env.reset, step))
    later.restore()
    later._take(said(slice(20, UPDATES), len(names), 2.0), UPDATES - 20, 0.5)
    later.log.flush()
    (row,) = log.read_log(tmp_path)
    assert row["update"] == UPDATES and all(row[name] == [2.0, 2.0] for name in names)
    np.testing.assert_allclose(row["episode_length"], 5.0)
    np.testing.assert_allclose(row["entropy"], metrics["entropy"].mean(0))


def test_every_seed_starts_from_its_own_number(tmp_path: Path) -> None:
    """So seed 4 is the same whether a run begins with it or with seed 3."""
    given = []

    def init(keys: jax.Array) -> None:
        given.append(jax.random.key_data(keys))
        raise KeyboardInterrupt

    trainer = trainer_in(tmp_path, steps=48, seed=3)
    trainer.program = trainer.program._replace(init=init, ahead=None)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    np.testing.assert_array_equal(given[0], [jax.random.key_data(jax.random.key(seed)) for seed in (3, 4)])


def test_a_metric_that_is_not_finite_is_named(tmp_path: Path) -> None:
    trainer = trainer_in(tmp_path, steps=UPDATES * 48, seed=3)
    metrics, stats = reports()
    metrics["value_loss"][12:, 0] = np.nan  # what it leads to
    metrics["entropy"][8, 1] = np.inf
    with pytest.raises(
        NonFiniteError, match=r"^entropy of seed 4 is inf after update 9; the checkpoint after update"
    ) as error:
        trainer._take((metrics, stats), UPDATES, 0.5)
    assert "a high learning rate, or an environment that shows NaN (shoal check) may be the cause" in str(error.value)
    assert str(error.value).endswith(f"--init-from {tmp_path} --learning-rate RATE."), "--resume refuses another rate"
    assert log.read_log(tmp_path) == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"steps": 0}, "steps must be at least 1 and at most 1e15, not 0"),
        ({"steps": float("nan")}, "steps must be a number, not nan"),
        ({"steps": float("inf")}, "steps must be at least 1 and at most 1e15, not inf"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"num_envs": 0}, "num_envs must be at least 1"),
        ({"rollout_length": 0}, "rollout_length must be at least 1"),
        ({"rows": 0}, "rows must be at least 1"),
        ({"keep": 0}, "keep must be at least 1"),
        ({"seed": -1}, "seed must be at least 0 and at most 2147483647"),
        ({"seed": 2**31}, "seed must be at least 0 and at most 2147483647"),
        ({"devices": 0}, "devices must be at least 1"),
        ({"eval_episodes": -1}, "eval_episodes must be at least 0"),
        ({"checkpoint_seconds": -0.1}, "checkpoint_seconds must be at least 0"),
        ({"seed": 2**31 - 2, "seeds": 3}, "3 seeds from 2147483646 on exceed the largest seed, 2147483647"),
        ({"steps": 1e15}, "1e15 steps are [0-9]+ updates, and the limit is 2147483647"),
        ({"devices": 3}, "devices is 3, but this machine has only 2"),
        ({"devices": 2, "num_envs": 3, "seeds": 1}, "num_envs 3 is not divisible by the 2 devices"),
    ],
)
def test_impossible_sizes_are_refused(tmp_path: Path, flags: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        trainer_in(tmp_path / "run", **flags)
    assert not (tmp_path / "run").exists()


def test_updates_are_rounded_up() -> None:
    assert Settings(steps=1.0, num_envs=4, rollout_length=12).num_updates == 1
    assert Settings(steps=48.0, num_envs=4, rollout_length=12).num_updates == 1
    assert Settings(steps=49.0, num_envs=4, rollout_length=12).num_updates == 2


@pytest.mark.parametrize(
    ("seeds", "num_envs", "devices", "shards"),
    [
        (1, 4, None, (1, 2)),  # environments are cut where seeds cannot be
        (2, 4, None, (2, 1)),  # seeds first: they never talk
        (3, 4, None, (1, 2)),
        (4, 3, None, (2, 1)),
        (1, 3, None, (1, 1)),  # an odd E uses one device rather than none
        (3, 4, 1, (1, 1)),
        (1, 4, 2, (1, 2)),
    ],
)
def test_seeds_and_environments_are_sharded_over_devices(
    seeds: int, num_envs: int, devices: int | None, shards: tuple[int, int]
) -> None:
    layout = sharding.plan_layout(seeds, num_envs, devices)
    assert tuple(layout.mesh.shape.values()) == shards
    assert (layout.seeds * shards[0], layout.num_envs * shards[1]) == (seeds, num_envs)


def test_the_progress_line_has_step_rate_and_return(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(2_000_000, seeds=2, shown=True, quiet=0.0)
    progress.update(500_000, None, 1e5)
    progress.update(1_000_000, -12.345, 1e5)
    progress.update(2_000_000, None, 1e5)  # no episode ended: the last known return stands
    progress.close()
    assert capsys.readouterr().err.splitlines() == [
        "500k/2M steps × 2 seeds · 100k steps/s · 0:30 left",
        "1M/2M steps × 2 seeds · 100k steps/s · return -12.35 · 0:20 left",
        "2M/2M steps × 2 seeds · 100k steps/s · return -12.35 · 0:00 left",
    ]
    hidden = Progress(10, seeds=1, shown=False)
    hidden.update(10, 1.0, 1.0)
    hidden.say("nothing")
    hidden.close()
    assert capsys.readouterr().err == ""


def test_numbers_for_people() -> None:
    assert [readable(x) for x in (0, 12.3456, 999, 1234, 5e6, 2.5e9)] == ["0", "12.3", "999", "1.23k", "5M", "2.5G"]
    assert [readable(x) for x in (999.4, 999.7, 999_499, 999_500, -999_999, 999_900_000)] == [
        "999", "1k", "999k", "1M", "-1M", "1G",
    ]  # fmt: skip
    assert [clock(x) for x in (0, 59.9, 75, 3725)] == ["0:00", "0:59", "1:15", "1:02:05"]
