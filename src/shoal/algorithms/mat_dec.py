"""MAT-Dec: MAT's encoder as the critic of decentralised actors (Wen et al. 2022, section 4.2).

    L(φ) = E_{m,t}[ max(ℓ(V_φ(ô^{i_m}) − R^{i_m}), ℓ(clip(V_φ, V_old ± ε) − R^{i_m})) ]             (eq. 4, clipped)
    L(θ) = −E_{m,t}[ min(r^{i_m} A^{i_m}, clip(r^{i_m}, 1 ± ε) A^{i_m}) ],    r^{i_m} = π_θ(a^{i_m}|o^{i_m}) / π_old

where ô are the encoder's representations of all agents and each actor is an MLP on its own raw observation. It is MAPPO
whose critic attends over agents. Deviations from the authors' code: a time limit bootstraps, actor and encoder, which
share nothing, are clipped and stepped each by its own optimiser, the encoder can read the global state, actors can be
shared by role or not at all, and can be recurrent, V of a dead agent is :mod:`shoal.algorithms.mappo`'s. Equations,
options and results: docs/algorithms/mat.md.
"""

from dataclasses import dataclass

import jax
from jaxtyping import Array, PRNGKeyArray

from shoal.algorithms import mappo
from shoal.bounds import Depth, Positive
from shoal.errors import InputError
from shoal.learning.config import check_options, no_critic_network
from shoal.models import actor_critic
from shoal.models.actor_critic import Critic, make_actor, make_actor_critic
from shoal.models.sequence import make_team_encoder
from shoal.networks.inputs import CriticInput
from shoal.networks.sharing import policy_of
from shoal.types import Algorithm, EnvSpec, PyTree, Scale, Step


@dataclass(frozen=True)
class Config(mappo.Config):
    """MAT-Dec's hyper-parameters. "Paper" is Wen et al. 2022 and its authors' scripts, for MPE, where it is named here;
    elsewhere Yu et al. 2022. The layers of ``network`` make the actors, and embed the encoder's input."""

    blocks: Depth = 1
    """Blocks of the encoder. Paper: 1."""
    heads: Depth = 1
    """Heads of each attention layer. Paper: 1."""
    critic_input: CriticInput = "local"
    """What the encoder reads of each agent: ``local`` own observation, ``agent`` also the global state, ``pruned`` the
    state and the observation features that it lacks. Paper: local."""
    clip: Positive = 0.05
    """ε of the clipped losses. Paper: 0.05."""
    value_clip: Positive | None = 0.05
    """ε of the clipped value loss, in normalised units; None for the plain loss. Paper: equal to clip."""


def make_critic(spec: EnvSpec, c: Config) -> Critic:
    """V of each agent from the encoder over all of them; it reads one timestep, also beside recurrent actors.

    Raises:
        InputError: the input is the same for all agents, the environment lacks it, or the network cannot be built.
    """
    source, encoder = make_team_encoder(spec, c.network, c.blocks, c.heads, c.critic_input, c.agent_id)

    def init(key: PRNGKeyArray) -> PyTree:
        return jax.tree.map(lambda x: x[None], encoder.init(key))  # P = 1

    def values(params: PyTree, carry: PyTree, step: Step) -> tuple[PyTree, Array]:
        one = jax.tree.map(lambda x: x[0], params)
        return carry, encoder.apply(one, source.features(step), step.alive)[0]

    return Critic(init, lambda num_envs: (), values, (0,) * spec.num_agents, 1)


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """MAT-Dec for an environment.

    Raises:
        InputError: minibatches or chunks do not divide the rollout, the encoder's input does not exist, the
            baseline is not ``value``, ``dead_value`` is not ``team``, or an option is out of its range.
    """
    c = config
    check_options(c)
    if c.baseline != "value":
        raise InputError(
            f"MAT-Dec's advantage comes from its encoder's values: baseline must be value, not {c.baseline!r}."
        )
    if c.dead_value != "team":
        raise InputError(f"MAT-Dec's encoder excludes dead agents: dead_value must be team, not {c.dead_value!r}.")
    no_critic_network(c, "MAT-Dec's critic is a transformer")
    index = policy_of(spec, c.sharing)
    actor = make_actor(spec, c.network, index, c.agent_id, c.output_gain, c.log_std, c.squash)
    made = mappo.make(spec, c, scale, nets=make_actor_critic(actor, make_critic(spec, c)))
    return made._replace(learns_from="others")  # values attend to all agents


def make_policy(spec: EnvSpec, config: Config) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    return actor_critic.make_policy(spec, config)
