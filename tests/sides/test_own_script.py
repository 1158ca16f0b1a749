"""A script of the user's own, examples/flee.py, as an opponent."""

from pathlib import Path

import jax
import numpy as np
import pytest

from shoal.config.resolve import configured
from shoal.runs.api import new_run
from shoal.runs.build import opponents_in
from shoal.sides.opponents import PAST
from support.environments import device_env

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_its_module_is_found_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    (tmp_path / "sarsa").mkdir()
    monkeypatch.chdir(tmp_path)
    for given, kept in (("flee", "flee:make"), ("scripted", "scripted"), (PAST, PAST), ("sarsa", "sarsa")):
        run = new_run(configured("mappo", "mpe/simple_tag", flags={"opponents": given}), tmp_path / "run")
        assert run.settings.opponent_options.opponents == kept  # the folder sarsa comes before the module


def test_the_prey_runs_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    spec = device_env("mpe/simple_tag").spec
    script, policies = opponents_in("flee:make", spec).frozen_policies(spec)
    (_, step), learner = device_env("mpe/simple_tag").reset(jax.random.key(0)), script.init(jax.random.key(0))
    step = jax.tree.map(lambda leaf: leaf[None], step)
    near, far, inside, above = np.array([[-0.3, 0.1], [0.9, 0.9], [0.2, 0.0], [0.0, 1.2]])
    for position, expected in ((inside, 2), (above, 3)):  # right, or down again at the upper border
        own = np.concatenate([np.zeros(2), position, np.zeros(4), far, near, far, np.zeros(2)])
        obs = np.asarray(step.obs).copy()
        obs[0, 3, : own.size] = own
        _, action, _ = script.act(learner, (), step._replace(obs=obs), jax.random.key(0), True)
        assert action.shape == (1, 4) and int(action[0, 3]) == expected
    assert jax.tree.leaves(policies)[0].shape[0] == 1
