"""Sable: the team's joint action as a sequence, by retention over time and agents (Mahjoub et al. 2025).

    L(θ) = −E_{m,t}[ min(r^{i_m} A^{i_m}, clip(r^{i_m}, 1 ± ε) A^{i_m}) + σ S ]
           + c_V E_{m,t}[ max(ℓ(V_θ(ô^{i_m}) − R), ℓ(clip(V_θ, V_old ± ε) − R)) ]

with r^{i_m} = π_θ(a^{i_m} | ô_{≤t}, a_{<t}, a_t^{i_1:m−1}) / π_old(...): PPO's loss as in :mod:`shoal.algorithms.mat`,
whose attention among agents is replaced by retention, which also runs over time. Training computes whole rollouts in
the chunkwise form, from the recurrent states at their start; acting computes the recurrent form, whose cost and memory
grow with the number of agents as N. The states are those of the encoder and, for each block of the decoder, two.

Deviations from the authors' code: a time limit bootstraps; dead agents are left out of the states; the order of the
agents while training is that of acting, while the code permutes the agents anew in every epoch, so that its ratios
compare distributions under two orders; a retention's heads are normalised one by one, while the code divides each into
as many groups as there are heads; gated layers do not start from zeros, where all their gradients are 0; V of a dead
agent is :mod:`shoal.algorithms.mappo`'s. All of them, with equations, options and results: docs/algorithms/sable.md.
"""

from dataclasses import dataclass, field
from typing import Literal

from shoal.algorithms import mat
from shoal.bounds import Count, Depth, Fraction, Positive, Rate, Weight
from shoal.equations.targets import ValueNorm
from shoal.errors import InputError
from shoal.models.sequence import SequenceTeam, make_sequence_team, team_input
from shoal.networks.body import Body
from shoal.networks.net import SequenceNet
from shoal.networks.retention import make_retention_net
from shoal.types import Algorithm, EnvSpec, Scale


@dataclass(frozen=True)
class Config(mat.Config):
    """Sable's hyper-parameters. "Code" is its authors' default in Mava; they tuned it for each task.

    There ``gamma`` is 0.99, ``lam`` 0.95, ``epochs`` 10, ``minibatches`` 1, ``entropy_coef`` 0.01, ``max_grad_norm``
    10, ``adam_eps`` 1e-5 and ``blocks`` 1.
    """

    network: Body = field(
        default_factory=lambda: Body(hidden=(64,), activation="gelu", layer_norm=True, input_layer_norm=True)
    )
    """``hidden`` layers embed each agent's input; the width of the last one is the network's. All norms divide by the
    root mean square. Code: 64, GELU, norms."""
    heads: Depth = 1
    """Heads of each retention. Code: 1."""
    memory: bool = True
    """Retention over time too; False for agents of one timestep only, the paper's ff-Sable."""
    decay: Fraction = 0.8
    """Scale of the factors κ, 31/32 to 511/512 over the heads, by which each timestep multiplies memory. Code: 0.8."""
    position: bool = True
    """With memory, add sin and cos of the timestep within the episode to what each retention reads. Code: yes."""
    retention_chunk: Count | None = None
    """Timesteps of a chunk of the chunkwise form, a divisor of the rollout; None for at most 64 tokens. It changes the
    time and memory that training takes, not its results. Code: the rollout."""
    advantage: Literal["joint", "agent"] = "agent"
    """Each agent's A from its own value, or for all the mean over the agents. Code: agent."""

    learning_rate: Rate = 5e-4
    """Adam's step size. Code: 5e-4."""
    clip: Positive = 0.2
    """ε of the clipped losses. Code: 0.2."""
    value_clip: Positive | None = 0.2
    """ε of the clipped value loss, in normalised units; None for the plain loss. Code: equal to clip."""
    value_coef: Weight = 0.5
    """Weight of the value loss. Code: 0.5."""
    value_norm: ValueNorm = "none"
    """Scale of the value targets: ``running`` statistics or ``none``. Code: none."""
    huber: Positive | None = None
    """Width δ of the Huber value loss, in normalised units; None for ½e². Code: ½e²."""


def make_team(spec: EnvSpec, c: Config) -> SequenceTeam:
    """Encoder and decoder.

    Raises:
        InputError: as :func:`shoal.algorithms.mat.make_team`.
    """
    mat.check_team(spec, c, "Sable")
    source = team_input(spec, c.critic_input, c.agent_id)

    def make_net(tokens: int, outputs: int, std: float | None) -> SequenceNet:
        return make_retention_net(
            c.network, c.blocks, c.heads, spec.num_agents, source.width, tokens, outputs, c.output_gain, std,
            memory=c.memory, decay=c.decay, chunk_length=c.retention_chunk, position=c.position,
        )  # fmt: skip

    return make_sequence_team(
        spec, source, make_net, log_std=c.log_std, squash=c.squash, shuffled=c.order == "shuffled"
    )


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """Sable for an environment.

    Raises:
        InputError: minibatches do not divide the environments (without memory, the timesteps), chunks not the rollout,
            or as :func:`make_team`.
    """
    team, length, chunk = make_team(spec, config), scale.rollout_length, config.retention_chunk
    if config.memory and chunk and length % chunk:
        raise InputError(f"retention_chunk {chunk} does not divide the rollout of {length} steps.")
    return mat.make(spec, config, scale, team=team, length=length if config.memory else None)


def make_policy(spec: EnvSpec, config: Config) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make_team`.
    """
    return mat.make_policy(spec, config, make_team(spec, config))
