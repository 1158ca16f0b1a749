"""With SMAClite's constants, duels and free movement in ``skirmish`` are SMAClite's."""

import importlib.util
import json

import numpy as np
import pytest

from shoal.environments.skirmish.units import TICKS_PER_SECOND
from support.skirmish_duels import FILE, PAIRS, Pair, ours, theirs, unit

MEASURED = {Pair(*names): np.array(rows) for *names, rows in json.loads(FILE.read_text())}
REGENERATED = 0.38 / TICKS_PER_SECOND + 1e-3
"""SMAClite regenerates before the damage of a tick, ``skirmish`` after it."""


@pytest.fixture(scope="module")
def played() -> dict[Pair, np.ndarray]:
    return dict(zip(PAIRS, ours(), strict=True))


def test_all_pairs_are_measured() -> None:
    assert tuple(MEASURED) == PAIRS


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.does != "freely"], ids=" ".join)
def test_a_duel_is_smaclites(pair: Pair, played: dict[Pair, np.ndarray]) -> None:
    """The same hit points and shields after each step, and a death in the same step. Of that step only who is dead is
    compared: SMAClite's units act one after the other, so that one killed in a tick may not shoot in it."""
    wanted = MEASURED[pair]
    found = played[pair][: len(wanted)]
    end = len(wanted) - 1
    np.testing.assert_allclose(found[:end, :, 2:], wanted[:end, :, 2:], atol=REGENERATED)
    lasts = (found[end, :, 2] <= 0.0).tolist()
    dead = (wanted[end, :, 2] <= 0.0).tolist()
    assert lasts == dead or (lasts == [True, True] and any(dead)), "both may die at once only here"
    # They approach in whole ticks there, and to the edge of their range here. Walking units do not turn aside.
    tick = max(unit(name).speed for name in pair[:2]) / TICKS_PER_SECOND
    assert np.abs(found[:end, :, :2] - wanted[:end, :, :2]).max() <= tick


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.does == "freely"], ids=" ".join)
def test_free_movement_is_smaclites(pair: Pair, played: dict[Pair, np.ndarray]) -> None:
    """The same places after each step; a unit that reaches its goal within a step there swings around it."""
    wanted = MEASURED[pair][:, 0, :2]
    found = played[pair][: len(wanted), 0, :2]
    speed = unit(pair.ally).speed
    reached = speed / 2.0 > 2.0
    assert np.ptp(wanted, axis=0).min() > 1.0
    np.testing.assert_allclose(found, wanted, atol=speed / TICKS_PER_SECOND if reached else 2e-3)


@pytest.mark.skipif(importlib.util.find_spec("smaclite") is None, reason="SMAClite is not installed")
def test_the_measured_numbers_are_smaclites() -> None:
    for pair, wanted in MEASURED.items():
        np.testing.assert_allclose(np.array(theirs(pair)), wanted, atol=2e-3, err_msg=" ".join(pair))
