"""Bayesian search by Optuna, where it is installed."""

import math
from pathlib import Path

import pytest

from shoal.studies.study_file import read_study
from shoal.studies.tuning import proposals
from shoal.studies.tuning.methods import methods
from support.small_studies import TUNING, write_tuning_file

pytest.importorskip("optuna")


def test_later_rounds_propose_better_values_and_the_same_ones_again(tmp_path: Path) -> None:
    text = TUNING.replace("eta = 2", "eta = 2\nsearch = 'optuna'\nrounds = 8").replace("trials = 4", "trials = 8")
    more = "epochs = { low = 1, high = 9 }\nhidden = { values = [[4], [6, 6]] }\n"
    (method,) = methods(read_study(write_tuning_file(tmp_path, text.replace("gamma =", f"{more}gamma ="))))
    trials: list = []
    reached: dict = {}
    means = []
    for _ in range(method.tuning.rounds):
        new = proposals.proposed(method, trials, reached, method.trials)
        assert new == proposals.proposed(method, trials, reached, method.trials)
        scores = [-abs(math.log(x["learning_rate"] / 0.01)) - abs(x["epochs"] - 7) / 3 for x in new]
        best = sorted(scores)[method.trials // 2]
        for i, score in enumerate(scores, len(trials)):
            reached[i] = [[[score]]] * (2 if score >= best else 1)
        trials += new
        means.append(sum(scores) / len(scores))
    assert min(means[-3:]) > max(means[:2])
    assert {type(x["epochs"]) for x in trials} == {int} and {x["hidden"] for x in trials} == {(4,), (6, 6)}


def test_no_values_are_proposed_twice_while_there_are_others(tmp_path: Path) -> None:
    text = TUNING.replace("eta = 2", "eta = 2\nsearch = 'optuna'\nrounds = 2").replace("trials = 4", "trials = 11")
    lists = "learning_rate = { values = [0.1, 0.2, 0.3] }\ngamma = { values = [0.5, 0.6, 0.7, 0.8] }\n"
    text = text.partition("[tuning.ranges]")[0] + f"[tuning.ranges]\n{lists}"
    (method,) = methods(read_study(write_tuning_file(tmp_path, text)))
    first = {"learning_rate": 0.2, "gamma": 0.7}
    new = proposals.proposed(method, [first], {}, 11)
    assert len({tuple(one.values()) for one in [first, *new]}) == 12
    assert len(proposals.proposed(method, [first, *new], {i: [[[1.0]]] for i in range(12)}, 2)) == 2, "none are left"


def test_a_diverged_trial_is_reported_as_the_worst(tmp_path: Path) -> None:
    text = TUNING.replace("eta = 2", "eta = 2\nsearch = 'optuna'\nrounds = 2")
    (method,) = methods(read_study(write_tuning_file(tmp_path, text)))
    standing = proposals._standing(method, {0: [[None]], 1: [[[5.0]], [[6.0]]], 2: [[[3.0]]]})
    assert standing == {1: [0.0, 0.0], 2: [-1 / 3], 0: [-2 / 3]}
