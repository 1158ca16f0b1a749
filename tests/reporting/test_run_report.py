"""The report of a run: what it says of the folder's files, what is missing, and that nothing in them is run."""

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import shoal as library
from shoal import cli
from shoal.cli import train
from shoal.errors import GameError, InputError
from shoal.options.flags import flags_of, override
from shoal.plots.charts import Estimates, learning_curves, seeds_line
from shoal.presets import preset
from shoal.reporting import command, facts, page, references
from shoal.reporting.charts import estimates_table, lines_data
from shoal.reporting.replays import replays
from shoal.runs.open import open_run
from shoal.storage.log import Log
from shoal.storage.zoo import write_card
from shoal.system import shipped
from shoal.training.settings import Settings
from support.parsed_html import EVIL, Parsed, check_harmless
from support.run_folders import run
from support.unplayed_episodes import made_of, painted, talking

SCORES = (1.0, 2.0, 4.0)


@pytest.fixture(autouse=True)
def rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the machine's rate nor the scores of teams that do not learn are measured."""
    monkeypatch.setattr("shoal.storage.manifest.product_rate", lambda: 123.4e9)
    monkeypatch.setattr(references, "played", lambda env: {})


def report(folder: Path, **options: Any) -> Parsed:
    return Parsed(library.report(folder, **options))


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    found = json.loads(path.read_text("utf-8"))
    change(found)
    path.write_text(json.dumps(found), encoding="utf-8")


def test_the_report_has_the_numbers_of_the_files(tmp_path: Path) -> None:
    folder = run(tmp_path / "one", SCORES, won=(0.25, 0.5, 1.0), gamma=0.5)
    found = report(folder)
    assert "mappo on toys:busy" in found.text
    assert found.tables["Mean [range over 3 seeds]; 8 greedy episodes per seed"] == [
        ["metric", "last policies"],
        ["Score", "2.3 [1.0, 4.0]"],
        ["Win rate (%)", "58 [25, 100]"],
    ]
    cards = ["Score", "2.3", " [1.0, 4.0]", "Win rate (%)", "58", " [25, 100]", "Seeds", "3"]
    assert cards == found.texts[(at := found.texts.index("2.3") - 1) : at + len(cards)], "the score comes first"
    assert found.tables["Mean over the final episodes of each seed"] == [
        ["seed", "Score, last policies", "Win rate (%), last policies"],
        ["0", "1", "25"],
        ["1", "2", "50"],
        ["2", "4", "100"],
    ]
    changed = next(rows for caption, rows in found.tables.items() if caption.startswith("Flags that differ"))
    assert ["--gamma", "0.5", "0.99", "given"] in changed and ["--seeds", "3", "1", "given"] in changed
    every = {row[0]: row[1] for row in found.tables["All flags of the run"]}
    assert every["--gamma"] == "0.5" and every["--hidden"] == "64 64" and every["--time-budget"] == "None"
    made = json.loads((folder / "run.json").read_text("utf-8"))["made_with"]
    assert made["hardware"]["processor"] in found.text and f"jax {made['versions']['jax']}" in found.text
    assert "123 GFLOP/s in a 2048³ float32 product" in found.text
    check_harmless(found)


def test_a_metric_that_is_called_score_is_shown_beside_the_score(tmp_path: Path) -> None:
    folder = run(tmp_path / "one", SCORES)
    goals = {"mean": 7.0, "low": 6.0, "high": 8.0, "per_seed": [6.0, 7.0, 8.0]}
    edit(folder / "evaluation.json", lambda told: told["metrics"].update(score=goals))
    (folder / references.REFERENCES_FILE).write_text(
        json.dumps({"scores": {"random actions": {"mean": 0.5, "per_seed": [0.5], "metrics": {"score": goals}}}})
    )
    log = Log(folder, tensorboard=False)
    log.resume(192)
    log.write({"step": 240, "return": [1.0, 2.0, 4.0], "score": [6.0, 7.0, 8.0]})
    found = report(folder, replays=False)
    table = next(rows for caption, rows in found.tables.items() if caption.startswith("Mean [range"))
    assert [row[:2] for row in table[1:]] == [
        ["Score", "2.3 [1.0, 4.0]"],
        ["Win rate (%)", "50 [50, 50]"],
        ["Score (metric)", "7.0 [6.0, 8.0]"],
    ]
    each = found.tables["Mean over the final episodes of each seed"]
    assert [row[1:] for row in each[1:]] == [["1", "50", "6"], ["2", "50", "7"], ["4", "50", "8"]]
    marks = {chart["y"]: chart["marks"] for chart in found.data["chart-data"]}
    assert marks["Return"] == [["random actions", 0.5]] and marks["Score"] == [["random actions", 7]]


def test_curves_are_the_means_over_seeds_of_the_log(tmp_path: Path) -> None:
    found = report(run(tmp_path / "one", SCORES))
    (chart,) = [chart for chart in found.data["chart-data"] if chart["y"] == "Return"]
    training, greedy = chart["lines"]
    assert (training["name"], greedy["name"]) == ("training", "greedy evaluations")
    assert greedy["x"] == [48, 96, 144, 192]
    for k, share in enumerate((0.25, 0.5, 0.75, 1.0)):
        here = [share * score for score in SCORES]
        assert greedy["mean"][k] == pytest.approx(sum(here) / 3, rel=1e-4)
        assert (greedy["low"][k], greedy["high"][k]) == (here[0], here[2])  # the range of three seeds
        assert [seed[k] for seed in greedy["seeds"]] == here


def test_a_metric_of_all_seeds_is_not_said_to_be_of_one_seed(tmp_path: Path) -> None:
    each = {}
    for seeds in (1, 3):
        folder = run(tmp_path / str(seeds), SCORES[:seeds], greedy=False)
        log = Log(folder, tensorboard=False)
        log.resume(192)
        log.write({"step": 240, "loss": 0.5})
        text = report(folder, replays=False).text
        each[seeds] = ["1 seed." in text, "One value for all seeds." in text]
    assert each == {1: [True, False], 3: [False, True]}


def test_long_logs_are_thinned_and_many_seeds_are_left_out(tmp_path: Path) -> None:
    folder = run(tmp_path / "one", tuple(range(20)), steps=[48 * i for i in range(1, 602)])
    found = report(folder)
    (chart,) = [chart for chart in found.data["chart-data"] if chart["y"] == "Return"]
    for line in chart["lines"]:
        assert len(line["x"]) == 60 and line["x"][-1] == 48 * 601 and len(line["seeds"]) == 12
    steps = 48.0 * np.arange(1, 602)
    first = np.array_split(np.mean(np.arange(20)) * steps / steps[-1], 60)[0]
    assert chart["lines"][1]["mean"][0] == pytest.approx(first.mean(), rel=1e-4)
    assert "Each point is the mean of 10 or 11 of 601 rows of the log." in found.text


def test_large_values_that_differ_little_keep_their_differences() -> None:
    values = 100_000.0 + np.linspace(0.0, 7.0, 50)[:, None]
    (line,) = lines_data(learning_curves([seeds_line("a", np.arange(50.0), values)], "return"))["lines"]
    np.testing.assert_allclose(line["mean"], values[:, 0], atol=1e-4)
    (line,) = lines_data(learning_curves([seeds_line("a", np.arange(2.0), np.array([[1 / 3], [1e4]]))], "return"))[
        "lines"
    ]
    assert line["mean"] == [0.33333, 10000]


def test_equal_estimates_of_any_size_are_in_the_middle() -> None:
    for value in (0.0, 2.5, -3e17):
        table = estimates_table(Estimates({"a": (value, value, value)}, "Score"))
        assert re.findall('class="point" x1="([0-9.]+)"', table) == ["500.0"], value


def test_charts_that_are_left_out_are_counted(tmp_path: Path) -> None:
    folder = run(tmp_path / "one", SCORES)
    log = Log(folder, tensorboard=False)
    log.resume(192)
    log.write({"step": 240, "text": "a"} | {f"m{i}": 1.0 for i in range(63)})
    found = report(folder)
    assert "The first 60 of 63 metrics." in found.text and len(found.data["chart-data"]) == 61


def test_the_same_files_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run(tmp_path / "one", SCORES)
    first = library.report(folder).read_bytes()
    monkeypatch.setattr("shoal.storage.manifest.product_rate", lambda: 99e9)  # the first rate is kept
    assert library.report(folder, out=tmp_path / "there" / "page.html").read_bytes() == first
    assert library.report(open_run(folder)).read_bytes() == first


def test_the_range_of_few_episodes_is_called_one(tmp_path: Path) -> None:
    folder = run(tmp_path / "one", (2.0,))
    assert "Mean [95% interval over the episodes of 1 seed]; 8 greedy episodes per seed" in report(folder).tables
    edit(folder / "evaluation.json", lambda found: found.update(episodes=3))
    assert "Mean [range over the episodes of 1 seed]; 3 greedy episodes per seed" in report(folder).tables


def test_missing_or_damaged_files_are_stated(tmp_path: Path) -> None:
    folder = run(tmp_path / "one", SCORES)
    (folder / "evaluation.json").write_text('{"mean": "high"}', encoding="utf-8")
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as log:
        log.write('{"step": \n')
    unasked = run(tmp_path / "unasked", SCORES, eval_episodes=0)
    (unasked / "evaluation.json").unlink()
    found = report(folder)
    assert "The final evaluation (evaluation.json) is damaged, so there is no final score." in found.text
    assert "metrics.jsonl of 'one' is damaged: 1 line is left out." in found.text
    assert "No checkpoint of the run is intact" in found.text
    assert "evaluation.json" not in report(unasked).text, "nothing is missing"
    (folder / "evaluation.json").unlink()
    (folder / "metrics.jsonl").unlink()
    assert "Steps per seed" not in report(folder).texts
    edit(folder / "run.json", lambda x: x["made_with"].clear())
    found = report(folder)
    assert "final evaluation (evaluation.json) is missing" in found.text and "(metrics.jsonl) is missing" in found.text
    assert found.data["chart-data"] == [] and "since Shoal was installed as a package" in found.text
    edit(folder / "run.json", lambda x: x["config"]["config"].pop("gamma"))
    assert "The run cannot be opened: " in report(folder).text


def test_the_score_of_a_run_that_has_trained_on_has_its_step(tmp_path: Path) -> None:
    """It is not that of the last policies."""
    folder = run(tmp_path / "one", SCORES)
    edit(folder / "evaluation.json", lambda x: x.update(best={**x}))
    (folder / "policy" / "4").mkdir(parents=True)
    assert "last policies" in report(folder).text
    (folder / "policy" / "5").mkdir()
    found = report(folder)
    (rows,) = [rows for caption, rows in found.tables.items() if caption.startswith("Mean [")]
    assert rows[0] == ["metric", "policies after step 192", "best policies up to step 192"]
    assert "The run has trained on since its final evaluation, whose scores are those of step 192." in found.text
    assert found.texts[found.texts.index("2.3") - 1] == "Score after step 192"
    found = report(folder, against=run(tmp_path / "other", SCORES, "qmix"))
    rows = found.tables["The scores, and steps, time and speed of training"]
    assert "Score after step 192" in rows[0] and "Score" in rows[0] and "last policies" not in rows[0]


def test_numbers_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    folder = run(tmp_path / "one", SCORES)
    log = Log(folder, tensorboard=False)
    log.resume(192)
    log.write({"step": 240, "loss": float("nan"), "huge": 10**400, "text": "a", "kl": [1.0, None, float("inf")]})
    found = report(folder)
    names = {chart["y"] for chart in found.data["chart-data"]}
    assert "Kl" in names and not {"Loss", "Huge", "Text"} & names


def hostile(folder: Path) -> Path:
    """A run folder in which every text that may be any is hostile."""
    run(folder, SCORES)

    def change(found: dict[str, Any]) -> None:
        config, made = found["config"], found["made_with"]
        config["environment"] = EVIL[0]
        config["env"] = {EVIL[1]: EVIL[2], EVIL[3]: [EVIL[4]]}
        config["spec"]["name"] = EVIL[1]
        made["versions"] = dict.fromkeys(EVIL, EVIL[0])
        made["commit"], made["platform"] = EVIL[2], EVIL[3]
        made["hardware"] = {"processor": EVIL[4], "cores": EVIL[0], "memory_gib": EVIL[1]}
        made["hardware"]["devices"] = [{"kind": EVIL[2], "count": EVIL[3]}]

    edit(folder / "run.json", change)
    each = {"per_seed": [1, 2, 3], "mean": 2, "low": 1, "high": 3}
    evaluation = each | {"metrics": dict.fromkeys(EVIL, each), "text": EVIL[0], "episodes": EVIL[1], "step": EVIL[2]}
    (folder / "evaluation.json").write_text(json.dumps(evaluation), encoding="utf-8")
    rows = [{"step": step} | {name: [step, 2, 3] for name in (*EVIL, f"return/{EVIL[0]}", "return")} for step in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return folder


def test_texts_of_a_hostile_folder_are_shown_as_texts(tmp_path: Path) -> None:
    path = library.report(hostile(tmp_path / "bad"))
    found = Parsed(path)
    check_harmless(found)
    for text in EVIL:
        assert text in found.text
    named = {line["name"] for chart in found.data["chart-data"] for line in chart["lines"]}
    assert set(EVIL) <= named
    assert not any(text in path.read_text("utf-8") for text in EVIL if "<" in text)
    command_line = next(text for text in found.texts if text.startswith(("shoal train", "shoal.train(")))
    assert repr(EVIL[0]) in command_line or shlex.quote(EVIL[0]) in command_line


def test_a_module_of_another_user_is_not_imported(tmp_path: Path) -> None:
    folder = run(tmp_path / "one", SCORES)
    edit(folder / "run.json", lambda x: x["config"].update(algorithm="evil_module:make"))
    found = report(folder)
    assert "The run cannot be opened: " in found.text and "evil_module" in found.text
    assert ["--gamma", "0.99"] in found.tables["All flags of the run"]


def test_the_report_stays_below_its_limit_of_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, asked, more = run(tmp_path / "one", SCORES), [], 0

    def played(runs: Any, *, episodes: int, budget: int, **_: Any) -> dict[str, Any]:
        asked.append((episodes, budget))
        return {"pad": "<" * (budget // 6 - 20 + more)}  # each is six bytes in the page

    monkeypatch.setattr(command, "played", played)
    assert report(folder, episodes=5).size < page.MAX_PAGE_BYTES and asked == [(5, page.REPLAYS)]
    monkeypatch.setattr(page, "MAX_PAGE_BYTES", 400_000)
    assert 300_000 < report(folder).size < 400_000
    more = 200
    found = report(folder)
    assert "replay-data" not in found.data and "they would exceed its size limit" in found.text
    monkeypatch.setattr(page, "MAX_PAGE_BYTES", 50_000)
    with pytest.raises(InputError, match=r"more than the limit of 0 MB"):
        report(folder)


def test_episodes_that_cannot_be_played_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run(tmp_path / "one", SCORES)
    for error in (InputError("No policy is here."), GameError("It", 0, "broke", "")):
        monkeypatch.setattr(command, "played", lambda *_, error=error, **__: (_ for _ in ()).throw(error))
        found = report(folder)
        assert f"The episodes cannot be played: {error}" in found.text and "replay-data" not in found.data
    monkeypatch.setattr(command, "played", lambda *_, **__: {"runs": [EVIL[0]]})
    found = report(folder)
    assert found.data["replay-data"] == {"runs": [EVIL[0]]} and "Actions are greedy." in found.text
    edit(folder / "evaluation.json", lambda x: x.update(greedy=False))
    assert "Actions are sampled." in report(folder).text
    assert "replay-data" not in report(folder, replays=False).data


def test_two_runs_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = run(tmp_path / "one", SCORES), run(tmp_path / "other", (5.0, 6.0, 7.0, 7.5, 9.0), "qmix")
    labels: list[str] = []
    monkeypatch.setattr(command, "played", lambda runs, **_: labels.extend(label for label, _ in runs))
    edit(one / "run.json", lambda x: x["made_with"]["hardware"].update(cores=1))
    found = report(one, against=other)
    assert (
        ", 1 core, " in found.text and "mappo: Mean of 3 seeds; band: range. qmix: Mean of 5 seeds; band:" in found.text
    )
    assert labels == ["mappo", "qmix"] and "compared with qmix" in found.text
    assert "shoal report one --against other" in found.texts and "shoal report other" in found.texts
    ((caption, rows),) = [(c, r) for c, r in found.tables.items() if c.startswith("Mean [")]
    assert "[range over 3 seeds or 95% interval over 5 seeds]; 8 greedy" in caption
    assert rows[0] == ["metric", "mappo, last policies", "qmix, last policies"]
    rows = next(rows for caption, rows in found.tables.items() if caption.startswith("Difference"))
    assert rows[1][0] == "mappo − qmix" and rows[1][1].startswith("−4.6 [")
    (chart,) = [chart for chart in found.data["chart-data"] if chart["y"] == "Return"]
    assert [line["name"].split(",")[0] for line in chart["lines"]] == ["mappo", "mappo", "qmix", "qmix"]
    log = Log(other, tensorboard=False)
    log.resume(192)
    log.write(
        {"step": 240, "td_error": [1.0] * 5} | {f"return/{name}": [k] * 5 for k, name in enumerate("abcdefghijklmno")}
    )
    found = report(one, against=other)
    (own,) = [chart["lines"] for chart in found.data["chart-data"] if chart["y"] == "Td error"]
    assert [(line["name"], line["colour"]) for line in own] == [("qmix, training", 2)], "the colour of the run's return"
    assert [line["colour"] for line in chart["lines"]] == [0, 1, 2, 3]
    assert "Return of each agent, qmix" in found.texts and "The first 12 of 15 agents." in found.text
    three, five = run(tmp_path / "three", SCORES, "vdn"), run(tmp_path / "five", (*SCORES, 3.0, 5.0), "vdn")
    for ours, theirs, kind in (
        (one, three, "range"),
        (other, five, "95% interval"),
        (one, five, "range or 95% interval"),
    ):
        (caption,) = [caption for caption in report(ours, against=theirs).tables if caption.startswith("Difference of")]
        assert caption.startswith(f"Difference of the final scores [{kind}], and probability"), caption
    precise = report(one, against=run(tmp_path / "precise", (5.0, 5.01, 5.03))).tables
    (rows,) = [rows for caption, rows in precise.items() if caption.startswith("The last policies")]
    assert [row[1].partition(" ")[0] for row in rows] == ["Score", "2.333", "5.013"]
    third = run(tmp_path / "third", SCORES, environment="toys:idle")
    with pytest.raises(InputError, match="different environments"):
        report(one, against=third)


@pytest.mark.parametrize(
    ("what", "options", "said"),
    [
        ("nowhere", {}, "is neither the folder of a run nor a study"),
        ("", {"out": "page.txt"}, r"The name of a report must end in \.html"),
        ("", {"episodes": 0}, "episodes must be at least 1"),
        ("two_step", {"against": "x"}, "a study has its own comparisons"),
        ("empty", {}, r"There is neither run\.json nor a study file"),
    ],
)
def test_invalid_input_is_refused(what: str, options: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    folder = run(tmp_path / "one", SCORES)
    given = folder if not what else tmp_path / what if what == "empty" else what
    with pytest.raises(InputError, match=said) as error:
        library.report(given, **options)
    assert "\n" not in str(error.value)


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    folder, target = run(tmp_path / "one", SCORES), tmp_path / "target"
    target.write_text("mine", encoding="utf-8")
    (folder / "report.html").symlink_to(target)
    with pytest.raises(InputError, match="symbolic link"):
        library.report(folder)
    (folder / ".page.tmp.html").symlink_to(target)
    library.report(folder, out=folder / "page.html")
    assert target.read_text("utf-8") == "mine" and not (folder / "page.html").is_symlink()


def test_the_command_trains_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def train(found: Any, *_: Any, **__: Any) -> None:
        asked.append({"env": found.env, **found.flags})
        raise InputError("enough")

    monkeypatch.setattr("shoal.runs.api.train_configured", train)
    changes: dict[str, Any] = {"gamma": 0.25, "hidden": (8, 4), "huber": None, "agent_id": False}
    unused = {"log_std": -0.75, "chunk_length": 8}  # of continuous actions, and of recurrent nets
    changes |= {"stop_at": -1e-7, "eval_every": 12345678.0, "tensorboard": False}
    env = {"num_agents": 3}
    folder = run(tmp_path / "one", SCORES, environment="mpe/simple_spread", env=env, **changes, **unused)
    opened = open_run(folder)
    text = facts.train_command(opened)
    assert text.startswith("shoal train mappo mpe/simple_spread --env.num-agents 3") and "--stop-at=-1e-7" in text
    assert cli.main(shlex.split(text)[1:]) == 2
    (found,) = asked
    assert found["env"] == {"num_agents": 3}
    tuned = preset("mappo", "mpe/simple_spread")
    settings, config = (override(override(x, tuned), found) for x in (Settings(), type(opened.config)()))
    local = {"devices", "workers", "num_workers", "worker_timeout", "address"}
    same = {name: value for name, value in flags_of(opened.settings).items() if name not in local}
    assert {name: value for name, value in flags_of(settings).items() if name not in local} == same
    assert not unused.keys() & found.keys(), "the command would be refused with them"
    assert override(config, unused) == opened.config


def test_the_command_of_an_own_environment_has_its_options_without_importing_it(tmp_path: Path) -> None:
    def command(**env: Any) -> str:
        folder = run(tmp_path / f"{len(list(tmp_path.iterdir()))}", SCORES, environment="absent:Meeting", env=env)
        return facts.train_command(open_run(folder))

    start = "shoal train mappo absent:Meeting --env.num-scouts 3 --env.field 'of corn' --env.slope=-0.5 --"
    assert command(num_scouts=3, field="of corn", slope=-0.5).startswith(start)
    for unsure in ({"mirror": True}, {"name": "3"}, {"sizes": [1, 2]}, {"none": None}):
        assert command(**unsure).startswith("shoal.train('mappo', 'absent:Meeting', env=")


def test_a_command_that_cannot_be_written_is_a_call(tmp_path: Path) -> None:
    folder = run(tmp_path / "one", SCORES, environment="some:thing; rm -rf", env={"text": "$HOME"}, hidden=())
    text = facts.train_command(open_run(folder))
    calls: list[tuple] = []
    fake = type("Fake", (), {"train": staticmethod(lambda *words, **options: calls.append((words, options)))})
    eval(text, {"shoal": fake})
    ((words, options),) = calls
    assert words == ("mappo", "some:thing; rm -rf") and options["env"] == {"text": "$HOME"} and options["hidden"] == ()


def test_the_page_has_no_folders_of_absolute_paths(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"init_from": f"{tmp_path}/before", "opponents": f"{tmp_path}/a foe"}
    env = {"level": f"{tmp_path}/maps/one.txt"}
    folder = run(tmp_path / "one", SCORES, environment="absent:Meeting", env=env, **flags)
    text = report(folder).text
    assert str(tmp_path) not in text and tmp_path.name not in text
    assert "--env.level one.txt" in text and "--init-from before --opponents 'a foe'" in text
    assert "The episodes cannot be played: " in text
    assert facts.sentence_without_folders("hand it '/home/al x/a/ma...: use '/b/c d' or /e/f.") == (
        "hand it 'ma...: use 'c d' or f."
    )
    edit(folder / "run.json", lambda x: x["config"]["config"].pop("gamma"))
    found = report(folder)
    assert str(tmp_path) not in found.text and ["--env.level", "one.txt"] in found.tables["All flags of the run"]
    assert facts.sentence_without_folders("in 'x/y' or at /home/me/x") == "in 'x/y' or at x"
    assert facts.sentence_without_folders("no 'run.json' in '/home/a b/c', 1/2") == "no 'run.json' in 'c', 1/2"


def test_policies_without_their_training_are_not_resumed(tmp_path: Path) -> None:
    folder = run(tmp_path / "one", SCORES, environment="mpe/simple_spread", env={"num_agents": 3})
    assert "shoal train --resume one" in report(folder, replays=False).texts
    write_card(folder, "shoal train", "MIT")
    texts = report(folder, replays=False, out=tmp_path / "page.html").texts
    assert "shoal train mappo mpe/simple_spread --env.num-agents 3 --init-from one" in texts
    assert not any("--resume" in text for text in texts)


def test_a_failing_report_does_not_fail_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a fault\nof two lines")

    opened = open_run(run(tmp_path / "one", SCORES))
    monkeypatch.setattr(opened, "curves", lambda: "curves", raising=False)
    monkeypatch.setattr(opened, "best_seed", lambda: 0, raising=False)
    monkeypatch.setattr(opened, "replay", lambda **_: Path("replay"), raising=False)
    monkeypatch.setattr(command, "played", broken)
    train.draw_pictures(opened)
    assert capsys.readouterr().out.splitlines()[-1] == "report        cannot be written: a fault of two lines"
    monkeypatch.undo()
    monkeypatch.setattr("shoal.storage.manifest.product_rate", lambda: 1e9)
    assert cli.main(["report", str(opened.folder), "--no-replays"]) == 0
    assert capsys.readouterr().out == f"{opened.folder / 'report.html'}\n"


def test_video_and_report_show_episodes_that_were_played_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (opened, episode), shown = talking(tmp_path, 1), []
    calls = made_of(monkeypatch, [episode])
    opened.settings = replace(opened.settings, seeds=2)
    monkeypatch.setattr(opened, "curves", lambda: "curves", raising=False)
    monkeypatch.setattr(opened, "best_seed", lambda: 1, raising=False)
    document = replays([("one", opened)])
    calls.clear()

    def report(run: Any, recorded: Any) -> Path:
        shown.append(replays([("one", run)], recorded={"one": recorded}))
        return tmp_path / "report.html"

    monkeypatch.setattr(library, "report", report, raising=False)
    train.draw_pictures(opened)
    assert calls == [2] and shown == [document]  # two learners, in one call
    with Image.open(tmp_path / "replay.gif") as picture:
        assert getattr(picture, "n_frames", 1) > 1


def test_a_video_that_is_expensive_has_fewer_frames_and_a_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened, episode = painted(tmp_path)
    made_of(monkeypatch, [episode])
    monkeypatch.setattr(opened, "curves", lambda: "curves", raising=False)
    monkeypatch.setattr(library, "report", lambda *_, **__: tmp_path / "report.html", raising=False)
    for seconds, frames, said in ((60.0, 4, False), (0.0, 2, True)):
        monkeypatch.setattr(train, "VIDEO_SECONDS", seconds)
        train.draw_pictures(opened)
        with Image.open(tmp_path / "replay.gif") as picture:
            assert getattr(picture, "n_frames", 1) == frames
        line = capsys.readouterr().out.splitlines()[1]
        assert ("(at most 2 frames an episode; shoal replay " in line) == said


def test_a_policy_of_the_zoo_is_not_called_damaged() -> None:
    found = facts.facts_of(shipped.zoo() / "spread")
    assert found.ended == "A policy without its training." and not found.notes
