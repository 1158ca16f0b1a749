"""Judging: every environment's first episode counts once, by the rules, greedy or sampled."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import counters
import toys
from shoal.algorithms import mappo
from shoal.errors import InputError
from shoal.options.flags import override
from shoal.statistics.intervals import interval
from shoal.training import evaluation
from shoal.training.episodes import record_episodes
from shoal.training.settings import Settings
from shoal.types import Algorithm, Environment, Learner, Scale

SEEDS, EPISODES = 2, 6


class Case(NamedTuple):
    env: Environment
    algorithm: Algorithm
    learner: Learner
    """[S ...], nothing but policies."""


def case(env: Environment, **flags: Any) -> Case:
    algorithm = mappo.make(
        env.spec, override(mappo.Config(), {"hidden": (8,), "chunk_length": 1} | flags), Scale(1, 1, 1)
    )
    policy = jax.jit(jax.vmap(algorithm.init))(jax.random.split(jax.random.key(4), SEEDS)).policy
    return Case(env, algorithm, Learner(policy, (), (), (), jnp.zeros(SEEDS, jnp.int32)))


@pytest.fixture(scope="module")
def busy() -> Case:
    """A recurrent team that has learned nothing; its output is wide, so that it does prefer some actions."""
    return case(toys.busy(), recurrent=4, output_gain=3.0)


def play(case: Case, key: jax.Array, seed: int, greedy: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns [episodes, N], lengths [episodes] and metrics [episodes, M] by a plain loop over the same keys."""
    env, algorithm, learner = case.env, case.algorithm, jax.tree.map(lambda x: x[seed], case.learner)
    reset, step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))
    act = jax.jit(algorithm.act, static_argnums=4)
    key_reset, key_play = jax.random.split(jax.random.split(key, SEEDS)[seed])
    state, now = reset(jax.random.split(key_reset, EPISODES))
    carry = algorithm.initial_carry(EPISODES)
    returns, lengths, over = np.zeros((EPISODES, env.spec.num_agents)), np.zeros(EPISODES), np.zeros(EPISODES, bool)
    metrics = np.zeros((EPISODES, len(env.spec.metrics)))
    for key_t in jax.random.split(key_play, env.spec.horizon):
        key_act, key_step, _ = jax.random.split(key_t, 3)
        carry, action, _ = act(learner, carry, now, key_act, greedy)
        state, now = step(jax.random.split(key_step, EPISODES), state, action)
        returns += np.where(over[:, None], 0.0, now.reward)
        lengths += ~over
        metrics = np.where(over[:, None], metrics, now.metrics)
        over |= np.asarray(now.last)
    assert over.all()
    return returns, lengths, metrics


@pytest.fixture(scope="module")
def judged(busy: Case) -> evaluation.Evaluation:
    """Greedy episodes of the team."""
    return evaluation.evaluate(*busy, jax.random.key(9), EPISODES)


@pytest.mark.parametrize("greedy", [True, False])
def test_first_episodes_counted_once(busy: Case, judged: evaluation.Evaluation, greedy: bool) -> None:
    key = jax.random.key(9)
    result = judged if greedy else evaluation.evaluate(*busy, key, EPISODES, greedy)
    assert result.returns.shape == (SEEDS, EPISODES, 3) and result.lengths.shape == (SEEDS, EPISODES)
    for seed in range(SEEDS):
        returns, lengths, metrics = play(busy, key, seed, greedy)
        np.testing.assert_allclose(result.returns[seed], returns, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(result.lengths[seed], lengths)
        for i, name in enumerate(("won", "steps", "luck")):
            np.testing.assert_allclose(result.metrics[name][seed], metrics[:, i], rtol=1e-6)
    np.testing.assert_array_equal(result.metrics["steps"], result.lengths)
    assert np.isnan(result.metrics["luck"]).any() and 0 < result.metric("won").mean < 1
    assert len(np.unique(result.lengths)) > 2  # some end early, and none is followed by a second one
    assert result.returns.min() > -500.0  # an illegal action costs 1000


def test_an_untrained_team_would_break_the_rules(busy: Case) -> None:
    """So that the test above means something: without the mask these policies do what costs 1000."""
    true = busy.env

    def lawless(out: Any) -> Any:
        return out[0], out[1]._replace(legal=jnp.ones_like(out[1].legal))

    env = Environment(true.spec, lambda key: lawless(true.reset(key)), lambda *timestep: lawless(true.step(*timestep)))
    assert evaluation.evaluate(env, *busy[1:], jax.random.key(9), EPISODES).returns.min() < -500.0


def test_greedy_and_sampled_differ(busy: Case) -> None:
    """Greedy play does the same in the same place; sampling does not."""
    games = case(toys.coordination(), output_gain=0.01)
    greedy, sampled = (evaluation.evaluate(*games, jax.random.key(1), 64, how).scores for how in (True, False))
    assert (greedy == greedy[:, :1]).all()
    assert all(len(np.unique(row)) == 3 for row in sampled)


@pytest.mark.parametrize(("score", "factor"), [("sum", 1.0), ("mean", 1 / 3)])
def test_the_score_is_the_sum_or_the_mean_over_agents(
    busy: Case, judged: evaluation.Evaluation, score: Any, factor: float
) -> None:
    spec, metrics = dataclasses.replace(busy.env.spec, score=score), busy.env.spec.metrics
    known = np.stack([judged.metrics[name] for name in metrics], -1)
    result = evaluation.evaluation_of(spec, judged.returns, judged.lengths, known)
    np.testing.assert_allclose(result.scores, result.returns.sum(-1) * factor, rtol=1e-5)
    np.testing.assert_allclose(result.per_seed, result.scores.mean(1))
    assert result.mean == pytest.approx(result.scores.mean())
    low, high = result.interval
    assert low <= result.mean <= high
    assert "2 seeds × 6 episodes" in str(result)


def test_one_seed_has_an_interval_over_episodes() -> None:
    scores = np.arange(12.0)[None]
    result = evaluation.Evaluation(scores[..., None], np.ones((1, 12)), scores)
    assert result.interval == interval(scores[0])[1:]
    assert "(95% interval" in str(result) and "12 episodes" in str(result)


def test_one_episode_has_no_interval() -> None:
    metrics = {"won": np.ones((1, 1)), "kills": np.full((1, 1), np.nan)}
    result = evaluation.Evaluation(np.ones((1, 1, 1)), np.ones((1, 1)), np.ones((1, 1)), metrics)
    assert str(result) == "1.00 (1 episode)\nwin rate 100.0 %\nkills is unknown in all episodes"


def test_few_seeds_have_a_range() -> None:
    """And not an interval beyond what can be scored."""
    scores = np.repeat([[0.0], [37.0], [40.0]], 5, 1)
    result = evaluation.Evaluation(scores[..., None], np.ones((3, 5)), scores)
    assert result.interval == (0.0, 40.0) and result.as_json()["high"] == 40.0
    assert str(result) == "25.67 (range 0.00 … 40.00, 3 seeds × 5 episodes)"


ROLES: list[tuple[tuple[str, ...], tuple[int, ...], list[str]]] = [
    (("adversary_0", "agent_0", "agent_1"), (0, 1, 1), ["adversary", "agent"]),
    (("red", "blue2", "blue3"), (1, 0, 0), ["blue", "red"]),
    (("agent_0", "agent_1", "agent_2"), (0, 1, 1), ["role_0", "role_1"]),  # one name for both
    (("left", "right", "other"), (0, 1, 1), ["role_0", "role_1"]),  # two names for one
    (("0", "1", "goat"), (0, 0, 1), ["role_0", "role_1"]),
    (("scout-0", "scout-1", "camera"), (0, 0, 1), ["scout", "camera"]),
    (("goat", "wolf 1", "wolf.2"), (0, 1, 1), ["goat", "wolf"]),
]


@pytest.mark.parametrize(("agents", "roles", "names"), ROLES)
def test_each_role_has_its_return(agents: tuple[str, ...], roles: tuple[int, ...], names: list[str]) -> None:
    spec = dataclasses.replace(toys.busy().spec, agents=agents, roles=roles, shared_reward=False)
    returns = np.arange(2.0 * 4 * 3).reshape(2, 4, 3)
    found = evaluation.evaluation_of(spec, returns, np.ones((2, 4)), np.zeros((2, 4, len(spec.metrics))))
    assert list(found.metrics) == [*spec.metrics, *(f"return/{name}" for name in names)]
    for role, name in enumerate(names):
        members = [i for i in range(3) if roles[i] == role]
        known = sum(returns[:, :, i] for i in members) / len(members)
        np.testing.assert_array_equal(found.metrics[f"return/{name}"], known)
    assert f"return/{names[1]} " in str(found) and f"return/{names[0]}" in found.as_json()["metrics"]


def test_one_role_and_shared_rewards_have_no_returns_of_roles() -> None:
    spec = toys.busy().spec
    for same in ({"roles": (0, 0, 0), "shared_reward": False}, {"roles": (0, 1, 1), "shared_reward": True}):
        assert dataclasses.replace(spec, **same).role_returns(np.ones(3)) == {}


def test_a_metric_has_its_mean_and_interval() -> None:
    """Of the episodes in which it is known; over seeds where there are several."""
    won = np.array([[1, 0, 0, 0], [1, 1, 0, 0]], np.float32)
    kills = np.array([[2, np.nan, 4, np.nan], [np.nan, np.nan, np.nan, 5]], np.float32)
    never = np.full((2, 4), np.nan, np.float32)
    scores, told = np.ones((2, 4)), {"won": won, "kills": kills, "never": never}
    result = evaluation.Evaluation(scores[..., None], scores, scores, told)
    assert result.metric("won")[:3] == (0.375, 0.25, 0.5)  # of two seeds, their range
    assert result.metric("kills").per_seed.tolist() == [3.0, 5.0]
    assert (result.metric("kills").mean, result.metric("kills").episodes) == (4.0, 3)
    assert result.metric("never").episodes == 0 and np.isnan(result.metric("never").mean)
    alone = evaluation.Evaluation(scores[:1, :, None], scores[:1], scores[:1], {"kills": kills[:1]})
    assert alone.metric("kills")[:3] == (3.0, 2.0, 4.0)  # over the two episodes
    said = str(result).splitlines()
    assert said[1] == "win rate 37.5 % (range 25.0 … 50.0)" and said[3] == "never is unknown in all episodes"
    assert said[2] == "kills 4.00 (range 3.00 … 5.00, known in 3 of 8 episodes)"
    kept = result.as_json()["metrics"]
    assert kept["won"]["mean"] == 0.375 and kept["won"]["per_seed"] == [0.25, 0.5] and kept["kills"]["episodes"] == 3
    with pytest.raises(InputError, match="metric"):
        result.metric("wom")


def test_evaluations_of_a_run_on_a_cluster_have_workers_for_this_machine() -> None:
    """Its actors may be many more."""
    env, settings = counters.hosted(), Settings(workers="ray", num_workers=64, worker_timeout=7.0)
    assert evaluation.workers_of(env, settings) == (None, 7.0)
    assert evaluation.workers_of(env, dataclasses.replace(settings, workers="processes")) == (64, 7.0)


@pytest.mark.parametrize("episodes", [0, -1])
def test_an_evaluation_without_episodes_is_refused(busy: Case, episodes: int) -> None:
    with pytest.raises(InputError, match=f"episodes must be at least 1, not {episodes}"):
        evaluation.evaluate(*busy, jax.random.key(0), episodes)
    with pytest.raises(InputError, match=f"episodes must be at least 1, not {episodes}"):
        record_episodes(*busy, jax.random.key(0), episodes)


@pytest.mark.parametrize("name", ["busy", "drift"])
def test_recording_one_episode(name: str) -> None:
    env, algorithm, learner = case(getattr(toys, name)(), output_gain=3.0, log_std=2.0)
    learner = jax.tree.map(lambda x: x[1], learner)
    episodes = record_episodes(env, algorithm, learner, jax.random.key(2), 3, greedy=False)
    assert len(episodes) == 3
    for episode in episodes:
        length = len(episode.rewards)
        assert 1 <= length <= env.spec.horizon
        assert len(episode.states) == length + 1 and len(episode.actions) == length
        assert [int(state.t) for state in episode.states] == list(range(length + 1))
        assert episode.rewards.shape == (length, env.spec.num_agents)
        assert episode.rewards.min() > -500.0
        if name == "drift":
            assert episode.actions.min() >= -1.0 and episode.actions.max() <= 3.0  # as they were sent
            np.testing.assert_array_equal(episode.actions[-1], episode.states[-1].sent)


def test_decisions_are_recorded_with_what_they_follow_from(busy: Case) -> None:
    """Played again by hand from what was seen, with the recurrent state; without being asked for there are none."""
    learner = jax.tree.map(lambda x: x[0], busy.learner)
    plain = record_episodes(busy.env, busy.algorithm, learner, jax.random.key(3), 1)[0]
    told = record_episodes(busy.env, busy.algorithm, learner, jax.random.key(3), 1, decisions=True)[0]
    assert plain.decisions is None and plain.ended and told.decisions is not None
    np.testing.assert_array_equal(told.actions, plain.actions)
    np.testing.assert_array_equal(told.rewards, plain.rewards)
    length, n = told.rewards.shape
    assert told.decisions.keys() == {"obs", "legal", "alive", "probabilities"}
    assert all(x.shape[:2] == (length, n) for x in told.decisions.values())
    step = jax.tree.map(lambda x: x[None], jax.jit(busy.env.reset)(jax.random.key(0))[1])._replace(metrics=())
    carry = busy.algorithm.initial_carry(1)
    for t in range(length):
        seen = {name: jnp.asarray(told.decisions[name][t])[None] for name in ("obs", "legal", "alive")}
        now = step._replace(**seen, first=jnp.array([t == 0]))
        carry, action, extras = busy.algorithm.act(learner, carry, now, jax.random.key(0), True)
        np.testing.assert_array_equal(action[0], told.actions[t])
        chosen = np.take_along_axis(told.decisions["probabilities"][t], told.actions[t][:, None], -1)[:, 0]
        np.testing.assert_allclose(np.log(chosen), extras["log_prob"][0], atol=1e-4)


def test_decisions_in_an_environment_of_the_host() -> None:
    host = counters.hosted()
    made = case(host, output_gain=3.0)  # type: ignore[arg-type]
    learner = jax.tree.map(lambda x: x[0], made.learner)
    told = record_episodes(host, made.algorithm, learner, jax.random.key(3), 1, decisions=True)[0]
    assert told.decisions is not None and told.ended and told.states == []
    assert told.decisions["obs"].shape == (*told.rewards.shape, host.spec.obs_dim)
    np.testing.assert_array_equal(told.decisions["probabilities"].argmax(-1), told.actions)
    legal = told.decisions["legal"]
    assert np.take_along_axis(legal, told.actions[..., None], -1).all()
    assert (told.decisions["obs"][0] != told.decisions["obs"][-1]).any()
