"""A renderer that ends its process, hangs or raises costs the pictures and one sentence, not the episode."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counters
import poor_renderers
from shoal.errors import GameError
from shoal.game import HostEnvironment
from shoal.rollouts import drawing
from shoal.rollouts.drawing import DrawingError, WatchedGame
from shoal.rollouts.worker import Loss, Worker
from shoal.training import episodes
from shoal.types import Algorithm, Learner, Step
from support import processes


def hosted(fault: str) -> HostEnvironment:
    return HostEnvironment(counters.spec_of(False), partial(poor_renderers.new, fault))


def act(learner: Any, carry: Any, step: Step, key: Any, greedy: bool) -> Any:
    """Random legal actions."""
    return carry, jax.random.categorical(key, jnp.where(step.legal, 0.0, -jnp.inf)), {}


def unused(*_: Any) -> Any:
    raise AssertionError


ALGORITHM = Algorithm(unused, lambda count: (), act, unused)


def recorded(env: HostEnvironment) -> episodes.RecordedEpisode:
    learner = Learner((), (), (), (), jnp.int32(0))
    return episodes.record_episodes(env, ALGORITHM, learner, jax.random.key(3), 1)[0]


def drawn(env: HostEnvironment) -> None:
    """Draw a game three times."""
    with closing(WatchedGame(env, draws=True)) as game:
        game.reset(0)
        game.wait(0)
        for _ in range(2):
            assert game.picture() is not None
            game.play()
        game.picture()


def test_an_episode_without_its_pictures(capfd: pytest.CaptureFixture) -> None:
    plain, found = recorded(counters.hosted()), recorded(hosted("abort"))
    assert plain.frames is not None and found.frames is None
    assert [np.max(np.asarray(frame)) for frame in plain.frames] == [10 * t for t in range(len(plain.rewards) + 1)]
    np.testing.assert_array_equal(found.rewards, plain.rewards)
    assert capfd.readouterr() == ("", "There are no pictures of toys/counters: its renderer died (signal 6).\n")


def test_some_timesteps_of_an_episode_are_drawn() -> None:
    env, learner, key = counters.hosted(), Learner((), (), (), (), jnp.int32(0)), jax.random.key(3)

    def drawn(drawing: episodes.Drawing) -> tuple[list[int], list[int], int]:
        """The timesteps drawn of the second episode, what each timestep shows, and the number of steps."""
        found = episodes.record_each(env, ALGORITHM, [learner], key, 2, drawing=drawing)[0][1]
        assert isinstance(found.frames, episodes.SparsePictures) and len(found.frames) == len(found.rewards) + 1
        assert np.max(np.asarray(found.frames[-1])) == 10 * len(found.rewards) and len(found.frames[1:3]) == 2
        return found.frames.at.tolist(), [int(np.max(np.asarray(x))) // 10 for x in found.frames], len(found.rewards)

    at, shown, steps = drawn(episodes.Drawing(-(-(env.spec.horizon + 1) // 3), 1e9))
    assert at == sorted({*range(0, steps, 3), steps})
    assert shown == [max(t for t in at if t <= step) for step in range(steps + 1)]
    at, _, steps = drawn(episodes.Drawing(10**6, 1e-9))  # no time for any but the first and the last
    assert at == [0, steps]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise", r"its renderer raised RuntimeError: there is no screen"),
        ("exit", r"its renderer raised SystemExit: 3"),
        ("make", r"worker 0 died \(signal 6\) while it built its games"),
    ],
)
def test_how_a_renderer_failed(fault: str, said: str, capfd: pytest.CaptureFixture) -> None:
    with pytest.raises(DrawingError, match=f"^{said}$"):
        drawn(hosted(fault))
    assert capfd.readouterr() == ("", "")


def test_a_renderer_that_hangs_is_killed_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "DRAWING", 0.3)
    seen: set[int] = set()
    kill: Callable = drawing.WatchedGame._ended

    def ended(game: WatchedGame, one: Worker, loss: Loss, seconds: float) -> str:
        assert one.process is not None
        seen.update({one.process.pid}, processes.descendants(one.process.pid))
        return kill(game, one, loss, seconds)

    monkeypatch.setattr(drawing.WatchedGame, "_ended", ended)
    with pytest.raises(DrawingError, match=r"its renderer did not answer for 0\.3 s"):
        drawn(hosted("hang"))
    assert len(seen) == 2 and not processes.left(seen)


def test_a_game_that_dies_without_drawing_is_an_error_of_the_game(tmp_path: Path) -> None:
    with (
        closing(WatchedGame(counters.hosted(False, "die always", str(tmp_path)), draws=False)) as game,
        pytest.raises(GameError, match=r"toys/counters: its process died \(exit code 7\)"),
    ):
        game.reset(0)
        game.wait(0)
        game.play()


def test_what_cannot_be_imported_is_sent_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a function of a notebook; and what cannot be sent at all is drawn in this process."""
    local = HostEnvironment(counters.spec_of(False), lambda render=False: counters.new(render=render))
    with closing(WatchedGame(local, draws=True)) as game:
        assert len(game.workers) == 1
        game.reset(0)
        game.wait(0)
        assert game.picture() is not None
    monkeypatch.setattr(drawing, "sent", lambda make: None)
    with closing(WatchedGame(hosted("raise"), draws=True)) as game:
        assert game.here is not None and not game.workers
        game.reset(0)
        game.wait(0)
        assert game.picture() is not None
        game.play()
        game.play()
        with pytest.raises(DrawingError, match=r"raised RuntimeError: there is no screen"):
            game.picture()


def test_pictures_of_this_process_stay_as_they_were_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "sent", lambda make: None)
    with closing(WatchedGame(hosted("one canvas"), draws=True)) as game:
        game.reset(0)
        game.wait(0)
        first = game.picture()
        game.play()
        second = game.picture()
    assert first is not None and second is not None and (first.max(), second.max()) == (0, 10)


def test_without_a_display_mujoco_draws_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    assert drawing._off_screen() == {}
    monkeypatch.delenv("DISPLAY")
    monkeypatch.setattr("sys.platform", "linux")
    assert drawing._off_screen() == {"MUJOCO_GL": "egl"}
