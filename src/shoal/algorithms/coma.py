"""COMA: counterfactual multi-agent policy gradients (Foerster et al. 2018); MAPG with the counterfactual baseline.

    A^a(s, u) = Q(s, u) − Σ_{u'} π^a(u' | h^a) Q(s, (u^{-a}, u'))                          (Foerster et al. 2018, eq. 4)
    ∇J = E[ Σ_a ∇ log π^a(u^a | h^a) A^a(s, u) ]                                            (eq. 6)
    min_φ  E[ ½ (Q_φ(s, u) − y)² ],  y_t = r_t + γ [(1 − λ) Q(s_{t+1}, u_{t+1}; φ^-) + λ y_{t+1}]     (section 4)

Q reads the state, the agent's observation and number and the *others'* actions, and outputs the values of all the
agent's own actions in one pass. Each action has a probability of at least ε / n; ε decreases. All other stages are
MAPG's.

Deviations from the authors' code: one step of the critic per minibatch of shuffled timesteps, not one per time index
backwards; the advantage uses the critic after its fit, as in the paper's algorithm 1; all agents' heads predict
one return and are averaged where the target bootstraps; a time limit bootstraps; Adam for RMSprop; Q does not read last
actions. Equations, options and results: docs/algorithms/coma.md.
"""

from dataclasses import dataclass

from jaxtyping import Array, Float

from shoal.algorithms import mapg
from shoal.bounds import Count, Fraction, Part, Rate, Size, Weight
from shoal.equations.baselines import counterfactual
from shoal.errors import InputError
from shoal.models.action_critic import Options, needs_team
from shoal.networks.inputs import CriticInput
from shoal.types import Algorithm, Box, EnvSpec, Scale


@dataclass(frozen=True)
class Config(mapg.BaselineConfig):
    """COMA's hyper-parameters. "Paper" is Foerster et al. 2018, section 5.2, for StarCraft; "code" pymarl."""

    critic_input: CriticInput = "concat"
    """What the centralised Q reads in addition to the actions: ``concat`` all observations, ``state``, ``agent`` (state
    and own observation) or ``pruned``. Paper: agent."""
    lam: Fraction = 0.8
    """λ of the critic's TD(λ) targets. Paper: 0.8."""
    learning_rate: Rate = 5e-4
    """Adam's step size for actors. Paper: 5e-4 (RMSprop)."""
    target_interval: Size = 200
    """C: critic steps between copies of the critic to the target network, if ``target_rate`` is None. Paper: 150; code:
    200."""
    minibatches: Count = 4
    """Critic steps per pass, each on as many timesteps. Code: one step per time index."""
    entropy_coef: Weight = 0.0
    """Weight σ of the entropy bonus. Paper: none."""
    epsilon: Part = 0.5
    """Initial ε: π(u) = (1 − ε) softmax(z)_u + ε / n over the n legal actions. Paper: 0.5."""
    epsilon_final: Part = 0.02
    """Final ε. Paper: 0.02; code: 0.01."""


def advantage(q: Array, options: Options, v: Array | float = 0.0) -> Float[Array, "T E N"]:
    """A^a(s, u) (Foerster et al. 2018, eq. 4)."""
    return q - counterfactual(options.q, options.p)


def make(spec: EnvSpec, config: Config, scale: Scale) -> Algorithm:
    """COMA for an environment with discrete actions.

    Raises:
        InputError: actions are continuous, minibatches or chunks do not divide the rollout, the critic input does not
            exist or is ``local``, or an option is out of its range.
    """
    _check(spec, config)
    return mapg.make_policy_gradient(spec, config, scale, advantage)


def make_policy(spec: EnvSpec, config: Config) -> Algorithm:
    """The policies, for acting only.

    Raises:
        InputError: as :func:`make`.
    """
    _check(spec, config)
    return mapg.make_policies(spec, config)


def _check(spec: EnvSpec, config: Config) -> None:
    if isinstance(spec.action, Box):
        raise InputError(f"coma sums over all of an agent's actions; {spec.name} has continuous ones: use mapg.")
    needs_team(config.critic_input)
