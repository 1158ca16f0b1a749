"""SMAClite through the adapter, beside the original; skipped where it is not installed."""

import numpy as np
import pytest

from shoal.environments import registry
from shoal.errors import InputError
from shoal.game import HostEnvironment, blank, own_actions, refresh
from support.environments import host_env
from support.novel_oracle import check_novel, random_play

pytest.importorskip("smaclite", reason="SMAClite comes from its repository alone")


@pytest.mark.parametrize(("task", "steps"), [("2s3z", 90), ("MMM", 60)])
def test_battles_are_smaclites_step_by_step(task: str, steps: int):
    from smaclite.env import SMACliteEnv  # pyright: ignore[reportMissingImports]
    from smaclite.env.maps.map import MapPreset  # pyright: ignore[reportMissingImports]

    made = host_env(f"smac/{task}", package="smaclite", time_limit=30)
    assert isinstance(made, HostEnvironment)
    game, original = made.make(), SMACliteEnv(map_info=MapPreset[f"MAP_{task.upper()}"].value)
    assert game.spec.name == f"smac/{task}" and game.spec.horizon == 30
    out, own, rng = blank(game.spec), own_actions(game.spec), np.random.default_rng(0)
    seed, start, deaths = 0, -1, 0
    obs: tuple[np.ndarray, ...] = ()
    for t in range(steps):
        if start < 0:
            refresh(out, own)
            game.reset(seed, out)
            obs, _ = original.reset(seed=seed)
            start = t
        np.testing.assert_array_equal(out.obs, np.array(obs))  # the dead see zeros there too
        np.testing.assert_array_equal(out.state, original.get_state())
        np.testing.assert_array_equal(out.legal, np.array(original.get_avail_actions(), bool))
        np.testing.assert_array_equal(out.alive, [i in original.agents for i in range(game.spec.num_agents)])
        deaths += not out.alive.all()
        action = np.array([rng.choice(np.flatnonzero(row)) for row in out.legal], np.int32)
        refresh(out, own)
        game.step(action, out)
        obs, reward, over, _, _ = original.step(action.tolist())
        np.testing.assert_array_equal(out.reward, np.float32(reward))
        assert (out.discount == 0).all() == over
        assert out.last == (over or t + 1 - start == 30)
        if out.last:
            seed, start = seed + 1, -1
    assert seed > 1 and (deaths > 0 or task == "MMM")
    picture = game.render()
    assert picture is not None and picture.ndim == 3 and picture.dtype == np.uint8
    game.close()


@pytest.mark.parametrize(("task", "roles"), [("2s3z", (0, 0, 1, 1, 1)), ("MMM2", (0, *(1,) * 7, 2, 2))])
def test_the_state_holds_what_is_not_relative_and_roles_are_types(task: str, roles: tuple[int, ...]):
    game = host_env(f"smac/{task}", package="smaclite").make()
    assert game.spec.roles == roles
    check_novel(game.spec, random_play(game, 60), hidden=True, least=0.7)


def test_maps_that_it_lacks_are_named():
    with pytest.raises(InputError, match="no SMAClite map '8m'"):
        registry.make("smac/8m", package="smaclite")
    assert registry.make("smac/corridor", package="smaclite").spec.horizon == 400
