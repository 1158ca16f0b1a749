"""Hyper-parameters that families of algorithms have in common, and their checks.

Values are defaults of the library. An algorithm repeats the fields that its paper names, with that paper's values.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from shoal.bounds import (
    Bounds,
    Count,
    Decay,
    Fraction,
    Gain,
    Index,
    Positive,
    Rate,
    Size,
    Tiny,
    Weight,
    Width,
    check_bounds,
    off,
)
from shoal.equations.targets import ValueNorm
from shoal.errors import InputError
from shoal.networks.architecture import Body, check_body, own_network
from shoal.networks.inputs import CriticInput
from shoal.networks.sharing import Sharing
from shoal.types import Box, EnvSpec


@dataclass(frozen=True)
class AgentConfig:
    """Hyper-parameters of all algorithms: networks and optimiser."""

    sharing: Sharing | tuple[Index, ...] = "shared"
    """Which agents share parameters: ``shared``, ``role``, ``independent``, or an index vector such as (0, 0, 1)."""
    agent_id: bool = True
    """Append a one-hot id to the inputs of agents with shared parameters."""
    network: Body = field(default_factory=Body)
    """Layers of actors and critics."""
    normalise_inputs: bool = False
    """Normalise observations and state to zero mean and unit variance with running statistics, and clip them to ±10.
    Agents of one role with the same observation space share statistics, and so do the entities of a set."""

    gamma: Fraction = 0.99
    """Discount γ per step."""

    learning_rate: Rate = 7e-4
    """Adam's step size for actors."""
    lr_final: Fraction = 1.0
    """Learning rates change linearly to this fraction of themselves over the run's gradient steps: 1 is constant, 0
    anneals to zero. A run that is resumed with more steps uses the longer schedule."""
    adam_eps: Tiny = 1e-5
    """Adam's ε."""
    max_grad_norm: Positive | None = 10.0
    """Largest gradient norm of one policy or critic; None for no clip."""
    block: Size = 768
    """Maximum number of rows (timesteps × agents) whose activations are in memory at once, to fit a core's cache.
    Blocks of sequences are larger if a timestep would have fewer than 24 rows."""
    freeze: tuple[str, ...] = ()
    """Parts that are not trained: ``actor``, ``critic``, parts of them such as ``actor.layers.0``, and ``inputs``, the
    statistics of normalise_inputs. In Q-learning the critic is the mixer. Most useful with init_from."""


@dataclass(frozen=True)
class CriticConfig(AgentConfig):
    """Adds a critic."""

    critic_learning_rate: Rate | None = None
    """Adam's step size for critics; None for the actors'."""
    critic_network: str | None = None
    """Network of critics; None for the actors' (see network)."""
    critic_hidden: tuple[Width, ...] | None = None
    """Width of each fully connected layer of critics; None for the actors'."""

    @property
    def critic_rate(self) -> float:
        """The critics' step size."""
        return self.learning_rate if self.critic_learning_rate is None else self.critic_learning_rate

    @property
    def critic_body(self) -> Body:
        """The critics' layers."""
        body = self.network
        network = body.network if self.critic_network is None else self.critic_network
        return replace(body, network=network, hidden=body.hidden if self.critic_hidden is None else self.critic_hidden)


@dataclass(frozen=True)
class ExplorationConfig(CriticConfig):
    """Adds the exploration of deterministic policies."""

    noise: Weight = 0.1
    """Standard deviation of the noise on continuous actions, in units of half their box."""
    noise_final: Weight | None = None
    """Final standard deviation, after the fraction ``noise_fraction`` of the updates; None: it stays."""
    noise_fraction: Fraction = 1.0
    """Fraction of the updates over which the noise changes linearly to ``noise_final``."""
    random_start: bool = False
    """Draw actions uniformly from the box, or from the legal ones, until the first gradient step
    (``learning_starts``), as OpenAI's Spinning Up and HARL do; otherwise the initial policies act."""


@dataclass(frozen=True)
class PolicyConfig(CriticConfig):
    """Adds decentralised stochastic policies that learn from each rollout once."""

    output_gain: Gain = 0.01
    """Gain of the actor's orthogonal output layer."""
    log_std: Annotated[float, Bounds(least=-20.0, most=10.0)] = -0.5
    """Initial log standard deviation of a Gaussian policy, in units of half the action box."""
    squash: bool = False
    """Squash Gaussian actions into their box with tanh instead of clipping them."""

    lam: Fraction = 0.95
    """GAE's λ."""
    entropy_coef: Weight = 0.01
    """Weight σ of the entropy bonus."""
    entropy_final: Weight | None = None
    """If given, σ changes linearly from entropy_coef to this over the run; not together with target_entropy."""
    target_entropy: Annotated[float, Bounds(least=-1000.0, most=1000.0)] | None = None
    """If given (nats per agent; where agents take turns, of those with a choice), σ is adapted so that the policies'
    entropy approaches this value; it starts at entropy_coef, which must be above 0."""
    target_entropy_rate: Rate = 0.05
    """Step of log σ per update and nat, with target_entropy."""

    chunk_length: Count = 16
    """L: recurrent nets are trained on chunks of this many steps; it must divide the rollout."""

    @property
    def chunk(self) -> int | None:
        """Length of a recurrent net's chunks, None for a feed-forward net."""
        return self.chunk_length if self.network.recurrent else None


@dataclass(frozen=True)
class ValueConfig(PolicyConfig):
    """Adds a state-value critic and advantages from it."""

    critic_input: CriticInput = "concat"
    """What V reads: ``local`` (IPPO), ``concat`` (CL), ``state`` (EP), ``agent`` (AS) or ``pruned`` (FP)."""
    value_norm: ValueNorm = "running"
    """Scale of the value targets: ``running`` statistics, ``popart`` or ``none``."""
    value_norm_beta: Decay = 0.99999
    """Decay per update of the value statistics."""
    huber: Positive | None = 10.0
    """Width δ of the Huber value loss, in normalised units; None for ½e²."""
    value_coef: Weight = 1.0
    """Weight of the value loss (it matters only through the gradient-norm clip and Adam's ε)."""
    normalise_advantage: Literal["batch", "agent", "none"] = "batch"
    """Standardise advantages over the whole batch, or for each agent separately (rivals on different scales)."""


@dataclass(frozen=True)
class EpochsConfig(ValueConfig):
    """Adds several passes over each batch."""

    value_clip: Positive | None = 0.2
    """ε of the clipped value loss, in normalised units; None for the plain loss."""
    epochs: Count = 10
    """Passes over each batch."""
    minibatches: Count = 1
    """Minibatches per pass."""


@dataclass(frozen=True)
class PpoConfig(EpochsConfig):
    """Adds PPO's clipped ratio."""

    clip: Positive = 0.2
    """ε of the clipped policy loss."""
    dual_clip: Annotated[float, Bounds(above=1.0, most=1e6)] | None = None
    """c > 1: lower bound c·A of the objective if A < 0 (Ye et al. 2020, eq. 5)."""
    kl_coef: Weight = 0.0
    """Weight κ of the soft trust-region penalty KL(π_old ‖ π) (Hsu et al. 2020), whose gradient is 0 while π = π_old:
    it needs more than one gradient step an update."""
    kl_target: Positive | None = None
    """If given, κ is doubled or halved when the KL after an update is outside [target/1.5, 1.5·target] (Schulman et al.
    2017, section 4)."""
    kl_stop: Positive | None = None
    """If given, an update's gradient steps end before that of the first minibatch whose KL(π_old ‖ π) exceeds 1.5 times
    this. It is ``target_kl`` of Stable-Baselines3; Spinning Up: 0.01."""


@dataclass(frozen=True)
class QCriticConfig(PolicyConfig):
    """Adds an action-value critic, fitted to λ-returns that bootstrap from a target network."""

    lam: Fraction = 0.8
    """λ of the critic's TD(λ) targets."""
    learning_rate: Rate = 5e-4
    """Adam's step size for actors."""
    entropy_coef: Weight = 0.0
    """Weight σ of the entropy bonus."""
    critic_input: CriticInput = "concat"
    """What the centralised Q reads in addition to the actions: ``concat`` all observations, ``state``, ``agent`` (state
    and own observation) or ``pruned``."""
    value_norm: Literal["running", "none"] = "none"
    """Scale of the critic's targets: ``running`` statistics or ``none``."""
    value_norm_beta: Decay = 0.99999
    """Decay per update of those statistics."""
    huber: Positive | None = None
    """Width δ of a Huber loss of the critic, in the targets' units; None for ½e²."""
    target_interval: Size = 200
    """C: critic steps between copies of the critic to the target network, if ``target_rate`` is None."""
    target_rate: Fraction | None = None
    """If given, the target network moves by this fraction τ towards the critic after each critic step; target_interval
    is then not used."""
    epochs: Count = 1
    """Passes of the critic over each batch."""
    minibatches: Count = 4
    """Critic steps per pass, each on as many timesteps."""


def own_fields(config: Any, kind: type) -> dict[str, Any]:
    """The values of those fields that ``kind`` has, from a configuration that may inherit it and add others."""
    return {field.name: getattr(config, field.name) for field in fields(kind)}


def check_options(config: AgentConfig) -> None:
    """Refuse options out of their bounds, and those that contradict each other.

    Raises:
        InputError: naming the option and its bounds.
    """
    check_bounds(config)
    check_body(config.network)
    _check_pairs(config)


def check_discrete(spec: EnvSpec) -> None:
    """Refuse continuous actions, of which Q-learning cannot compare all.

    Raises:
        InputError: actions are continuous.
    """
    if isinstance(spec.action, Box):
        raise InputError(f"Q-learning compares all of an agent's actions; {spec.name} has continuous ones: use maddpg.")


def no_critic_network(config: CriticConfig, reason: str) -> None:
    """Refuse the options of a critic's network where an algorithm has a critic of its own kind.

    Args:
        config: the options.
        reason: the first half of the sentence.

    Raises:
        InputError: one of them is given.
    """
    for name in ("critic_network", "critic_hidden"):
        if getattr(config, name) is not None:
            raise InputError(f"{reason}: leave out {name}.")


def _check_pairs(config: AgentConfig) -> None:
    """Refuse two options of which one would leave the other without effect.

    Raises:
        InputError: naming both, and what to do.
    """
    if config.network.cell != "gru" and not config.network.recurrent:
        raise InputError(f"cell {config.network.cell!r} needs a recurrent network: set its width with --recurrent H.")
    if isinstance(config, PpoConfig) and config.kl_target is not None and off(config.kl_coef):
        raise InputError("kl_target doubles and halves kl_coef, which must therefore start above 0.")
    if isinstance(config, PpoConfig) and config.kl_stop is not None and config.epochs * config.minibatches == 1:
        raise InputError("kl_stop ends the gradient steps of an update, and epochs 1 with minibatches 1 has only one.")
    if isinstance(config, ValueConfig) and config.value_norm == "popart" and own_network(config.critic_body):
        raise InputError("popart supports only Shoal's networks: use value_norm running with your own.")
    if isinstance(config, PolicyConfig) and config.target_entropy is not None:
        if config.entropy_final is not None:
            raise InputError("entropy_final and target_entropy both change entropy_coef: set one of them to None.")
        if off(config.entropy_coef):
            raise InputError("target_entropy multiplies entropy_coef by factors, so entropy_coef must start above 0.")
    rate, interval = (getattr(config, name, None) for name in ("target_rate", "target_interval"))
    if rate is not None and interval != getattr(type(config), "target_interval", None):
        raise InputError(
            f"target_interval {interval} is for targets that are copied, and target_rate {rate:g} moves them a little "
            f"at each step: set target_rate to None, or leave target_interval out."
        )
