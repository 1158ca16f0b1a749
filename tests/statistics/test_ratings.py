"""Elo ratings: those that produced the results are found again."""

import numpy as np
import pytest

from shoal.statistics import comparison
from shoal.statistics.comparison import elo


def test_ratings_that_made_the_scores_are_found() -> None:
    made, advantage = np.array([0.0, 150.0, -80.0, 420.0]), 60.0
    score = 1 / (1 + 10 ** (-(made[:, None] - made[None] + advantage) / 400))
    found, side = elo(score, np.full((4, 4), 1e7))
    np.testing.assert_allclose(found, made, atol=0.1)
    assert side == pytest.approx(advantage, abs=0.1)


def test_the_rating_of_an_entry_that_wins_every_game_is_finite() -> None:
    score = np.array([[0.5, 0.0], [1.0, 0.5]])
    few, many = (elo(score, np.full((2, 2), games))[0][1] for games in (4.0, 400.0))
    assert 100 < few < many < 2000


def test_entries_without_games_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "DRAWS", 1e-6)
    games = np.array([[0.0, 10.0], [10.0, 0.0]])
    found, side = elo(np.array([[np.nan, 0.25], [0.75, np.nan]]), games)
    assert found[1] == pytest.approx(400 * np.log10(3), rel=1e-3) and side == pytest.approx(0, abs=1e-3)
