"""Cross-play: each run on its own side, every seed with every seed, and intervals that know what varies."""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shoal as library
import toys
from shoal import algorithms
from shoal.environments import registry
from shoal.environments.wrappers import Wrapping
from shoal.errors import InputError
from shoal.options.flags import override
from shoal.rollouts.host import Workers
from shoal.runs import open as opening
from shoal.runs.api import check_same_environment
from shoal.runs.run import Run
from shoal.statistics.intervals import interval
from shoal.storage.checkpoint import Checkpoints
from shoal.training import crossplay
from shoal.training.crossplay import CrossPlay, Player, first_side, pairs_interval
from shoal.training.settings import Settings
from shoal.types import Algorithm, Environment, Learner, Scale

EPISODES = 5


def player(env: Environment, name: str, seeds: int, start: int, **flags: Any) -> Player:
    module = algorithms.get(name)
    config = override(module.Config(), {"hidden": (6,), "chunk_length": 1, "output_gain": 3.0} | flags)
    algorithm = module.make(env.spec, config, Scale(1, 1, 1))
    policy = jax.jit(jax.vmap(algorithm.init))(jax.random.split(jax.random.key(start), seeds)).policy
    return Player(name, name, algorithm, Learner(policy, (), (), (), jnp.zeros(seeds, jnp.int32)))


def test_keys_of_a_pair_do_not_depend_on_the_number_of_seeds() -> None:
    few, many = (crossplay.keys_of_pairs(jax.random.key(3), *shape) for shape in ((2, 3), (4, 5)))
    expected = jax.random.fold_in(jax.random.fold_in(jax.random.key(3), 1), 2)
    assert few[1, 2] == many[1, 2] == expected and few[0, 2] != few[1, 2]


def by_hand(env: Environment, players: tuple[Player, Player], mine: list[int]) -> Callable[..., np.ndarray]:
    """(who plays which side, their seeds) -> sampled returns [episodes, N], by a plain loop over the same keys."""
    acts = [jax.jit(p.algorithm.act, static_argnums=4) for p in players]
    reset, step = jax.vmap(env.reset), jax.jit(jax.vmap(env.step))

    def play(pair: tuple[int, int], seeds: tuple[int, int]) -> np.ndarray:
        learners = [jax.tree.map(lambda x, s=s: x[s], players[i].learner) for i, s in zip(pair, seeds, strict=True)]
        carries = [players[i].algorithm.initial_carry(EPISODES) for i in pair]
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(3), seeds[0]), seeds[1])
        key_reset, key_play = jax.random.split(key)
        state, now = reset(jax.random.split(key_reset, EPISODES))
        returns = np.zeros((EPISODES, env.spec.num_agents))
        for key_t in jax.random.split(key_play, env.spec.horizon):
            key_act, key_step, _ = jax.random.split(key_t, 3)
            said = []
            for i, key_i in enumerate(jax.random.split(key_act)):
                carries[i], action, _ = acts[pair[i]](learners[i], carries[i], now, key_i, False)
                said.append(np.array(action))
            said[1][:, mine] = said[0][:, mine]
            state, now = step(jax.random.split(key_step, EPISODES), state, said[1])
            returns += now.reward
        return returns

    return play


def test_each_run_plays_its_own_side() -> None:
    """A recurrent team of three seeds and a feed-forward one of two, whose learners and carries differ in shape."""
    env = toys.tempting()
    players = player(env, "mappo", 3, 1, recurrent=4), player(env, "ippo", 2, 2)
    meet = crossplay.make_matches(
        env, (players[0].algorithm, players[1].algorithm), (1,), EPISODES, (False, False), Workers()
    )
    found = np.asarray(meet(players[0].learner, players[1].learner, jax.random.key(3))[0])
    assert found.shape == (3, 2, EPISODES, 2)
    play = by_hand(env, players, [1])
    for seeds in ((0, 1), (1, 0), (2, 1)):
        np.testing.assert_allclose(found[seeds], play((0, 1), seeds)[:, ::-1], rtol=1e-5, atol=1e-5)
    assert len(np.unique(found)) > 3


def constants(name: str, *actions: int) -> Player:
    """A team that always plays one action; each seed has its own."""

    def act(learner: Learner, carry: Any, step: Any, key: Any, greedy: bool) -> Any:
        return carry, jnp.broadcast_to(learner.policy, step.alive.shape), {}

    policy = jnp.array(actions, jnp.int32)
    nothing: Any = lambda *_: ()  # noqa: E731
    algorithm = Algorithm(nothing, nothing, act, nothing)
    return Player(name, "constant", algorithm, Learner(policy, (), (), (), jnp.zeros(len(actions), jnp.int32)))


def test_each_run_acts_in_its_mode() -> None:
    """A team that plays 1 greedily and 0 otherwise, with one of each mode as partner."""
    team = constants("team", 1)

    def act(learner: Learner, carry: Any, step: Any, key: Any, greedy: bool) -> Any:
        return carry, jnp.full(step.alive.shape, int(greedy)), {}

    players = [team._replace(algorithm=team.algorithm._replace(act=act), greedy=greedy) for greedy in (True, False)]
    pays = toys.coordination()

    def step(key: Any, state: Any, action: Any) -> Any:
        state, outcome = pays.step(key, state, action)
        return state, outcome._replace(reward=action.astype(float))

    env = Environment(pays.spec, pays.reset, step)
    play = lambda how: crossplay.play_matches(env, players, (0,), jax.random.key(0), 1, how)  # noqa: E731
    found = play(None)
    np.testing.assert_array_equal(found.mean, [[[1, 1], [1, 0]], [[0, 1], [0, 0]]])
    assert found.greedy == (True, False) and "team (constant, sampled)" in str(found)
    assert (play(False).mean == 0).all()


@pytest.fixture(scope="module")
def rivals() -> CrossPlay:
    """Side 1 earns 10 a + b and side 2 its opposite, where a and b are what they play."""
    plain = toys.coordination()

    def step(key: Any, state: Any, action: Any) -> Any:
        state, outcome = plain.step(key, state, action)
        earned = 10.0 * action[0] + action[1]
        even = jnp.where(action[1] % 2 == 0, earned, jnp.nan)  # known only there
        return state, outcome._replace(reward=jnp.stack([earned, -earned]), metrics=jnp.stack([earned, even]))

    env = Environment(replace(plain.spec, metrics=("paid", "even")), plain.reset, step)
    return crossplay.play_matches(env, [constants("ones", 1, 1), constants("both", 0, 2)], (0,), jax.random.key(0), 3)


def test_rows_are_side_1_and_columns_side_2(rivals: CrossPlay) -> None:
    np.testing.assert_allclose(rivals.mean[..., 0], [[11, 11], [11, 11]])
    np.testing.assert_allclose(rivals.mean[..., 1], -rivals.mean[..., 0])
    np.testing.assert_allclose(rivals.returns[0][1][..., 0, 0], [[10, 12], [10, 12]])
    np.testing.assert_allclose(rivals.returns[1][0][..., 0, 0], [[1, 1], [21, 21]])
    np.testing.assert_allclose(rivals.returns[1][1][..., 0, 0], [[0, 2], [20, 22]])
    np.testing.assert_allclose(rivals.together[:, 0, 0], [11, 11])
    np.testing.assert_allclose(rivals.together[1, 0, 1:], interval(np.array([0.0, 22.0]))[1:])


def test_metrics_have_entries_of_their_own(rivals: CrossPlay) -> None:
    """One metric is what side 1 earns at the end of an episode of one step; the other is not known of odd actions."""
    said = rivals.as_json()["metrics"]
    for part in ("mean", "low", "high"):
        np.testing.assert_allclose(said["paid"][part], getattr(rivals, part)[..., 0])
    np.testing.assert_allclose(said["even"]["mean"], [[np.nan, 11], [np.nan, 11]])
    assert np.isnan(said["even"]["low"][:, 0]).all() and np.isfinite(said["even"]["low"][:, 1]).all()
    tables = str(rivals).split("\n\n")
    assert [table for table in tables if "mean over episodes" in table] == [
        "paid, mean over episodes",
        "even, mean over episodes",
    ]


def test_intervals_are_over_seeds(rivals: CrossPlay) -> None:
    low, high = rivals.low[..., 0], rivals.high[..., 0]
    np.testing.assert_allclose([low[0, 0], high[0, 0]], 11)  # two seeds that are the same
    np.testing.assert_allclose([low[0, 1], high[0, 1]], interval(np.array([10.0, 12.0]))[1:])
    np.testing.assert_allclose([low[1, 0], high[1, 0]], interval(np.array([1.0, 21.0]))[1:])
    np.testing.assert_allclose([low[1, 1], high[1, 1]], [0.0, 22.0])


def test_intervals_know_which_runs_have_the_same_seeds() -> None:
    """As past selves have: where partners of one seed are both good or both bad, the mean varies more."""
    seeds = np.arange(6.0)
    pairs = np.repeat((seeds[:, None] + seeds)[..., None, None], 2, axis=-1)  # [6, 6, 1, 2]
    played = ((pairs, pairs),) * 2
    one = CrossPlay(("early", "late"), ("mappo",) * 2, (("a",), ("b",)), played, {"paid": ((pairs[..., 0],) * 2,) * 2})
    for found, same in ((one, False), (one._replace(runs=(0, 0)), True)):
        ends = pairs_interval(pairs[..., 0], same)
        assert (found.mean[0, 1, 0], found.low[0, 1, 0], found.high[0, 1, 0]) == ends
        assert found.as_json()["metrics"]["paid"]["high"][0, 1] == ends[2]
    assert found.low[0, 1, 0] < one.low[0, 1, 0] and str(found) != str(one)


def test_columns_of_tables_are_aligned(rivals: CrossPlay) -> None:
    one, two = str(rivals).replace("−", "-").split("\n\nReturn of side 2")
    assert one.startswith("Return of side 1, mean over its agents (agent_0)\n")
    head, *rows = one.splitlines()[2:]
    assert [row[:17].rstrip() for row in rows] == ["A ones (constant)", "B both (constant)"]
    assert head.split() == ["side", "1", "\\", "side", "2", "A", "B", "trained", "together"]
    assert len({len(line) for line in (head, *rows)}) == 1
    assert rows[0].count("11.00 (10.00 … 12.00)") == 1 and "11.00 (1.00 … 21.00)" in rows[1]
    assert "-11.00 (-11.00 … -11.00)" in two


def test_ratings_name_runs_as_they_are_called(rivals: CrossPlay) -> None:
    text = rivals._replace(names=("run-1", "run-2")).rating_table()
    assert "A run-1 " in text and "B run-2 " in text
    assert "−0" not in text and "-0" not in text


def test_who_won_does_not_depend_on_which_side_is_side_1() -> None:
    """The metrics are those of the environment's side 0, which wins with the higher action; returns are equal."""
    plain = toys.coordination()

    def step(key: Any, state: Any, action: Any) -> Any:
        state, outcome = plain.step(key, state, action)
        return state, outcome._replace(
            reward=jnp.zeros(2), metrics=jnp.stack([action[0] > action[1], action[0] < action[1]]).astype(float)
        )

    env = Environment(replace(plain.spec, metrics=("won", "lost"), sides=(0, 1)), plain.reset, step)
    for side, won in (((0,), 1), ((1,), -1)):
        found = crossplay.play_matches(env, [constants("high", 2), constants("low", 1)], side, jax.random.key(0), 1)
        assert found.won == won and found.scores.tolist() == [[0.5, 1], [0, 0.5]]
        assert found.ratings[0][0] > found.ratings[0][1]
        assert (found._replace(won=0).scores == 0.5).all(), "of other sides the returns decide"


def coverage(estimate: Callable, same: bool) -> float:
    """How often the interval holds the true mean 0, where seeds matter on both sides and together."""
    rng, seeds, hits, tries = np.random.default_rng(0), 6, 0, 300
    for _ in range(tries):
        row, column = rng.normal(size=(seeds, 1)), rng.normal(size=(1, seeds))
        column = row.T + 0.3 * column if same else column
        values = row + column + 0.5 * rng.normal(size=(seeds, seeds))
        _, low, high = estimate(values[..., None], same)
        hits += low <= 0 <= high
    return hits / tries


@pytest.mark.parametrize("same", [False, True])
def test_intervals_hold_the_mean_as_often_as_they_say(same: bool) -> None:
    assert 0.91 < coverage(pairs_interval, same) < 0.98
    assert coverage(lambda values, same: interval(values.ravel()), same) < 0.8  # as if all pairs were independent


def test_intervals_where_a_run_has_one_seed() -> None:
    x = np.array([1.0, 4.0, 5.0])
    for values in (x[:, None, None], x[None, :, None], x[None, None, :]):
        np.testing.assert_allclose(pairs_interval(values, False), interval(x))
    _, low, high = pairs_interval(np.array([[[2.0]]]), False)
    assert np.isnan([low, high]).all()


def test_sides_are_those_of_the_environment() -> None:
    tag, spread = registry.make("mpe/simple_tag", num_good=2).spec, registry.make("mpe/simple_spread").spec
    assert first_side(tag) == (0, 1, 2) and first_side(spread) == (0,) and first_side(toys.busy().spec) == (0,)
    assert first_side(replace(tag, sides=(1, 0, 0, 1, 0))) == (1, 2, 4)
    assert first_side(tag, ["agent_1", 0, "2"]) == (0, 2, 4)
    assert first_side(tag, "agent_1") == (4,) and first_side(tag, 0) == (0,)
    with pytest.raises(InputError, match="no agent 'agent_9'"):
        first_side(tag, ["agent_9"])
    with pytest.raises(InputError, match="side 2 would be empty"):
        first_side(spread, range(3))
    with pytest.raises(InputError, match="has only one agent"):
        first_side(registry.make("mpe/simple").spec)


def untrained(folder: Path, algorithm: str, environment: str, seeds: int, **env: Any) -> Path:
    """A run's folder with its initial policies."""
    module, settings = algorithms.get(algorithm), Settings(seeds=seeds, rollout_length=8)
    config = override(module.Config(), {"hidden": (6,), "chunk_length": 8, "output_gain": 3.0})
    run = Run(folder, algorithm, environment, env, settings, config, registry.make(environment, **env))
    folder.mkdir(exist_ok=True)
    opening.keep_run_json(run)
    learner = jax.jit(jax.vmap(run._acting().init))(jax.random.split(jax.random.key(seeds), seeds))
    Checkpoints(folder / "policy", 2, run._identity()).save(0, learner.policy, {"env": environment})
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root, name = tmp_path_factory.mktemp("runs"), "toys:tempting"
    kinds = ("mappo", 2, 3), ("mappo", 1, 3), ("mappo", 1, 4)
    return [untrained(root / f"{x}_{seeds}_{t}", x, name, seeds, horizon=t) for x, seeds, t in kinds]


def test_names_and_sides_come_from_the_folders(folders: list[Path]) -> None:
    found = library.crossplay(folders[:2], episodes=4.0, greedy=False, seed=1)
    assert found.names == ("mappo_2_3", "mappo_1_3") and found.algorithms == ("mappo", "mappo")
    assert found.sides == (("agent_0",), ("agent_1",))
    assert [x.shape for x in itertools.chain(*found.returns)] == [
        (2, 2, 4, 2),
        (2, 1, 4, 2),
        (1, 2, 4, 2),
        (1, 1, 4, 2),
    ]


def test_the_command_cross_play(
    rivals: CrossPlay, shoal: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("shoal.runs.api.crossplay", lambda *runs, **how: asked.append((runs, how)) or rivals)
    words = ["--episodes", "3", "--sampled", "--draw", "1", "--side", "left", "3", "--output", tmp_path / "matrix.json"]
    assert shoal("crossplay", "a", "b", *words) == (0, f"{rivals}\n", "")
    how = {"side": ("left", "3"), "episodes": 3, "greedy": False, "seed": 1, "trust": False, "past": False}
    assert asked == [(((Path("a"), Path("b")),), how)]
    said = json.loads((tmp_path / "matrix.json").read_text(encoding="utf-8"))
    np.testing.assert_allclose(said["mean"], rivals.mean)
    np.testing.assert_allclose(said["pairs"][1][0], rivals.returns[1][0].mean(2))
    assert said["episodes"] == 3 and said["draw"] == 1 and "ratings" not in said
    shoal("crossplay", "a", "--ratings", "--output", tmp_path / "rated.json")
    said = json.loads((tmp_path / "rated.json").read_text(encoding="utf-8"))
    np.testing.assert_allclose([*said["ratings"], said["advantage"]], [*rivals.ratings[0], rivals.ratings[1]])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "needs at least one run's folder"),
        ("nothing", "not the folder of a run"),
        ("RUN OTHER", "were trained in different environments: the time limits are 4 in the one and 3 in the other."),
        ("RUN --side agent_7", "no agent 'agent_7'"),
        ("RUN --episodes 0", "episodes must be at least 1"),
        ("RUN --output there/matrix.json", "not a .json file in a folder that exists"),
    ],
)
def test_bad_input_of_cross_play_is_refused(folders: list[Path], shoal: Callable, words: str, said: str) -> None:
    code, out, err = shoal(
        "crossplay", *words.replace("RUN", str(folders[0])).replace("OTHER", str(folders[2])).split()
    )
    assert (code, out) == (2, "") and said in err
    assert err.startswith("shoal: ") and err.count("\n") == 1


def test_options_that_the_spec_does_not_show(tmp_path: Path) -> None:
    """A weaker agent changes returns and nothing else."""
    runs = [
        Run(
            tmp_path / name,
            "mappo",
            "toys:busy",
            env,
            Settings(),
            algorithms.get("mappo").Config(),
            registry.make("toys:busy", **env),
        )
        for name, env in (("a", {}), ("b", {"death": 0.3}), ("c", {"death": 0.5}))
    ]
    assert runs[0].env.spec == runs[2].env.spec
    with pytest.raises(InputError, match=r"different environments: death is 0.5 in the one and 0.3 in the other"):
        library.crossplay([runs[0], runs[2]])
    check_same_environment(runs[0], runs[1])  # the default, said or not


@pytest.mark.parametrize(("option", "value", "default"), [("action_mask", False, True), ("reward_scale", 0.1, 1.0)])
def test_policies_that_see_masks_or_rewards_otherwise_do_not_play(
    option: str, value: Any, default: Any, tmp_path: Path
) -> None:
    """Whichever of the runs comes first."""
    config, given = algorithms.get("mappo").Config(), Wrapping(**{option: value})
    runs = [
        Run(tmp_path / name, "mappo", "toys:busy", {}, settings, config, toys.busy())
        for name, settings in (("a", Settings()), ("b", Settings(wrapping=given)))
    ]
    said = rf"b was trained with {option} {value} and .*a with {default}, so their policies cannot play together"
    with pytest.raises(InputError, match=said):
        library.crossplay(runs)
    with pytest.raises(InputError, match=rf"a was trained with {option} {default} and .*b with {value}"):
        library.crossplay(runs[::-1])


@pytest.mark.usefixtures("unchecked_annotations")
@pytest.mark.parametrize(("name", "value"), [("greedy", "no"), ("seed", 1.5), ("seed", "x"), ("episodes", 1.5)])
def test_arguments_are_checked_as_by_evaluations(name: str, value: Any, folders: list[Path]) -> None:
    with pytest.raises(InputError, match=f"{name} .*not '?{value}"):
        library.crossplay(folders[:1], **{name: value})
