"""How a match ended, on stand-ins for gfootball's objects: the package itself is seldom installed."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shoal.environments.adapters.football import ACTIONS, Match
from shoal.game import blank
from shoal.spec import Discrete, EnvSpec

SPEC = EnvSpec("football/toy", ("a",), (115,), 115, Discrete(ACTIONS), (ACTIONS,), (0,), 9, True)


@pytest.mark.parametrize(
    ("score", "expected"), [((0, 0), (0, 0, 0)), ((2, 1), (1, 2, 1)), ((1, 1), (0, 1, 1)), ((0, 3), (0, 0, 3))]
)
@pytest.mark.parametrize("done", [True, False])
def test_who_scored_more_goals_has_won(score: Any, expected: Any, done: bool) -> None:
    match = object.__new__(Match)
    seen = {"score": score, "steps_left": 5, "game_mode": 0, "ball_owned_team": -1}
    match.__dict__ |= {
        "_env": SimpleNamespace(step=lambda action: (np.ones((1, 115)), 0.0, done, {})),
        "_match": SimpleNamespace(observation=lambda: [seen]),
        "_steps": 0,
        "_first_owner": -1,
        "spec": SPEC,
        "_ends_on_goal": True,
        "_ends_out_of_play": False,
        "_ends_on_loss": False,
    }
    out = blank(SPEC)._replace(metrics=np.full(3, np.nan, np.float32))
    match.step(np.zeros(1, np.int32), out)
    assert tuple(out.metrics) == expected
