"""Why agents may update one after the other (Kuba et al. 2022): the lemmas of HATRPO and HAPPO, without sampling."""

import itertools
import math

import numpy as np
import pytest

from support import tabular_games as games

GAMES = {"two agents": ((3, 2), 3), "three agents": ((2, 3, 2), 2), "four agents": ((2, 2, 2, 2), 2)}
every_game = pytest.mark.parametrize(("actions", "states"), GAMES.values(), ids=GAMES.keys())


def posed(actions, states, seed=0):
    rng = np.random.default_rng(seed)
    game = games.endless(rng, actions, states)
    return game, games.random_policies(rng, game), games.random_policies(rng, game)


def of_first_moves(game, policies, v, agents):
    """Q^{i_1:k}(s, a^{i_1:k}): ``agents`` choose their first actions, all else follows the policies.

    By playing it: the others' first actions are averaged out of rewards and of destinations, then V takes over.
    """
    others = [i for i in range(game.agents) if i not in agents]
    return (
        games.average(game.reward, policies, others) + game.gamma * games.average(game.transition, policies, others) @ v
    )


def parts(game, policies, v, order):
    """A^{i_m}(s, a^{i_1:m−1}, a^{i_m}) for m = 1 … n: what agent i_m adds, given what those before it do."""
    q = [of_first_moves(game, policies, v, order[:m]) for m in range(game.agents + 1)]
    return [after - before for before, after in itertools.pairwise(q)]


@every_game
def test_the_team_s_advantage_is_the_sum_of_its_agents_in_every_order(actions, states):
    """Lemma 1: A(s, a^{1:n}) = Σ_m A^{i_m}(s, a^{i_1:m−1}, a^{i_m})."""
    game, policies, _ = posed(actions, states)
    solved = games.solve(game, policies)
    for order in itertools.permutations(range(game.agents)):
        np.testing.assert_allclose(sum(parts(game, policies, solved.v, order)), solved.advantage, atol=1e-12)
    # Not so when each agent takes the others for what they were: the difference is what M accounts for.
    alone = [
        of_first_moves(game, policies, solved.v, (i,)) - of_first_moves(game, policies, solved.v, ())
        for i in range(game.agents)
    ]
    assert np.abs(sum(alone) - solved.advantage).max() > 0.3


@every_game
def test_the_return_is_what_the_agents_add_where_the_new_team_goes(actions, states):
    """J(π̃) − J(π) = Σ_s ρ̃(s) Σ_m E_{a ~ π̃}[A^{i_m}], in every order (Kakade & Langford 2002, lemma 6.1)."""
    game, old, new = posed(actions, states)
    before, after = games.solve(game, old), games.solve(game, new)
    for order in itertools.permutations(range(game.agents)):
        each = parts(game, old, before.v, order)
        gain = np.sum([games.average(part, new, range(game.agents)) for part in each], 0)
        np.testing.assert_allclose(after.visits @ gain.reshape(-1), after.ret - before.ret, rtol=1e-9)


def surrogates(game, old, new, order):
    """E_{s ~ ρ, a ~ π}[(r − 1) M^{i_1:m} A] for each m, as HATRPO and HAPPO estimate it."""
    solved, ratios = games.solve(game, old), [n / o for n, o in zip(new, old, strict=True)]
    factor, gains = np.ones_like(game.reward), []
    for i in order:
        ratio = ratios[i].reshape(-1, *(ratios[i].shape[1] if i == j else 1 for j in range(game.agents)))
        weighted = (ratio - 1) * factor * solved.advantage
        gains.append(float(solved.visits @ games.average(weighted, old, range(game.agents)).reshape(-1)))
        factor = factor * ratio
    return gains


@every_game
def test_the_factor_m_turns_the_team_s_advantage_into_the_agent_s(actions, states):
    """Proposition 2: E_π[(r − 1) M A] = E[A^{i_m}] with i_1 … i_m at their new policies, state by state."""
    game, old, new = posed(actions, states)
    solved = games.solve(game, old)
    for order in itertools.permutations(range(game.agents)):
        for gain, part in zip(surrogates(game, old, new, order), parts(game, old, solved.v, order), strict=True):
            np.testing.assert_allclose(gain, solved.visits @ games.average(part, new, range(game.agents)).reshape(-1))


@pytest.mark.parametrize("share", [1e-3, 1e-2, 0.1, 1.0])
def test_the_return_cannot_fall_below_the_surrogates_less_their_trust_regions(share):
    """Lemma 2: J(π̃) ≥ J(π) + Σ_m (L_m − C max_s KL(π^{i_m} ‖ π̃^{i_m})), C = 4 γ max |A| / (1 − γ)²."""
    for seed in range(10):
        game, old, other = posed((2, 3), 2, seed)
        new = [(1 - share) * p + share * q for p, q in zip(old, other, strict=True)]
        before, after = games.solve(game, old), games.solve(game, new)
        kl = [(p * np.log(p / q)).sum(-1).max() for p, q in zip(old, new, strict=True)]
        c = 4 * game.gamma * np.abs(before.advantage).max() / (1 - game.gamma) ** 2
        for order in itertools.permutations(range(2)):
            gained = sum(surrogates(game, old, new, order))
            assert after.ret >= before.ret + gained - c * sum(kl)
            # To first order the surrogates are the gain itself, which a wrong factor would not be.
            if share < 0.01:
                assert math.isclose(gained, after.ret - before.ret, rel_tol=0.2, abs_tol=0.01)
