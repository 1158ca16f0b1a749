"""Blind agents, which see the time alone: their spec, images, what deployed policies are handed, and what is refused.

``test_wrappers.py`` compares what they see with the definition, on the device and on the host.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import images
import shoal as library
import toys
from shoal import algorithms
from shoal.deploy import Policies
from shoal.environments import registry
from shoal.environments.wrappers import Wrapping, fits, unwrapped, wrap
from shoal.errors import InputError
from shoal.networks import inputs
from shoal.options.flags import games_to_json, override
from shoal.reporting import replays
from shoal.runs import build
from shoal.runs.run import Run
from shoal.spec import EnvSpec, Part
from shoal.training.settings import Settings
from shoal.types import Algorithm, Learner, Step

BLIND = Wrapping(blind=True)
RAW = {"numbers": toys.busy().spec, "images": images.spec_of(mixed=True), "bodies": toys.drift().spec}


@pytest.mark.parametrize("name", RAW)
@pytest.mark.parametrize(
    "more", [{}, {"last_action": True, "agent_ids": True, "frame_stack": 3}], ids=["alone", "more"]
)
def test_the_spec_holds_one_number_and_what_the_environment_returns(name: str, more: dict[str, Any]) -> None:
    raw, wrapping = RAW[name], replace(BLIND, **more)
    env = replace(toys.busy(), spec=raw)
    spec = wrap(env, wrapping).spec
    registry.check_spec(spec)
    added = [raw.num_agents + dim if more else 0 for dim in raw.action_dims]
    assert spec.feature_dims == tuple(1 + width for width in added)
    assert spec.novel is None if raw.packed else spec.novel is not None and spec.novel[0] == 0
    assert (spec.state_dim, spec.action_dims, spec.horizon) == (raw.state_dim, raw.action_dims, raw.horizon)
    back = unwrapped(spec, wrapping)
    parts = raw.parts or tuple((Part((width,)),) for width in raw.obs_dims)
    assert (back.obs_dims, back.parts, back.packed) == (raw.obs_dims, parts, raw.packed)
    assert fits(spec, wrapping) and not fits(spec, replace(wrapping, blind=False))
    assert not fits(wrap(env, replace(wrapping, blind=False)).spec, wrapping)


def test_nothing_but_the_time_is_left_of_an_image() -> None:
    wrapping = Wrapping(greyscale=True, resize=(4, 4), frame_stack=2, blind=True)
    env = wrap(images.device(mixed=True), wrapping)
    assert env.spec.obs_dims == (4, 4) and env.spec.packed
    state, step = jax.jit(env.reset)(jax.random.key(3))
    for t in range(images.HORIZON + 1):
        seen = inputs.observation_features(env.spec, jnp.asarray(step.obs))
        time = np.where(np.asarray(step.alive)[:, None], t / images.HORIZON, 0.0)
        np.testing.assert_allclose(seen, time, rtol=1e-6)
        state, step = env.step(jax.random.key(t), state, jnp.zeros(2, jnp.int32))
    with pytest.raises(InputError, match="observes none"):
        wrap(toys.busy(), Wrapping(greyscale=True, blind=True))


def timed(learner: Learner, carry: Any, step: Step, key: Any, greedy: bool) -> Any:
    """A policy whose every choice depends on all that it sees."""
    seen = jnp.sin(step.obs.sum(-1) * 97.0)
    return carry, ((jnp.where(step.legal, 1.0, -1.0) * (seen[..., None] + jnp.arange(4))).argmax(-1)).astype(int), {}


def test_a_deployed_policy_counts_the_steps_and_ignores_what_it_is_handed() -> None:
    wrapping = Wrapping(time_limit=5, blind=True, last_action=True)
    raw, env = toys.busy(), wrap(toys.busy(), wrapping)
    algorithm: Any = Algorithm(None, lambda _: (), timed, None)  # type: ignore[arg-type]
    team = Policies(env.spec, algorithm, (), wrapping=wrapping)
    assert team.spec.obs_dims == raw.spec.obs_dims
    alone, inside, outside = team.agent(1), jax.jit(raw.step), jax.jit(env.step)
    for episode in range(2):
        key = jax.random.key(episode)
        team.reset()
        alone.reset()
        (state, now), (outer, shown) = jax.jit(raw.reset)(key), jax.jit(env.reset)(key)
        for t in range(4):
            chosen = timed((), (), shown, None, True)[1]  # type: ignore[arg-type]
            rows = [np.full(width, 1e3 * (t - 2)) for width in raw.spec.obs_dims]
            np.testing.assert_array_equal(team.act(rows, now.legal, alive=list(now.alive)), chosen)
            assert alone.act(rows[1], now.legal[1]) == chosen[1]
            turn = jax.random.fold_in(key, t)
            (state, now), (outer, shown) = inside(turn, state, chosen), outside(turn, outer, chosen)
    with pytest.raises(InputError, match="agent_0's observation has width 4, not 1"):
        team.act([[0.5]] * 3)


@pytest.mark.parametrize(
    ("name", "flags", "said"),
    [
        ("mat", {"critic_input": "agent"}, "mat acts on the global state, which blind does not hide: set critic_input"),
        ("scripted", {}, "scripted acts on the global state, which blind does not hide: choose an algorithm that"),
    ],
)
def test_who_acts_on_the_state_cannot_be_blind(name: str, flags: dict[str, Any], said: str) -> None:
    plain = registry.make("skirmish/3m") if name == "scripted" else toys.busy()
    config = override(algorithms.get(name).Config(), flags)
    with pytest.raises(InputError, match=said):
        build.acting_algorithm(name, wrap(plain, BLIND).spec, config, Settings(wrapping=BLIND))
    build.acting_algorithm(name, plain.spec, config, Settings())


def narrow(spec: EnvSpec) -> EnvSpec:
    """A spec whose observations are as wide as the time."""
    return replace(spec, obs_dims=(1,) * spec.num_agents, parts=None, novel=None)


def test_the_blind_and_the_seeing_do_not_play_together(tmp_path: Path) -> None:
    config = algorithms.get("mappo").Config()
    runs = [
        Run(tmp_path / name, "mappo", "toys:busy", {}, settings, config, toys.busy())
        for name, settings in (("a", Settings()), ("b", Settings(wrapping=BLIND)))
    ]
    with pytest.raises(InputError, match=r"b was trained with blind True and .*a with False, so their policies"):
        library.crossplay(runs)
    # Frozen opponents are compared by their specs, which have to differ even where the widths are equal.
    seeing = narrow(toys.busy().spec)
    blind = wrap(replace(toys.busy(), spec=seeing), BLIND).spec
    assert blind.obs_dims == seeing.obs_dims
    here, there = games_to_json(seeing, blind)
    assert here != there
    with pytest.raises(InputError, match="widths of observations differ"):
        build.opponents_in(str(untrained(tmp_path / "seeing")), wrap(toys.busy(), BLIND).spec)


def untrained(folder: Path, **flags: Any) -> Path:
    from support import run_folders

    return run_folders.run(folder, [1.0], **flags)


def test_the_run_file_and_its_deployed_policies_know(tmp_path: Path) -> None:
    run = library.open_run(untrained(tmp_path / "run", blind=True, last_action=True), trust=True)
    assert run.settings.wrapping == Wrapping(blind=True, last_action=True)
    assert run.env.spec == run.spec and run.spec.feature_dims == (1 + 3, 1 + 4, 1 + 2)


def test_a_replay_names_what_is_seen() -> None:
    wrapping = Wrapping(frame_stack=2, blind=True, agent_ids=True)
    spec = wrap(toys.busy(), wrapping).spec
    features = [["x"] * width for width in toys.busy().spec.obs_dims]
    table = replays._fixed({"features": features}, spec, wrapping, True)["features"]
    names = [table["names"][k] for k in table["rows"][2]]
    assert names == ["time / time limit", "is agent_0", "is agent_1", "is agent_2"]


def test_on_the_command_line(shoal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def train(found: Any, *_: Any, **__: Any) -> Any:
        asked.append(found.flags)
        raise InputError("enough")

    monkeypatch.setattr("shoal.runs.api.train_configured", train)
    assert shoal("train", "mappo", "matrix/climbing", "--blind")[0] == 2
    assert asked[0]["blind"] is True
