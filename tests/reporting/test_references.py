"""Scores of teams that do not learn: they play legally, are measured once, and stand in the report."""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from test_run_report import report

import counters
import toys
from shoal.algorithms import mappo
from shoal.environments import registry
from shoal.reporting import references
from shoal.reporting.references import NOTHING, RANDOM, REFERENCES_FILE
from shoal.runs.open import open_run
from shoal.runs.run import Run
from shoal.storage.zoo import CARD_FILE
from shoal.training.evaluation import Evaluation
from shoal.training.settings import Settings
from shoal.types import Discrete, Environment, Outline
from support.parsed_html import EVIL, check_harmless
from support.run_folders import run

HORIZON = 4
GAMES = ("matrix/climbing", "matrix/climbing", "matrix/penalty")


def going(names: tuple[str, ...]) -> Environment:
    """Each of two agents earns 1 for its action 0 and nothing for action 1; action 2 is illegal and costs 1000."""
    spec = toys.spec_of("toys/going", (1, 1), Discrete(3), HORIZON, metrics=("steps",), shared_reward=False)
    legal = jnp.broadcast_to(jnp.array([True, True, False]), (2, 3))

    def look(t: Any, action: Any) -> tuple[Any, Any]:
        reward = jnp.array([1.0, 0.0, -1000.0])[action] * (t > 0)
        metrics = jnp.where(t >= HORIZON, t, jnp.nan)[None].astype(jnp.float32)
        return t, toys.step_of(
            spec, jnp.zeros(1), reward, t >= HORIZON, False, legal=legal, first=t == 0, metrics=metrics
        )

    def outline(state: Any) -> Outline:
        return Outline("bodies", {"actions": [list(names)] * 2}, {})

    return Environment(
        spec,
        lambda key: look(jnp.int32(0), jnp.zeros(2, jnp.int32)),
        lambda key, state, action: look(state + 1, action),
        outline=outline,
    )


def test_teams_play_legal_actions_on_the_device() -> None:
    found = references.played(going(("go", "stay", "stop")))
    assert list(found) == [RANDOM, NOTHING]
    for one in found.values():
        assert one.scores.shape == (1, references.EPISODES) and (one.metrics["steps"] == HORIZON).all()
    assert (found[NOTHING].scores == 0.0).all()
    random = found[RANDOM].scores
    assert random.min() >= 0.0 and random.max() <= 2 * HORIZON and len({*random.flat}) > 3
    assert abs(random.mean() - HORIZON) < 0.9  # five standard errors


def test_doing_nothing_needs_an_action_that_is_called_so() -> None:
    assert references._idle(going(("go", "rest", "cheat"))) == {}
    speaks, moves = (registry.make(f"mpe/simple_{name}") for name in ("speaker_listener", "spread"))
    assert isinstance(speaks, Environment) and isinstance(moves, Environment)
    assert references._idle(speaks) == {} and list(references._idle(moves)) == [NOTHING]


def test_a_script_plays_where_it_can() -> None:
    assert list(references._scripted(registry.make("skirmish/3m").spec)) == ["script attack-nearest"]
    assert references._scripted(registry.make("mpe/simple_spread").spec) == {}


def test_random_actions_on_the_host_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "EPISODES", 3)
    ((name, one),) = references.played(counters.hosted()).items()
    assert name == RANDOM and one.scores.shape == (1, 3)
    assert (one.lengths >= 1).all() and (one.lengths <= counters.HORIZON).all() and one.metrics.keys() >= {"won", "gap"}
    monkeypatch.setattr(references, "HOST_SECONDS", -1.0)
    assert references.played(counters.hosted()) == {}


def test_they_are_measured_once_and_stand_beside_the_run_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.storage.manifest.product_rate", lambda: 1e9)
    folder, asked = run(tmp_path / "one", (1.0, 2.0, 4.0)), []

    def played(env: Any) -> Any:
        asked.append(env.spec.name)
        return references_of_going

    references_of_going = references.played(going(("go", "stay", "stop")))
    monkeypatch.setattr(references, "played", played)
    assert not report(folder, replays=False).data["chart-data"][0]["marks"] and not asked
    first, again = report(folder, trust=True), report(folder, trust=True)
    assert asked == ["toys/busy"] and first.tables == again.tables
    ((caption, rows),) = [(c, r) for c, r in first.tables.items() if c.startswith("Mean [range")]
    assert caption.endswith("Teams that do not learn, over their episodes: random actions, doing nothing")
    assert rows[0] == ["metric", "last policies", RANDOM, NOTHING] and rows[1][3].startswith("0.00 [")
    assert len({len(cell.partition(" ")[0].partition(".")[2]) for cell in rows[1][1:]}) == 1, "equal decimals"
    (chart,) = [chart for chart in first.data["chart-data"] if chart["y"] == "Return"]
    mean = float(references_of_going[RANDOM].scores.mean())
    assert chart["marks"] == [[RANDOM, pytest.approx(mean, rel=1e-4)], [NOTHING, 0]]


def test_runs_in_one_environment_share_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Evaluation(np.ones((1, 4, 2)), np.ones((1, 4), int), np.ones((1, 4)))
    asked, kept = [], {"": b"never written"}
    monkeypatch.setattr(references, "played", lambda env: asked.append(env.spec.name) or {RANDOM: found})
    monkeypatch.setattr(references.program_cache, "kept", lambda key: kept.get(key) if key else None)
    monkeypatch.setattr(references.program_cache, "keep", lambda key, data: kept.update({key: data}) if key else None)
    monkeypatch.setattr("shoal.runs.run.key_of", lambda *what: repr(what))
    folders = [tmp_path / str(i) for i in range(len(GAMES))]
    runs = []
    for folder, name in zip(folders, GAMES, strict=True):
        folder.mkdir()
        runs.append(Run(folder, "mappo", name, {}, Settings(), mappo.Config(), registry.make(name)))
        runs[-1].by_name = True
    first, again, other = map(references.measured, runs)
    assert first == again == other == {RANDOM: found.as_json() | {"episodes": 4}}
    assert asked == [*GAMES[1:]] and len(kept) == 3
    assert len({(folder / REFERENCES_FILE).read_text() for folder in folders}) == 1


def test_a_run_against_frozen_policies_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "played", lambda env: pytest.fail("they were measured"))
    assert references.measured(open_run(run(tmp_path / "one", (1.0,), opponents="past"))) == {}


def test_nothing_is_added_to_a_folder_of_policies_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its card has the digests of all its files."""
    monkeypatch.setattr("shoal.storage.manifest.product_rate", lambda: 1e9)
    found = Evaluation(np.ones((1, 4, 3)), np.ones((1, 4), int), np.ones((1, 4)))
    folder = run(tmp_path / "one", (1.0, 2.0, 4.0))
    (folder / CARD_FILE).write_text("{}", encoding="utf-8")
    monkeypatch.setattr(references, "played", lambda env: {RANDOM: found})
    assert report(folder, out=tmp_path / "page.html", trust=True).data["chart-data"][0]["marks"]
    assert not (folder / REFERENCES_FILE).exists()


def test_damaged_or_hostile_references_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.storage.manifest.product_rate", lambda: 1e9)
    folder = run(tmp_path / "one", (1.0, 2.0, 4.0))
    path = folder / REFERENCES_FILE
    for text in ("", "[]", '{"scores": 1}', '{"scores": {"a": 1, "b": {"mean": "x", "per_seed": []}}}'):
        path.write_text(text, encoding="utf-8")
        assert not report(folder, replays=False).data["chart-data"][0]["marks"]
    each = {"mean": 1.0, "low": 0.5, "high": 2.0, "per_seed": [1.0]}
    path.write_text(json.dumps({"scores": dict.fromkeys(EVIL, each)}), encoding="utf-8")
    found = report(folder, replays=False)
    check_harmless(found)
    assert {name for name, _ in found.data["chart-data"][0]["marks"]} == set(EVIL[:4])
