"""A single game in which one agent's actions hide what the others earn."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.environments.options import check_count, check_number
from shoal.environments.tabular import LARGEST
from shoal.types import Discrete, Environment, EnvSpec, Step


def loud_agent(*, num_quiet: int = 4, loudness: float = 60.0) -> Environment:
    """A single game in which one agent's actions hide what the others earn: a test of credit assignment.

    With a coin c = ±1 that only the state shows, the team earns Σ_j u_j over the quiet agents plus ``loudness`` · c
    (2 u_0 − 1) for the loud one, u ∈ {0, 1}: noise that Q(s, u) predicts and V(s) does not (Foerster et al. 2018,
    section 1). The metric ``quiet`` is the share of quiet agents that play 1; ½ is chance.

    Args:
        num_quiet: number of quiet agents, at least 1.
        loudness: size of the loud agent's part.

    Raises:
        InputError: num_quiet is below 1, or loudness is not a number from 0 to 10⁶.
    """
    num_agents, loudness = 1 + check_count("num_quiet", num_quiet), check_number("loudness", loudness, 0.0, LARGEST)
    spec = EnvSpec(
        name="matrix/loud_agent",
        agents=("loud", *(f"quiet_{i}" for i in range(num_quiet))),
        obs_dims=(1,) * num_agents,
        state_dim=1,
        action=Discrete(2),
        action_dims=(2,) * num_agents,
        roles=(0, *(1,) * num_quiet),
        horizon=1,
        shared_reward=True,
        score="mean",
        novel=(),
        metrics=("quiet",),
    )

    def make_step(coin: Float[Array, ""], action: Int[Array, " N"], first: bool) -> Step:
        own, ends = action[1:].astype(float), not first
        earned = jnp.where(ends, own.sum() + loudness * coin * (2.0 * action[0] - 1.0), 0.0)
        return Step(
            obs=jnp.ones((num_agents, 1)),
            state=coin[None],
            legal=jnp.ones((num_agents, 2), bool),
            alive=jnp.ones(num_agents, bool),
            reward=jnp.broadcast_to(earned, (num_agents,)),
            discount=jnp.full(num_agents, 0.0 if ends else 1.0),
            first=jnp.asarray(first),
            last=jnp.asarray(ends),
            metrics=own.mean()[None],
        )

    def reset(key: PRNGKeyArray) -> tuple[Array, Step]:
        coin = 2.0 * jax.random.bernoulli(key).astype(float) - 1.0
        return coin, make_step(coin, jnp.zeros(num_agents, jnp.int32), first=True)

    def step(_: PRNGKeyArray, coin: Array, action: Int[Array, " N"]) -> tuple[Array, Step]:
        return coin, make_step(coin, action, first=False)

    return Environment(spec, reset, step)
