"""Elo ratings from the results of games on two sides."""

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

SCALE = 400.0 / np.log(10.0)
"""Elo points for each unit of log odds: 400 points are odds of ten to one."""
DRAWS = 1.0
"""Virtual draws of each pair, which keep the rating of a player that wins or loses every game finite."""


def elo(score: Float[np.ndarray, "R R"], games: Float[np.ndarray, "R R"]) -> tuple[Float[np.ndarray, " R"], float]:
    """Ratings of R players by maximum likelihood, and the advantage of side 1 in Elo points; the first player has 0.

    The expected score of player a on side 1 against b on side 2 is 1 / (1 + 10^(−(r_a − r_b + h) / 400)) with the
    advantage h of side 1 (Bradley and Terry 1952; Elo 1978; the advantage as in Agresti 1990, section 10.6).

    Args:
        score: mean result of the row on side 1 against the column on side 2: 1 won, ½ drawn, 0 lost.
        games: number of games of each entry; 0 leaves an entry out. The diagonal tells about the advantage only.
    """
    count = len(score)
    points = np.where(games > 0, score, 0.5) * games + DRAWS / 2
    total = games + DRAWS

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        ratings = np.concatenate([[0.0], x[:-1]])
        odds = ratings[:, None] - ratings[None] + x[-1]
        expected = 1.0 / (1.0 + np.exp(-odds))
        value = (total * np.logaddexp(0.0, odds) - points * odds).sum()
        gradient = total * expected - points
        by_player = gradient.sum(1) - gradient.sum(0)
        return float(value), np.concatenate([by_player[1:], [gradient.sum()]])

    found = minimize(loss, np.zeros(count), jac=True, method="BFGS").x
    return np.concatenate([[0.0], found[:-1]]) * SCALE, float(found[-1] * SCALE)
