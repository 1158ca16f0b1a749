"""Any object with SMAC's interface: played beside the original, step by step, on a little battle of the same interface.

Random legal play in the stand-in, which raises on an illegal action, proves that the masks arrive as they are.
"""

import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shoal.environments import registry
from shoal.environments.adapters import foreign, smac
from shoal.errors import InputError
from shoal.game import HostEnvironment, HostTimestep, blank, own_actions, refresh
from support.novel_oracle import check_novel, random_play
from support.smac_battle import LiteSkirmish, Skirmish, Typed, Uncounted, Wrapped

EPISODES = 12


def begun(game: Any, seed: int) -> tuple[HostTimestep, np.ndarray]:
    out, own = blank(game.spec), own_actions(game.spec)
    refresh(out, own)
    game.reset(seed, out)
    return out, own


def legal_play(out: HostTimestep, rng: np.random.Generator) -> np.ndarray:
    return np.array([rng.choice(np.flatnonzero(row)) for row in out.legal], np.int32)


def sees(out: HostTimestep, original: Any, obs: Any) -> None:
    """``out`` says what the original does; its dead are told by their health."""
    np.testing.assert_array_equal(out.alive, original.health > 0)
    np.testing.assert_array_equal(out.obs, np.array(obs) * out.alive[:, None])
    np.testing.assert_array_equal(out.state, original.get_state())
    np.testing.assert_array_equal(out.legal, np.array(original.get_avail_actions(), bool))
    assert out.legal[~out.alive, 0].all() and not out.legal[~out.alive, 1:].any()


def side_by_side(game: Any, original: Any, episodes: int = EPISODES, scale: float = 1.0) -> dict[str, int]:
    """Play both, of the same seeds and actions; how often each end came, and how many steps had a dead agent."""
    rng = np.random.default_rng(1)
    seen = {"won": 0, "lost": 0, "cut": 0, "mourned": 0}
    for episode in range(episodes):
        seed = 100 + episode
        out, own = begun(game, seed)
        if isinstance(original, LiteSkirmish):
            obs, _ = original.reset(seed=seed)
        else:
            if type(original) is Uncounted:
                original.seed(seed)
            obs, _ = original.reset()
        for step in range(1, game.spec.horizon + 1):
            sees(out, original, scale * np.array(obs))
            action = legal_play(out, rng)
            refresh(out, own)
            game.step(action, out)
            result = original.step(action.tolist())
            obs, (reward, over) = (result[0], result[1:3]) if len(result) == 5 else (original.get_obs(), result[:2])
            np.testing.assert_array_equal(out.reward, np.full(game.spec.num_agents, reward, np.float32))
            decided = not original.strength.any() or not original.health.any()
            assert out.last == (over or step == game.spec.horizon)
            np.testing.assert_array_equal(out.discount, 0.0 if decided else 1.0)
            np.testing.assert_array_equal(out.metrics, [not original.strength.any(), (original.health <= 0).sum()])
            seen["mourned"] += not out.alive.all() and not out.last
            if out.last:
                sees(out, original, scale * np.array(obs))
                seen["won" if not original.strength.any() else "lost" if decided else "cut"] += 1
                break
        else:
            raise AssertionError("the episode did not end at its limit")
    return seen


@pytest.mark.parametrize(("kind", "limit"), [(Skirmish, 15), (Uncounted, 15)])
def test_smacs_interface_is_played_step_by_step(kind: Any, limit: int):
    original = kind(seed=100, limit=limit) if kind is Skirmish else kind(limit=limit)
    game = foreign.wrap(kind(limit=limit), "mine:battle")
    assert isinstance(game, smac.Battle) and game.spec.horizon == limit
    assert game.spec.shared_reward and game.spec.score == "mean"
    assert game.spec.num_agents == 3 and game.spec.action.width == 9
    assert game.spec.state_dim == 21 and game.spec.obs_dims == (24, 24, 24)
    assert min(side_by_side(game, original).values()) > 0  # all three ends, and steps after a death


def test_smaclites_interface_is_played_step_by_step_with_smacs_time_limit_of_its_map():
    game = smac.wrap(LiteSkirmish("2s3z"), "mine:lite")
    assert game.spec.horizon == smac.LIMITS["2s3z"] == 120
    seen = side_by_side(smac.Battle(LiteSkirmish(), "mine:lite", 15), LiteSkirmish())
    assert min(seen.values()) > 0
    assert game.render() is None  # it would open a window
    out, _ = begun(game, 3)
    again, _ = begun(game, 3)
    np.testing.assert_array_equal(out.obs, again.obs)


@pytest.mark.parametrize("last_action", [(False, True), (True, True), (True, False)])
def test_features_of_smac_that_the_state_lacks(last_action: tuple[bool, bool]):
    """``last_action``: whether observations, and whether the state hold the last actions."""
    game = smac.wrap(Typed(last_action=last_action, limit=60, hit=0.05), "mine:typed")
    relative = 4 + 4 * 3 + (4 + game.spec.action.width * (last_action == (True, False))) * 2
    assert game.spec.novel is not None and len(game.spec.novel) == relative
    seen = random_play(game, 500)
    check_novel(game.spec, seen, hidden=True, least=0.9)  # an ally that is seen lives, and has not done nothing
    if last_action != (False, True):
        return
    for wrong in (game.spec.novel[1:], game.spec.novel[:-1], (*game.spec.novel, game.spec.obs_dim - 1)):
        with pytest.raises(AssertionError, match="state"):
            check_novel(replace(game.spec, novel=wrong), seen, hidden=True)


@pytest.mark.parametrize(
    "changes",
    [{"conic_fov": True}, {"prob_obs_enemy": 0.5}, {"obs_timestep_number": True}, {"stochastic_attack": True}],
)
def test_options_that_change_what_is_seen_leave_the_state_unknown(changes: dict[str, Any]):
    made = Typed()
    vars(made).update(changes)
    assert smac.wrap(made, "mine:typed").spec.novel is None


def test_what_other_packages_states_hold_is_unknown():
    for made in (Skirmish(), LiteSkirmish(), Wrapped(LiteSkirmish())):
        assert smac.wrap(made, "mine:battle").spec.novel is None
    whole = Typed()
    whole.obs_instead_of_state = True
    assert smac.novel(whole, whole.obs_size) == ()
    assert smac.novel(Typed(), Typed().obs_size + 1) is None  # a feature that is not accounted for


@pytest.mark.parametrize(
    ("map_name", "soldiers", "roles"),
    [
        ("2s3z", 5, (0, 0, 1, 1, 1)),
        ("MMM2", 10, (0, 0, *(1,) * 7, 2)),
        ("bane_vs_bane", 24, (0,) * 4 + (1,) * 20),
        ("8m", 3, (0, 0, 0)),
        ("2s3z", 3, (0, 0, 0)),  # another map of that name
    ],
)
def test_roles_are_types_of_units(map_name: str, soldiers: int, roles: tuple[int, ...]):
    made = Typed(map_name)
    assert smac.roles(made, soldiers) == roles
    vars(made)["replace_teammates"] = True  # SMACv2 draws types for every episode
    assert smac.roles(made, soldiers) == (0,) * soldiers


def group(side: str, **units: int) -> Any:
    return SimpleNamespace(faction=SimpleNamespace(name=side), units=list(units.items()))


class Lite:
    """What SMAClite tells of its map, and the widths of its blocks of features: four allies, two enemies."""

    __module__ = "smaclite.env.smaclite"
    n_agents, n_enemies, ally_feat_size, enemy_feat_size = 4, 2, 7, 8
    map_info = SimpleNamespace(
        groups=[group("ALLY", MEDIVAC=1, MARINE=2), group("ENEMY", MARINE=2), group("ALLY", MEDIVAC=1)],
        ally_has_shields=False,
        num_unit_types=2,
    )


def test_smaclites_groups_say_who_is_who_and_its_sizes_where_features_stand():
    """Beside the original, where it is installed: test_smaclite.py."""
    assert smac.roles(Lite(), 4) == (0, 1, 1, 0)
    blocks = [4 + 8 * i for i in range(2)] + [20 + 7 * i for i in range(3)]
    relative = (0, 1, 2, 3, *(at + i for at in blocks for i in range(4)))
    assert smac.novel(Lite(), 4 + 2 * 8 + 3 * 7 + 3) == relative


def test_every_map_with_unlike_allies_is_known():
    """SMAC's names of maps say who fights: ``3s5z`` are stalkers and zealots, ``2s_vs_1sc`` stalkers alone."""
    mixed = {name for name in smac.LIMITS if len(re.findall(r"\d+[a-z]", name.split("_vs_")[0])) > 1}
    assert set(smac._ARMIES) == mixed | {"MMM", "MMM2", "bane_vs_bane"}
    for name in mixed:
        assert smac._ARMIES[name] == tuple(map(int, re.findall(r"\d+", name.split("_vs_")[0])))


def test_changes_of_a_wrapper_around_smac_are_kept():
    made = Wrapped(LiteSkirmish())
    assert smac.understands(made) and not smac.understands(object())
    game = smac.wrap(made, "mine:wrapped")
    assert game.spec.horizon == 60
    side_by_side(game, LiteSkirmish(), episodes=3, scale=2.0)


class Traffic:
    """EPyMARL's ``MultiAgentEnv`` without battles: cars whose only legal action is 0, to go on, at every other step."""

    episode_limit, n_agents = 4, 2

    def get_env_info(self) -> dict[str, int]:
        return {"state_shape": 2, "obs_shape": 1, "n_actions": 3, "n_agents": 2, "episode_limit": self.episode_limit}

    def reset(self) -> Any:
        self.time = 0
        return self.get_obs(), self.get_state()

    def step(self, actions: Any) -> Any:
        self.time += 1
        return 1.0, self.time == self.episode_limit, {}

    def get_avail_actions(self) -> Any:
        return [[1, 0, 0], [1, 1, 1]] if self.time % 2 else [[0, 1, 1], [0, 0, 0]]

    def get_obs(self) -> Any:
        return [np.full(1, 1.0 + self.time)] * 2

    def get_state(self) -> Any:
        return np.full(2, self.time)

    def close(self) -> None:
        """Nothing to free."""


class Tracking(Traffic):
    death_tracker_ally = np.zeros(2)


def test_agents_of_objects_that_are_no_battles_are_alive_whatever_is_legal():
    out, own = begun(game := smac.wrap(Traffic(), "mine:traffic"), 0)
    while not out.last:
        assert out.alive.all() and (out.obs == 1.0 + game._core.time).all() and out.legal.any(1).all()
        refresh(out, own)
        game.step(np.zeros(2, np.int32), out)
    assert game._core.time == 4 and out.discount.all()  # a time limit
    out, own = begun(game := smac.wrap(Tracking(), "mine:battle"), 0)
    refresh(out, own)
    game.step(np.zeros(2, np.int32), out)
    assert out.alive.tolist() == [False, True] and out.obs.ravel().tolist() == [0.0, 2.0]


@pytest.mark.parametrize("module", sorted(smac._SMAC | smac._LITE))
def test_agents_of_the_packages_die_also_within_wrappers(module: str):
    kind = type("Mine", (type("Base", (), {"__module__": module}),), {})
    assert smac.has_casualties(kind()) and smac.has_casualties(SimpleNamespace(env=SimpleNamespace(env=kind())))
    assert not smac.has_casualties(SimpleNamespace(env=SimpleNamespace()))


def test_a_limit_that_info_tells_and_a_crash_are_cuts():
    told = Uncounted(limit=25)
    out, own = begun(game := smac.wrap(told, "mine:told"), 0)
    told.says_limit, told.episode_limit = True, 3  # earlier than it had said
    for _ in range(3):
        refresh(out, own)
        game.step(np.ones(3, np.int32), out)
    assert out.last and out.discount.all()
    crashing = Skirmish()
    crashing.crash_at = 1
    out, own = begun(game := smac.wrap(crashing, "mine:crash"), 0)
    for _ in range(2):
        refresh(out, own)
        game.step(np.ones(3, np.int32), out)
    assert out.last and out.discount.all() and not out.reward.any()
    assert np.isnan(out.metrics).all()  # nobody knows how it would have ended


def test_dead_enemies_are_counted_as_smac_does():
    """Other numbers of the info by their names."""

    class Told(Uncounted):
        death_tracker_enemy = None

        def step(self, actions: Any) -> Any:
            reward, over, info = super().step(actions)
            return reward, over, info | {"health": int(self.health.sum()), "dead_enemies": sum(self.strength <= 0)}

    made = Told(limit=60, hit=0.1)
    game = smac.wrap(made, "mine:told", ("health", "won"))
    assert game.spec.metrics == ("won", "dead_allies", "dead_enemies", "health")
    out, own = begun(game, 3)
    rng, deaths = np.random.default_rng(0), set()
    while not out.last:
        action = legal_play(out, rng)
        refresh(out, own)
        game.step(action, out)
        expected = [not made.strength.any(), (made.health <= 0).sum(), (made.strength <= 0).sum(), made.health.sum()]
        np.testing.assert_array_equal(out.metrics, expected)
        deaths.add(int(out.metrics[2]))
    assert len(deaths) > 1


def test_smaclite_lists_the_living():
    core = SimpleNamespace(n_enemies=3, enemies={1: None})
    spec = replace(smac.wrap(LiteSkirmish("2s3z"), "mine:lite").spec, metrics=smac.names(core))
    out = blank(spec)
    out.alive[:2] = True
    smac.write_smac_metrics(spec.metrics, core, {"battle_won": False}, out)
    assert spec.metrics == ("won", "dead_allies", "dead_enemies") and out.metrics.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("side", ["health", "strength"])
@pytest.mark.parametrize("kind", [Skirmish, Uncounted])
def test_a_battle_won_at_the_time_limit_is_a_termination(kind: Any, side: str):
    made = kind(limit=1, hit=1.0)
    out, own = begun(game := smac.wrap(made, "mine:last"), 0)
    made.allies[:] = (4, 4)
    made.enemies[:] = (5, 4)
    getattr(made, side)[:] = 0
    getattr(made, side)[0] = 1
    action = [1, 1, 1] if side == "strength" else [1, 0, 0]
    if side == "strength":
        action[0] = 6
    refresh(out, own)
    game.step(np.array(action, np.int32), out)
    assert out.last and not out.discount.any()


def test_an_illegal_action_is_passed_on_and_raises():
    game = smac.wrap(Skirmish(), "mine:battle")
    out, _ = begun(game, 0)
    with pytest.raises(ValueError, match="Invalid action for agent 1: 0"):
        game.step(np.array([1, 0, 1], np.int32), out)


def test_the_first_episodes_seed_is_starcrafts():
    made, mine = Skirmish(), Skirmish(seed=5)
    begun(smac.wrap(made, "mine:battle"), 77)
    begun(smac.wrap(mine, "mine:battle"), 77)
    assert made.seed() == 77 and mine.seed() == 5


def test_any_factory_of_such_an_object_is_an_environment():
    made = registry.make(Skirmish, limit=9)
    assert (
        isinstance(made, HostEnvironment)
        and made.spec.horizon == 9
        and made.spec.name == "support.smac_battle:Skirmish"
    )
    assert made.make().spec == made.spec


def test_what_cannot_be_played_is_said_clearly():
    with pytest.raises(InputError, match="no time limit"):
        smac.wrap(LiteSkirmish("my own map"), "mine:endless")
    broken = LiteSkirmish()
    del broken.n_agents
    with pytest.raises(InputError, match="n_agents"):
        smac.wrap(broken, "mine:broken")
    with pytest.raises(InputError, match="did you mean 'smaclite'"):
        smac.choose("2s3z", "smaclit")
    with pytest.raises(InputError, match="time_limit must be an integer"):
        registry.make("smac/2s3z", time_limit=0)


def test_the_package_is_found_and_an_optimiser_called_smac_is_not_taken_for_it(tmp_path: Any, monkeypatch: Any):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for package in smac.INSTALL:
        monkeypatch.delitem(sys.modules, package, raising=False)
    with pytest.raises(InputError, match=r"^smac/2s3z needs SMAClite \(.*\), or .*\)\. skirmish/2s3z is the same map"):
        smac.choose("2s3z", None)
    (tmp_path / "smac").mkdir()
    (tmp_path / "smac" / "__init__.py").write_text("raise AssertionError('imported')")
    with pytest.raises(InputError, match="hyper-parameter optimiser"):
        smac.choose("2s3z", "smac")
    for package in ("smaclite", "smacv2"):
        (tmp_path / package / "env" / "starcraft2").mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("")
    assert smac.choose("2s3z", None) == "smacv2"
    assert smac.choose("2s3z", "smaclite") == "smaclite"
    assert smac.choose("zerg_5_vs_5", None) == "smacv2"
    (tmp_path / "smac" / "env" / "starcraft2").mkdir(parents=True)
    assert smac.choose("2s3z", None) == "smac"


def test_workers_need_no_jax():
    check = "import shoal.environments.adapters.smac, sys; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)
