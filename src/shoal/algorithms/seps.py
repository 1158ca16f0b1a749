"""SePS: agents with similar experience share parameters (Christianos et al. 2021).

1. Initial policies act. An encoder q(z | i) of agent i's number and a decoder of one step's outcome maximise

       E_{z ~ q(z|i)}[ log p(o', r | z, o, a) ] − β KL(q(z|i) ‖ N(0, 1))                                        (ELBO)

2. k-means of the agents' means of z gives K clusters, and with them ``policy_of``: agent -> parameters.
3. The team is trained by independent advantage actor-critic with these parameters (A2C; :mod:`shoal.algorithms.ia2c`).

K is the smallest from 1 to N for which the decoder does no worse on held-out experience with the clusters' centres in
place of the agents' own z. The paper's choice, the Davies–Bouldin index, is an option; it cannot give K = 1 or N.
Deviations from the authors' code: experience is collected by initial policies alone, before training; z is fitted to
standardised features and to *changes* of observation. Equations, options and results: docs/algorithms/seps.md.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from shoal.algorithms import ia2c
from shoal.bounds import Index, Positive, Rate, Size, Weight, Width
from shoal.errors import InputError
from shoal.learning import agent_clusters
from shoal.learning.agent_clusters import centres, davies_bouldin, kmeans
from shoal.learning.config import check_options, own_fields
from shoal.networks.sharing import Sharing, policy_of
from shoal.types import Algorithm, Decision, EnvSpec, Preparation, Scale, Trajectory

DECIDED = ("sharing",)
"""What :func:`prepare` decides."""
STANDARD_ERRORS = 2.0
"""Clusters are too few where the held-out error rises by more than this many of its standard errors."""


@dataclass(frozen=True)
class Config(ia2c.Config):
    """Hyper-parameters. "Paper" is Christianos et al. 2021; "code" its authors' repository."""

    sharing: Sharing | Literal["learned"] | tuple[Index, ...] = "learned"  # pyright: ignore[reportIncompatibleVariableOverride]
    """Which agents share parameters: ``learned`` from experience, or as in other algorithms."""
    agent_id: bool = False
    """Append a one-hot id to the inputs of agents with shared parameters. Paper: only in its baseline FuPS+id."""
    clusters: Width | None = None
    """K, the number of policies for ``learned`` sharing; None to select it. Paper: either."""
    criterion: Literal["held_out", "davies_bouldin"] = "held_out"
    """How K is selected: by the decoder's error on ``held_out`` experience, or by the Davies-Bouldin index over 2 … N −
    1. Paper: the index."""
    latent: Width = 10
    """Width of the code z. Code: 10."""
    kl_weight: Weight = 1e-4
    """Weight β of the KL in the ELBO. Code: 1e-4."""
    pretrain_steps: Size = 20_000
    """Environment steps of experience before training. Code: 200,000."""
    pretrain_updates: Size = 20_000
    """Gradient steps of encoder and decoder. Code: 10 epochs, which are 234,000 with 15 agents."""
    pretrain_batch: Width = 128
    """Transitions of single agents in each gradient step. Code: 128."""
    pretrain_rate: Rate = 3e-3
    """Initial step size of Adam for encoder and decoder; it decreases linearly to 0. Code: 3e-4, constant."""
    learning_rate: Rate = 3e-4
    """Adam's step size for actors. Code: 3e-4."""
    max_grad_norm: Positive | None = 0.5
    """Largest gradient norm of one policy or critic. Code: 0.5 of all together."""
    value_coef: Weight = 0.5
    """Weight of the value loss. Code: 0.5."""


Found = tuple[tuple[int, ...], dict[str, Any]]
"""``policy_of``, and the data behind the choice."""


def fewest(codes: Float[np.ndarray, "N Z"], error_of: agent_clusters.CodeError, seed: int) -> Found:
    """The smallest K whose centres do no worse than the agents' own codes, by the held-out error.

    Environments are independent, so the mean excess over the own codes' error has a standard error over environments.
    Clusters of one agent each have no excess, so there always is such a K.
    """
    own, tried = error_of(codes), []
    for k in range(1, len(codes) + 1):
        labels = kmeans(codes, k, seed)
        if labels is None:
            continue
        error = error_of(centres(codes, labels))
        excess = (error - own).mean(1)
        spread = excess.std(ddof=1) / np.sqrt(len(excess)) if len(excess) > 1 else 0.0
        tried.append({"clusters": k, "error": error.mean(), "excess": excess.mean(), "standard_error": spread})
        if excess.mean() <= STANDARD_ERRORS * spread:
            return labels, {"own_error": own.mean(), "tried": tried}
    raise AssertionError("clusters of one agent each are the agents' own codes")


def clearest(codes: Float[np.ndarray, "N Z"], seed: int) -> Found:
    """The K from 2 to N − 1 with the smallest Davies–Bouldin index (the authors' choice)."""
    found = {k: labels for k in range(2, len(codes)) if (labels := kmeans(codes, k, seed))}
    if not found:
        raise InputError("The agents' codes are equal, so the index cannot compare clusters; set clusters.")
    index = {k: davies_bouldin(codes, labels) for k, labels in found.items()}
    tried = [{"clusters": k, "davies_bouldin": value} for k, value in index.items()]
    return found[min(index, key=index.__getitem__)], {"tried": tried}


def given(codes: Float[np.ndarray, "N Z"], clusters: int, seed: int) -> Found:
    """The given number of clusters."""
    labels = kmeans(codes, clusters, seed)
    if labels is None:
        raise InputError(f"The agents' codes are too similar for {clusters} clusters.")
    return labels, {"tried": []}


def prepare(spec: EnvSpec, config: Config, scale: Scale) -> Preparation | None:
    """The experience from which ``sharing`` is learned; None where it is given.

    Raises:
        InputError: as :func:`make`, where the criterion cannot choose among so few agents, and where ``sharing`` and
            ``clusters`` are given.
    """
    if config.sharing != "learned":
        # A decision keeps clusters, which is the number of its policies.
        if config.clusters is not None and config.clusters != len(set(policy_of(spec, config.sharing))):
            raise InputError("clusters needs sharing 'learned'; leave out clusters or sharing.")
        return None
    c, n = config, spec.num_agents
    if c.clusters is not None and c.clusters > n:
        raise InputError(f"clusters is {c.clusters}, but {spec.name} has only {n} agents.")
    if c.clusters is None and c.criterion == "davies_bouldin" and n < 3:
        raise InputError(f"davies_bouldin compares 2 to N - 1 clusters, and {spec.name} has {n} agents; use held_out.")

    def decide(trajectory: Trajectory, key: PRNGKeyArray) -> Decision:
        key_fit, key_start = jax.random.split(key)
        how = agent_clusters.Pretraining(c.latent, c.kl_weight, c.pretrain_updates, c.pretrain_batch, c.pretrain_rate)
        codes, error_of = agent_clusters.encode(spec, how, trajectory, key_fit)
        seed = int(jax.random.bits(key_start))
        if not np.isfinite(codes).all():
            raise InputError(f"{spec.name} gives observations or rewards that are not finite.")
        if c.clusters is not None:
            sharing, report = given(codes, c.clusters, seed)
        else:
            sharing, report = fewest(codes, error_of, seed) if c.criterion == "held_out" else clearest(codes, seed)
        count = max(sharing) + 1
        message = f"{n} agents share {count} {'policy' if count == 1 else 'policies'}: {' '.join(map(str, sharing))}."
        return Decision(replace(c, sharing=sharing), message, {"policy_of": sharing, **report, "codes": codes})

    return Preparation(make(spec, c, scale), c.pretrain_steps, decide)


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """SePS for an environment. While ``sharing`` is still to be learned, all agents share one policy.

    Raises:
        InputError: chunks do not divide the rollout, the critic input does not exist, or an option is out of its range.
    """
    check_options(config)
    return ia2c.make(spec, of_ia2c(config), scale)


def make_policy(spec: EnvSpec, config: Config) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    check_options(config)
    return ia2c.make_policy(spec, of_ia2c(config))


def of_ia2c(config: Config) -> ia2c.Config:
    """IA2C's hyper-parameters among SePS's."""
    known = own_fields(config, ia2c.Config)
    if config.sharing == "learned":
        known |= {"sharing": "shared", "agent_id": False}
    return ia2c.Config(**known)
