"""``shoal check`` in environments whose observations are rows of bytes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import images
from shoal.checking import check, inspection
from shoal.errors import InputError
from shoal.game import HostEnvironment, HostTimestep


class Altered(images.Glimpse):
    """The game, which changes or forgets something at every step."""

    def __init__(self, alter: Callable[[Any, HostTimestep, np.ndarray], None]):
        super().__init__()
        self.alter = alter

    def step(self, action: np.ndarray, out: HostTimestep) -> None:
        before = out.obs.copy()
        super().step(action, out)
        out.reward[:] = self.t  # otherwise random play may earn nothing
        self.alter(self, out, before)


def findings(alter: Any) -> dict[str, str]:
    def make(render: bool = False) -> Any:
        return Altered(alter)

    report = check(HostEnvironment(images.spec_of(True), make), isolate=False)
    # A function inside a function is not importable, and the right agent dies: neither is looked at here.
    return {f.subject: f.sentence for f in report.findings if f.subject not in ("make", "agent death")}


def sound(game: Any, out: HostTimestep, before: np.ndarray) -> None:
    pass


def half(game: Any, out: HostTimestep, before: np.ndarray) -> None:
    out.obs[0, 100:192] = before[0, 100:192]


def nan(game: Any, out: HostTimestep, before: np.ndarray) -> None:
    if game.t == 3:
        out.obs[1, 196:200] = np.frombuffer(np.float32("nan").tobytes(), np.uint8)


def codes(game: Any, out: HostTimestep, before: np.ndarray) -> None:
    out.obs[:, :192] %= 11


def padded(game: Any, out: HostTimestep, before: np.ndarray) -> None:
    out.obs[0, 195] = 9


@pytest.mark.parametrize(
    ("alter", "subject", "words"),
    [
        (sound, "", ""),
        (half, "observation", "feature 100 of left's observation is not written after reset"),
        (nan, "observation", "clock: number 1 of right's observation is nan at step 3 of episode 1"),
        (codes, "images", "the values of the image 'view' are at most 10 of 255"),
        (padded, "observation padding", "feature 195, which is padding, is 9"),
    ],
)
def test_each_fault_is_found(alter: Any, subject: str, words: str) -> None:
    found = findings(alter)
    assert [*found] == [subject] * bool(subject) and words in found.get(subject, "")
    if alter is codes:
        assert "true upper bound in their space or declare the part as float32 instead of uint8" in found[subject]


class Aimed(images.Glimpse):
    """Actions target an image, and an array that there is not."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = replace(self.spec, targets=(("view", 0), ("foes", 1)))


def test_targets_that_nobody_observes_are_reported() -> None:
    report = check(HostEnvironment(Aimed().spec, lambda render=False: Aimed()), isolate=False, episodes=1)
    assert [f.sentence for f in report.findings if f.subject == "spec"] == [
        "spec.targets names 'view', 'foes', but no array of shape (K, F) in spec.parts has this name."
    ]


def test_the_arrays_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """And few enough steps are played for the memory that images take."""
    monkeypatch.setattr("shoal.checking.device.vmapped_rate", lambda env: (1.0, 1.0))
    monkeypatch.setattr(inspection, "MAX_PLAYED_BYTES", 10 * 400)
    report = check(images.device())
    facts = [text for title, text in report.facts if title in ("observation", "")]
    assert facts[:2] == ["features: 192, 194", "view 8 × 8 × 3 uint8 | view 8 × 8 × 3 uint8, clock 2 float32"]
    assert "10 steps" in dict(report.facts)["played"]


def test_numbers_in_place_of_bytes_are_refused() -> None:
    env = images.device()

    def reset(key: Any) -> Any:
        state, step = env.reset(key)
        return state, step._replace(obs=step.obs / 255.0)

    report = check(replace(env, reset=reset))
    assert not report.ok and "obs of type float32, but it must be uint8" in str(report).replace("\n         ", " ")


def test_parts_must_fill_the_rows() -> None:
    from shoal.environments.spec_rules import check_spec

    with pytest.raises(InputError, match=r"takes 200 bytes, but spec\.obs_dims says 194"):
        check_spec(replace(images.spec_of(True), obs_dims=(192, 194)))
