"""Every mistake in a study file is answered by one sentence that names the file and the key, before anything runs."""

from functools import partial
from pathlib import Path

import pytest

from shoal.environments import registry
from shoal.errors import InputError
from shoal.studies.plan import plan
from shoal.studies.running import check_built
from shoal.studies.study_file import read_study, study_path
from shoal.training import memory
from support import small_studies
from support.small_studies import GRID, check_refused, write_study_file

DEFAULTS, END = "[defaults]\n", "gamma = [0.9, 0.99]\n"

# (what is replaced in GRID, by what, the sentence after the file's name)
MISTAKES = {
    "not TOML": (
        "steps = 64",
        "steps 64",
        "line 6, column 7 is not valid TOML: expected '=' after a key in a key/value pair.",
    ),
    "a key twice": ("seeds = 2", "steps = 2", "line 7, column 10 is not valid TOML: cannot overwrite a value."),
    "an unknown table": ("[grid]", "[gird]", "There is no key 'gird'; did you mean 'grid'?"),
    "no title": ('title = "T"', "", "title is missing; it must be a string."),
    "a title that is a number": ('title = "T"', "title = 3", "title must be a string, not 3."),
    "an empty question": ('"Q?"', '" "', "question must be a string of printable characters that is not empty."),
    "an empty note": (
        '"Q?"',
        '"Q?"\nnotes = ["A note.", ""]',
        "notes must be a string of printable characters that is not empty.",
    ),
    "a note that is a number": ('"Q?"', '"Q?"\nnotes = [3]', "notes must be a string, or a list of them, not [3]."),
    "a table that is a value": (
        '"Q?"',
        '"Q?"\nevaluation = 3',
        "[evaluation] must be a table of keys and values, not 3.",
    ),
    "variants as one table": (
        END,
        END + "[variants]\nname = 'a'",
        "variants must be tables that each start with [[variants]], not {'name': 'a'}.",
    ),
    "no algorithm": (
        'algorithm = ["mappo", "qmix"]',
        "",
        "algorithm is missing; set it in [defaults], or several values in [grid] or [[variants]].",
    ),
    "an axis that is a value": (
        END,
        "gamma = 0.9",
        "[grid] gamma must be a list of values, not 0.9; set a single value in [defaults].",
    ),
    "an empty axis": (END, "gamma = []", "[grid] gamma is an empty list; remove it, or add at least one value."),
    "a value twice": (END, "gamma = [0.9, 0.9]", "[grid] gamma has the value 0.9 twice."),
    "a date": (
        DEFAULTS,
        "[defaults]\nrows = 2020-01-01\n",
        "[defaults] rows must be a number, a string, true, false, or a list, not datetime.date(2020, 1, 1).",
    ),
    "in defaults and grid": (
        DEFAULTS,
        "[defaults]\ngamma = 0.5\n",
        "[grid] gamma is also set in [defaults]; remove one of them.",
    ),
    "in grid and a variant": (
        END,
        END + "[[variants]]\nname = 'a'\ngamma = 0.5",
        "[grid] gamma is also set in the variant 'a'; remove one of them.",
    ),
    "an option twice": (
        DEFAULTS,
        "[defaults]\nenv.horizon = 2\n'env.horizon' = 2\n",
        "[defaults] env.horizon is set twice, with and without quotes.",
    ),
    "a variant without a name": (
        END,
        END + "[[variants]]\nepochs = 2",
        "[[variants]] 1 name is missing; it must be a string.",
    ),
    "a variant's name twice": (
        END,
        END + "[[variants]]\nname = 'a'\n[[variants]]\nname = 'a'",
        "[[variants]] 2 name is 'a' in two variants; their names must differ.",
    ),
    "two variants that are one": (
        END,
        END + "[[variants]]\nname = 'a'\n[[variants]]\nname = 'b'",
        "mappo in matrix/climbing, gamma 0.9, variant a and mappo in matrix/climbing, gamma 0.9, variant b are the "
        "same run; remove one of them.",
    ),
    "an unknown algorithm": (
        '"mappo"',
        '"mapo"',
        "[grid] algorithm: There is no algorithm 'mapo'; did you mean 'mappo'? Your own algorithm has the name of its "
        "module: my_idea for my_idea.py in the working directory, or any module that Python can import.",
    ),
    "an algorithm that is a number": ('"mappo"', "3", "[grid] algorithm must be a string, not 3."),
    "an algorithm of a missing module": (
        '"mappo"',
        '"nowhere:make"',
        "[grid] algorithm: There is no module 'nowhere', which the algorithm 'nowhere:make' needs.",
    ),
    "an unknown environment": (
        "matrix/climbing",
        "matrix/climbin",
        "[grid] environment: There is no environment 'matrix/climbin'; did you mean 'matrix/climbing'?",
    ),
    "an unknown flag": (
        DEFAULTS,
        "[defaults]\nlr = 0.1\n",
        "[defaults] lr, for mappo: There is no setting 'lr'; did you mean 'learning_rate'?",
    ),
    "a flag of one algorithm": (
        DEFAULTS,
        "[defaults]\nepochs = 2\n",
        "[defaults] epochs, for qmix: qmix has no such flag; set it in [[overrides]] for mappo.",
    ),
    "a flag of the wrong type": (
        "steps = 64",
        "steps = 'many'",
        "[defaults] steps, for mappo: steps must be a number, not 'many'.",
    ),
    "a flag out of bounds": (
        END,
        "gamma = [0.9, 2.0]",
        "[grid] gamma, for mappo: gamma must be at least 0 and at most 1, not 2.",
    ),
    "no seeds": (
        "seeds = 2",
        "seeds = 0",
        "[defaults] seeds, for mappo: seeds must be at least 1 and at most 65536, not 0.",
    ),
    "seeds that end too high": (
        "seeds = 2",
        "seeds = 2\nseed = 2147483647",
        "mappo in matrix/climbing, gamma 0.9: 2 seeds from 2147483647 on exceed the largest seed, 2147483647.",
    ),
    "the final evaluation as a flag": (
        DEFAULTS,
        "[defaults]\neval_episodes = 3\n",
        "[defaults] eval_episodes is set in [evaluation] as episodes.",
    ),
    "a folder": (
        DEFAULTS,
        "[defaults]\nfolder = 'x'\n",
        "[defaults] folder is set by the study; use --out for the folder of all runs.",
    ),
    "an unknown option": (
        DEFAULTS,
        "[defaults]\nenv.horizo = 3\n",
        "[defaults] env.horizo: There is no option of matrix/climbing named 'horizo'; did you mean 'horizon'?",
    ),
    "an option that the environment refuses": (
        '"matrix/two_step"]',
        '"matrix/penalty"]\n"env.horizon" = [0]',
        "mappo in matrix/climbing, env.horizon 0, gamma 0.9: horizon must be an integer of at least 1, not 0.",
    ),
    "exclude without values": (END, END + "[[exclude]]", "[[exclude]] 1 is empty, so it would exclude every run."),
    "exclude of an unknown axis": (
        END,
        END + "[[exclude]]\nlam = 1",
        "[[exclude]] 1: There is no axis 'lam'; did you mean 'gamma'?",
    ),
    "exclude of an unknown value": (
        END,
        END + "[[exclude]]\ngamma = 1",
        "[[exclude]] 1 gamma cannot be 1; the runs have 0.9, 0.99.",
    ),
    "exclude of nothing": (
        END,
        END + "[[exclude]]\nalgorithm = 'mappo'\n[[exclude]]\nalgorithm = 'qmix'\n",
        "[[exclude]] excludes all runs of the grid.",
    ),
    "overrides without where": (
        END,
        END + "[[overrides]]\nlam = 1.0",
        "[[overrides]] 1 where is missing; it selects runs, for example { algorithm = 'mappo' }.",
    ),
    "overrides without flags": (END, END + "[[overrides]]\nwhere = {gamma = 0.9}", "[[overrides]] 1 sets no flag."),
    "overrides of the grid": (
        END,
        END + "[[overrides]]\nwhere = {algorithm = 'mappo'}\ngamma = 0.5",
        "[grid] gamma is also set in [[overrides]] 1; remove one of them.",
    ),
    "overrides of no run": (
        END,
        END + "[[exclude]]\nalgorithm = 'qmix'\ngamma = 0.9\n"
        "[[overrides]]\nwhere = {algorithm = 'qmix', gamma = 0.9}\nlam = 1.0",
        "[[overrides]] 1 matches no run: none has algorithm qmix and gamma 0.9.",
    ),
    "overrides of a variant named like a number": (
        END,
        END + "[[variants]]\nname = '1'\n[[overrides]]\nwhere = {variant = 1}\nhidden = [4]",
        '[[overrides]] 1 where variant cannot be 1; the runs have "1".',
    ),
    "overrides of the environment": (
        'environment = ["matrix/climbing", "matrix/two_step"]\n' + END,
        END + "[[overrides]]\nwhere = {algorithm = 'mappo'}\nenvironment = 'x'",
        "[[overrides]] 1 cannot set environment; set it in [defaults], [grid] or [[variants]].",
    ),
    "no episodes": (
        END,
        END + "[evaluation]\nepisodes = 0",
        "[evaluation] episodes must be at least 1 and at most 1000000, not 0.",
    ),
    "greedy as a number": (
        END,
        END + "[evaluation]\ngreedy = 1",
        '[evaluation] greedy must be true, false or "better", not 1.',
    ),
    "an unknown key of the evaluation": (
        END,
        END + "[evaluation]\nepisode = 3",
        "There is no key in [evaluation] named 'episode'; did you mean 'episodes'?",
    ),
    "a table of an unknown axis": (
        END,
        END + "[[tables]]\nrows = 'algorithms'",
        "[[tables]] 1 rows: There is no axis 'algorithms'; did you mean 'algorithm'?",
    ),
    "a table with several runs in an entry": (
        END,
        END + "[[tables]]\nrows = 'algorithm'",
        "[[tables]] 1 has several runs in one entry, which differ in gamma; add gamma to rows or columns, "
        "aggregate them with over, or select one value with where.",
    ),
    "an axis in rows and over": (
        END,
        END + "[[tables]]\nrows = ['algorithm', 'gamma']\nover = 'gamma'",
        "[[tables]] 1 has gamma in both rows and over.",
    ),
    "an improvement over nothing": (
        END,
        END + "[[tables]]\nstatistic = 'improvement'",
        "[[tables]] 1 statistic 'improvement' requires a baseline; set baseline.",
    ),
    "an unknown statistic": (
        END,
        END + "[[figures]]\nkind = 'estimates'\nstatistic = 'iqr'",
        "[[figures]] 1: There is no statistic 'iqr'; did you mean 'iqm'?",
    ),
    "an unknown kind of figure": (
        END,
        END + "[[figures]]\nkind = 'bars'",
        "[[figures]] 1 kind must be one of curves, profiles, estimates, improvement, not 'bars'.",
    ),
    "a logarithmic axis of shares": (
        END,
        END + "[[figures]]\nkind = 'profiles'\nvertical = 'log'",
        "[[figures]] 1 vertical applies only to curves, so it cannot be 'log' if kind is 'profiles'.",
    ),
    "an unknown axis of a figure": (
        END,
        END + "[[figures]]\nvertical = 'logarithmic'",
        "[[figures]] 1 vertical must be one of linear, log, symlog, not 'logarithmic'.",
    ),
    "an optimality gap of raw scores": (
        END,
        END + "[[tables]]\nstatistic = 'optimality_gap'",
        "[[tables]] 1 statistic 'optimality_gap' requires normalised scores; set scale to known or observed.",
    ),
    "the best score without a scale": (
        END,
        END + "[[tables]]\nstatistic = 'solved'",
        "[[tables]] 1 statistic 'solved' requires the best scores; set scale to known.",
    ),
    "pairs of seeds without a baseline": (
        END,
        END + "[[tables]]\npaired = true",
        "[[tables]] 1 paired requires a baseline, single tasks, and as statistic mean, area, drop.",
    ),
    "pairs of seeds in words": (
        END,
        END + "[[tables]]\npaired = 'seeds'",
        "[[tables]] 1 paired must be true or false, not 'seeds'.",
    ),
    "a scale without levels": (
        END,
        END + "[[tables]]\nscale = 'known'",
        "[[tables]] 1 scale 'known' requires [[scales]] for every run, but mappo in matrix/climbing, gamma 0.9 "
        "has none.",
    ),
    "levels of the score for another metric": (
        END,
        END + "[[tables]]\nscale = 'known'\nmetric = 'length'",
        "[[tables]] 1 scale 'known' is for the score, not for length; set raw or observed.",
    ),
    "levels that are equal": (
        END,
        END + "[[scales]]\nenvironment = 'matrix/climbing'\nworst = 1\nbest = 1\nsource = 'S'",
        "[[scales]] 1 best must differ from worst, but both are 1.",
    ),
    "levels of an unknown environment": (
        END,
        END + "[[scales]]\nenvironment = 'matrix/clim'\nworst = 1\nbest = 2\nsource = 'S'",
        "[[scales]] 1 environment cannot be matrix/clim; the runs have matrix/climbing, matrix/two_step.",
    ),
    "a profile of a metric of training": (
        END,
        END + "[[figures]]\nkind = 'profiles'\nmetric = 'train/entropy'",
        "[[figures]] 1 metric is a metric of training, so kind must be 'curves', not 'profiles'.",
    ),
    "a table with an axis twice": (
        END,
        END + "[[tables]]\nrows = ['algorithm', 'gamma']\ncolumns = ['gamma']",
        "[[tables]] 1 has gamma in both rows and columns.",
    ),
    "a table of nothing": (
        END,
        END + "[[exclude]]\nalgorithm = 'qmix'\ngamma = 0.9\n[[tables]]\nwhere = {algorithm = 'qmix', gamma = 0.9}",
        "[[tables]] 1 matches no run: none has algorithm qmix and gamma 0.9.",
    ),
    "a baseline that is a column": (
        END,
        END + "[[tables]]\nbaseline = {environment = 'matrix/climbing'}",
        "[[tables]] 1 baseline environment must be an axis of the rows: algorithm, gamma.",
    ),
    "a baseline of all rows": (
        END,
        END + "[[tables]]\nbaseline = {algorithm = ['qmix', 'mappo']}",
        "[[tables]] 1 baseline has every row, so none is left to be compared with it.",
    ),
    "estimates of improvement": (
        END,
        END + "[[figures]]\nkind = 'estimates'\nstatistic = ['mean', 'improvement']",
        "[[figures]] 1 statistic 'improvement' compares lines, so kind must be 'improvement', not 'estimates'.",
    ),
    "a primary statistic of several tasks": (
        END,
        END + "[primary]\nmetric = 'score'\nstatistic = 'iqm'",
        "[primary]: There is no statistic of a single run 'iqm'; known: area, drop, mean.",
    ),
    "an unknown baseline": (
        END,
        END + "[[tables]]\nbaseline = {algorithm = 'vdn'}",
        "[[tables]] 1 baseline algorithm cannot be vdn; the runs have mappo, qmix.",
    ),
    "a misspelt statistic": (
        END,
        END + "[[tables]]\nstatistic = 'men'",
        "[[tables]] 1: There is no statistic 'men'; did you mean 'mean'?",
    ),
    "an unknown metric": (
        END,
        END + "[[tables]]\nmetric = 'scor'",
        "[[tables]] 1: There is no metric 'scor'; did you mean 'score'?",
    ),
    "a reference without a source": (
        END,
        END + "[[references]]\nvalue = 3\ngamma = 0.9",
        "[[references]] 1 source is missing; it must be a string.",
    ),
    "a reference of no run": (
        END,
        END + "[[exclude]]\nalgorithm = 'qmix'\ngamma = 0.9\n"
        "[[references]]\nvalue = 3\nsource = 'S'\nalgorithm = 'qmix'\ngamma = 0.9",
        "[[references]] 1 matches no run: none has algorithm qmix and gamma 0.9.",
    ),
    "a reference without axes": (
        END,
        END + "[[references]]\nvalue = 3\nsource = 'S'",
        "[[references]] 1 selects no run; set the values of one or several axes.",
    ),
    "a reference outside of its interval": (
        END,
        END + "[[references]]\nvalue = 3\nsource = 'S'\nlow = 4\nhigh = 5\ngamma = 0.9",
        "[[references]] 1 value must be in the interval [4, 5] from low to high, not 3.",
    ),
    "half an interval": (
        END,
        END + "[[references]]\nvalue = 3\nsource = 'S'\nlow = 1\ngamma = 0.9",
        "[[references]] 1 high is missing; an interval has both low and high.",
    ),
    "a value that is no number": (
        END,
        END + "[[references]]\nvalue = nan\nsource = 'S'\ngamma = 0.9",
        "[[references]] 1 value must be a finite number, not nan.",
    ),
    "too many combinations": (
        END,
        f"gamma = {[i / 30_000 for i in range(20_000)]}",
        "[grid] has 80000 combinations, and the limit is 10000; split the study.",
    ),
}


def build(path: Path) -> None:
    study = read_study(path)
    check_built(study, plan(study, path.parent / "out"))


refusal = partial(small_studies.refusal, build)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake: str, tmp_path: Path) -> None:
    check_refused(build, GRID, MISTAKES[mistake], tmp_path)


def test_a_metric_of_training_is_one_of_some_run_of_the_study(tmp_path: Path) -> None:
    text = GRID.replace(', "matrix/two_step"', "").replace("[0.9, 0.99]", "[0.9]")
    study = read_study(write_study_file(tmp_path, text + "[record]\nmetrics = ['return/agent_0', 'entropy', 'q']"))
    cells = plan(study, tmp_path)
    of_mappo = [cell for cell in cells if cell.algorithm == "mappo"]
    check_built(study, of_mappo, cells)  # q is QMIX's, whose run does not train now
    with pytest.raises(InputError, match=r": \[record\] There is no metric of training named 'q'; "):
        check_built(study, of_mappo)


@pytest.mark.parametrize(
    ("algorithm", "greedy", "most"),
    [("mappo", "true", 800_000), ("mappo", "'better'", 400_000), ("vdn", "'better'", 800_000)],
)
def test_the_final_episodes_fit_in_memory(
    algorithm: str, greedy: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = GRID.replace('["mappo", "qmix"]', f'["{algorithm}"]').replace(', "matrix/two_step"', "")
    spec = registry.make("matrix/climbing").spec
    each = spec.horizon * (4 * (spec.num_agents + len(spec.metrics)) + 1) + memory.timestep_bytes(spec)
    monkeypatch.setattr(memory, "free", lambda device: 2 * 800_000 * each)  # two seeds
    build(write_study_file(tmp_path, text + f"[evaluation]\nepisodes = {most}\ngreedy = {greedy}\n"))
    path = write_study_file(tmp_path, text + f"[evaluation]\nepisodes = {most + 1}\ngreedy = {greedy}\n")
    assert refusal(path).endswith(" are free; lower episodes in [evaluation].")


def test_a_metric_is_one_of_some_environment_of_the_study(tmp_path: Path) -> None:
    text = GRID.replace("two_step", "rock_paper_scissors").replace(', "qmix"', "").replace("[0.9, 0.99]", "[0.9]")
    study = read_study(write_study_file(tmp_path, text + "[[tables]]\nmetric = 'exploitability'\n"))
    cells = plan(study, tmp_path)
    check_built(study, cells[:1], cells)  # the other one has it, which is recorded or was not selected
    with pytest.raises(InputError, match=r"There is no metric 'exploitability'; known: length, score\."):
        check_built(study, cells[:1])


def test_the_grid_itself_has_no_mistake(tmp_path: Path) -> None:
    path = write_study_file(tmp_path)
    check_built(read_study(path), plan(read_study(path), tmp_path))


def test_a_file_that_is_no_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "demo.toml"
    path.write_bytes(b"title = '\xff'")
    assert refusal(path) == f"{path}: it is not UTF-8 text."
    path.write_bytes(b"#" * (2**20 + 1))
    assert refusal(path) == f"{path}: it is larger than 1 MiB."
    assert refusal(tmp_path / "none.toml") == f"There is no study file '{tmp_path / 'none.toml'}'."
    for name in ("a b", "é", "-a", ".a", "a" * 81):
        odd = write_study_file(tmp_path, name=name)
        assert refusal(odd) == (
            f"{odd}: the name of a study file, without .toml, must have at most 80 of the characters a-z A-Z 0-9 _ . - "
            f"and start with none of . -."
        )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"There is no study 'two_stp'; did you mean 'two_step'\?"):
        study_path("two_stp")


def test_an_algorithm_that_refuses_its_environment_is_found_before_the_first_run(tmp_path: Path) -> None:
    text = GRID.replace('"matrix/climbing", "matrix/two_step"', '"gymnasium:Pendulum-v1"')
    pytest.importorskip("gymnasium")
    path = write_study_file(tmp_path, text.replace('"mappo", ', ""))
    said = refusal(path)
    assert said.startswith(f"{path}: qmix in gymnasium:Pendulum-v1, gamma 0.9: ") and said.count(". ") == 0


@pytest.mark.parametrize(
    ("named", "metric", "said"),
    [
        ("", "success", "; if it is in the info of gymnasium:Pendulum-v1, name it in env.metrics."),  # not 'score'
        ("", "scor", "; did you mean 'score'?"),
        ('env.metrics = ["success"]\n', "sucess", "; did you mean 'success'?"),
        (
            'env.metrics = ["success"]\n',
            "won",
            "; if it is in the info of gymnasium:Pendulum-v1, name it in env.metrics.",
        ),
    ],
)
def test_a_metric_of_the_info_has_to_be_named(named: str, metric: str, said: str, tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    text = GRID.replace('["matrix/climbing", "matrix/two_step"]', '["gymnasium:Pendulum-v1"]').replace(', "qmix"', "")
    text = text.replace("seeds = 2\n", "seeds = 2\n" + named)
    table = f"[[tables]]\nmetric = '{metric}'\n"
    path = write_study_file(tmp_path, text + table)
    assert refusal(path) == f"{path}: [[tables]] 1: There is no metric '{metric}'{said}"
    if named:
        build(write_study_file(tmp_path, text + table.replace(metric, "success")))


def test_a_name_for_one_agent_needs_one(tmp_path: Path) -> None:
    path = write_study_file(tmp_path, GRID.replace('"mappo"', '"ppo"'))
    assert "ppo is for one agent, and matrix/climbing has 2" in refusal(path)


def test_nothing_of_a_file_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the user's own modules that it names as algorithm or environment are imported, as on the command line."""
    (tmp_path / "trap.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    for text in ("trap:make", "__import__('trap')", "${trap}"):
        path = write_study_file(
            tmp_path, GRID.replace("[defaults]", f"[defaults]\naddress = {text!r}").replace("Q?", text)
        )
        assert len(plan(read_study(path), tmp_path)) == 8
    with pytest.raises(InputError, match="cannot be imported: RuntimeError: imported"):
        plan(read_study(write_study_file(tmp_path, GRID.replace("mappo", "trap:make"))), tmp_path)
