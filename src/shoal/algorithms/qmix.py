"""QMIX: monotonic value function factorisation (Rashid et al. 2018).

    Q_tot(s, u) = w(s)ᵀ elu( W(s)ᵀ q + b(s) ) + v(s),    q_i = Q_i(τ^i, u^i),    W, w ≥ 0        (section 4.1, figure 2)
    ∂Q_tot / ∂Q_i ≥ 0  for every i, so that  argmax_u Q_tot = (argmax Q_1, …, argmax Q_N)                     (eq. 5, 4)
    min_θ  E[ (y − Q_tot(s, u; θ))² ],  y = r + γ d max_u' Q_tot(s', u'; θ^-)                                 (eq. 6, 7)

IQL, VDN, QPLEX, QTRAN and SHAQ are this file's update with another :class:`Mixer`. The target's next action is selected
by θ and evaluated by θ^- (double Q); d is the discount of the outcome of the action at t. Hypernetworks compute the
mixing weights from the state, and absolute values make them nonnegative.

Deviations from the authors' code: the target reads the discount of the outcome itself, so a time limit bootstraps;
Adam for RMSprop, one clip of gradients for utilities, one for the mixer; half the squared error; a dead agent's utility
is 0, not the Q of its no-op; last actions only with ``--last-action``.
Equations, options and results: docs/algorithms/qmix.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from shoal.bounds import Depth, Width, off
from shoal.equations.returns import n_step_returns, td_lambda
from shoal.equations.schedules import annealed
from shoal.equations.surrogate import huber
from shoal.equations.targets import (
    learned_from,
    normalise_reward,
    target_parts,
    update_target,
)
from shoal.learning import sgd
from shoal.learning.config import check_options
from shoal.learning.optimiser import ByNet, frozen_parameters, optimiser
from shoal.learning.replay import (
    QConfig,
    TargetStatistics,
    after_burn_in,
    as_trajectory,
    check_q,
    count_rollout,
    init_targets,
    make_replay,
    state_names,
    warmed_up,
    with_state,
)
from shoal.models import utilities
from shoal.models.actor_critic import Policy
from shoal.models.utilities import (
    Mixer,
    Utilities,
    epsilon_greedy,
    greedy_action,
    make_inspect_utilities,
    make_utilities,
    mixer_input,
    next_utilities,
    utilities_in_turns,
)
from shoal.networks.hyper import hypernetwork, sum_of_row, team_output
from shoal.networks.inputs import init_inputs, normalised
from shoal.networks.sharing import policy_of
from shoal.types import Algorithm, EnvSpec, Experience, Learner, Metrics, PyTree, Scale, Step, Trajectory


@dataclass(frozen=True)
class Config(QConfig):
    """QMIX's hyper-parameters. "Paper" is Rashid et al. 2018, "code" its repository (pymarl).

    Both have ``learning_rate`` 5e-4 (RMSprop), ``gamma`` 0.99, ``batch_size`` 32 and ``buffer_size`` 5000 episodes,
    ``target_interval`` 200 episodes, ``epsilon`` from 1 to 0.05 over 50,000 steps, and a ``network`` of 64 with a GRU
    of 64; the code ``double_q``, ``max_grad_norm`` 10 and ``adam_eps`` 1e-5.
    """

    mixer_input: Literal["state", "concat"] = "state"
    """What the hypernetworks read: the global ``state``, or ``concat``, all agents' observations. Paper: state."""
    mixing_width: Width = 32
    """Width of the mixing layer. Paper: 32."""
    hyper_width: Width = 64
    """Width of the hidden layer of the hypernetworks of W and w. Code: 64."""
    hyper_layers: Depth = 2
    """Layers of those hypernetworks. Paper: 1; code: 2."""


def mix(
    q: Float[Array, "*b N"],
    w1: Float[Array, "*b N M"],
    b1: Float[Array, "*b M"],
    w2: Float[Array, "*b M"],
    v: Float[Array, "*b"],
    monotone: bool = True,
) -> Float[Array, "*b"]:
    """Q_tot = |w2|ᵀ elu(|W1|ᵀ q + b1) + v (Rashid et al. 2018, section 4.1); without ``monotone``, W1 and w2 as they
    are."""
    w1, w2 = (jnp.abs(w1), jnp.abs(w2)) if monotone else (w1, w2)
    hidden = jax.nn.elu(jnp.einsum("...n,...nm->...m", q, w1) + b1)
    return sum_of_row(hidden * w2) + v


class MixingNets(NamedTuple):
    """Hypernetworks of the weights of :func:`mix`."""

    init: Callable[[PRNGKeyArray], PyTree]
    """key -> parameters, leaves with a leading axis of length 1."""
    apply: Callable[[PyTree, Float[Array, "*b F"]], tuple[Array, Array, Array, Array]]
    """(parameters, what they read) -> W1 [*b n M], b1 [*b M], w2 [*b M], v [*b]."""


def mixing_nets(inputs: int, n: int, width: int, hyper_width: int, hyper_layers: int) -> MixingNets:
    """Hypernetworks that read ``inputs`` numbers, of a mixing network of ``n`` values with ``width`` hidden units."""
    nets = {
        "w1": hypernetwork(inputs, n * width, hyper_width, hyper_layers),
        "b1": hypernetwork(inputs, width, hyper_width, 1),
        "w2": hypernetwork(inputs, width, hyper_width, hyper_layers),
        "v": hypernetwork(inputs, 1, width, 2),
    }

    def init(key: PRNGKeyArray) -> PyTree:
        keys = jax.random.split(key, len(nets))
        params = {name: net.init(k) for (name, net), k in zip(nets.items(), keys, strict=True)}
        for name, fan_in in (("w1", n), ("w2", width)):  # mixing weights start with LeCun's variances
            params[name]["head"]["kernel"] *= fan_in**-0.5
        return params

    def apply(params: PyTree, x: Array) -> tuple[Array, Array, Array, Array]:
        w1, b1, w2, v = (team_output(net, params[name], x) for name, net in nets.items())
        return w1.reshape(*w1.shape[:-1], n, width), b1, w2, v[..., 0]

    return MixingNets(init, apply)


def make_mixer(spec: EnvSpec, c: Config, monotone: bool = True) -> Mixer:
    """QMIX's mixing network.

    Raises:
        InputError: the environment has no global state for the hypernetworks to read.
    """
    source = mixer_input(spec, c.mixer_input)
    nets = mixing_nets(source.width, spec.num_agents, c.mixing_width, c.hyper_width, c.hyper_layers)

    def apply(params: PyTree, q: Array, best: Array, action: Array, step: Step) -> Float[Array, "*b"]:
        return mix(q, *nets.apply(params, source.features(step)), monotone=monotone)

    return Mixer(nets.init, apply, reads_state=c.mixer_input == "state")


def returns_of_several_steps(c: QConfig, r: Array, d: Array, value: Array, cut: Array) -> Array:
    """y with ``n_step`` or ``lam``: the n-step return, or the λ-return (Peng's Q(λ))."""
    if off(c.lam):
        return n_step_returns(r, d, value, cut, gamma=c.gamma, n=c.n_step)
    return td_lambda(r, d, value, cut, gamma=c.gamma, lam=c.lam)


class QBatch(NamedTuple):
    """Rows of one gradient step, [B, L, ...], with normalised inputs."""

    step: Step
    action: Int[Array, "B L N"]
    outcome: Step
    weight: Float[Array, "B L ..."]
    drawn: tuple[Array, ...]
    """Random numbers of the mixer [B, L, ...]."""
    carry: PyTree
    """Recurrent states before the rows [B, N, H]."""


def make(
    spec: EnvSpec,
    config: Config,
    scale: Scale,
    mixer: Mixer | None = None,
    explore: Callable[[Utilities], Callable] = epsilon_greedy,
) -> Algorithm:
    """QMIX for an environment with discrete actions. Its mixer and its exploration can be replaced.

    Args:
        spec: the environment's description.
        config: hyper-parameters.
        scale: sizes of the run.
        mixer: None for QMIX's.
        explore: see :func:`make_q_learning`.

    Raises:
        InputError: actions are continuous, the environment has no global state for the mixer to read, or an
            option is out of its range.
    """
    check_options(config)
    return make_q_learning(spec, config, scale, mixer or make_mixer(spec, config), explore)


def make_q_learning(
    spec: EnvSpec,
    config: QConfig,
    scale: Scale,
    mixer: Mixer,
    explore: Callable[[Utilities], Callable] = epsilon_greedy,
) -> Algorithm:
    """Q-learning for a team whose utilities are mixed by ``mixer``.

    Args:
        spec: the environment's description.
        config: hyper-parameters.
        scale: sizes of the run.
        mixer: the value of a joint action from the agents' utilities.
        explore: utilities -> an ``Algorithm.act``, which finds the current ε in ``learner.policy.epsilon``.

    Raises:
        InputError: actions are continuous, or an option is out of its range.
    """
    check_q(spec, config)
    c, index = config, policy_of(spec, config.sharing)
    net, q = make_utilities(spec, c.network, index, c.agent_id)
    acting = utilities_in_turns(spec, c.network, index, c.agent_id)
    steps, frozen = scale.num_updates * c.gradient_steps, frozen_parameters(c, net.init, mixer.init)
    adam = optimiser(c.learning_rate, c.lr_final, [steps] * (max(index) + 1), c.max_grad_norm, c.adam_eps, frozen.actor)
    mixer_rate = c.learning_rate if mixer.learning_rate is None else mixer.learning_rate
    mixer_adam = optimiser(mixer_rate, c.lr_final, [steps], c.max_grad_norm, c.adam_eps, frozen.critic)

    def init(key: PRNGKeyArray) -> Learner:
        key_net, key_mixer = jax.random.split(key)
        theta, phi = net.init(key_net), mixer.init(key_mixer)
        policy = Policy(theta, init_inputs(spec, c.normalise_inputs), jnp.float32(c.epsilon))
        optimisers = ByNet(adam.init(theta), mixer_adam.init(phi) if phi else None)
        return Learner(policy, phi, optimisers, init_targets(ByNet(theta, phi), c.reward_norm, ()), jnp.int32(0))

    def loss(statistics: TargetStatistics, params: ByNet, part: QBatch) -> tuple[Array, Metrics]:
        """(y − Q_tot)² over a part of the batch (eq. 6); θ's pass over the sequences serves the next action as well."""
        out, target = part.outcome, statistics.target
        traj = Trajectory(part.step, part.action, {}, out, part.carry)
        passed = after_burn_in(q, c.burn_in, params.actor, part.carry, part.step)

        # THE NEXT JOINT ACTION, SELECTED BY θ AND EVALUATED BY θ^-
        after = next_utilities(q, target.actor, traj)
        selecting = next_utilities(q, jax.lax.stop_gradient(params.actor), traj, passed) if c.double_q else after
        value = mixer.of_greedy(
            target.critic, after, greedy_action(selecting, out)[0], out
        )  # max_u' Q_tot(s', u'; θ^-)

        # y: ONE FOR THE TEAM, OR EACH AGENT'S OWN
        r, d, value, cut = target_parts(traj, value, mixer.team, spec.reward_groups)
        r = normalise_reward(c.reward_norm, statistics.reward, r)
        y = r + c.gamma * d * value  # (eq. 6)
        if c.several_steps:
            y = returns_of_several_steps(c, r, d, value, cut)

        # (y − Q_tot)²
        q_tot = mixer.of_actions(params.critic, passed[1], part.action, part.step, part.drawn)
        error = y - q_tot
        cost = jnp.square(error) / 2 if c.huber is None else huber(error, c.huber)
        metrics = {"td_loss": cost, "q": q_tot, "td_error": jnp.abs(error)}
        if mixer.constraints is not None:
            added, rows = mixer.constraints(params.critic, passed[1], part.action, part.step)
            cost, metrics = cost + added, metrics | rows
        return (cost * part.weight).sum(), {name: (x * part.weight).sum() for name, x in metrics.items()}

    def gradient_step(learner: Learner, turn: tuple[Any, Any]) -> tuple[Learner, Metrics]:
        """One gradient step on a sample of the buffer."""
        # THE SAMPLE
        sample, key = turn
        inputs, traj = learner.policy.inputs, as_trajectory(sample, net.initial_carry(sample.first.shape[1:]))
        step, outcome = normalised(inputs, traj.step), normalised(inputs, traj.outcome)
        acted = step.alive.any(-1) if mixer.team else step.alive
        learned = warmed_up(c, step.first.shape).reshape(*step.first.shape, *(1,) * (acted.ndim - 2))
        weight = (acted & learned).astype(jnp.float32)
        drawn = mixer.draw(key, step) if mixer.draw else ()
        rows = sgd.items(QBatch(step, traj.action, outcome, weight, drawn, ()), step.first.shape[0])
        batch = sgd.whole(rows._replace(carry=traj.carry))

        # THE STEP
        params, state = ByNet(learner.policy.actor, learner.critic), learner.optimiser
        loss_now = partial(loss, learner.statistics)
        gradient, metrics = sgd.gradient(loss_now, params, batch, c.block, None if mixer.team else index)
        theta, own, norm = adam.step(gradient.actor, state.actor, params.actor)
        phi, of_mixer = params.critic, state.critic
        if phi:
            phi, of_mixer, _ = mixer_adam.step(gradient.critic, of_mixer, phi)

        # TARGET NETWORKS
        done = learner.statistics.steps + 1
        target = update_target(learner.statistics.target, ByNet(theta, phi), done, c.target_interval, c.target_rate)
        statistics = learner.statistics._replace(target=target, steps=done)
        policy = learner.policy._replace(actor=theta)
        return Learner(policy, phi, ByNet(own, of_mixer), statistics, learner.updates), metrics | {"grad_norm": norm}

    def update(learner: Learner, experience: Experience, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        # RUNNING STATISTICS OF THE NEWEST ROLLOUT
        learner = observe(learner, experience.newest)

        # GRADIENT STEPS
        keys = jax.random.split(key, c.gradient_steps) if mixer.draw else None  # the batches are drawn already
        learner, metrics = jax.lax.scan(gradient_step, learner, (experience.samples, keys))

        # EXPLORATION
        explored, updates = learner.policy.epsilon, learner.updates + 1
        epsilon = annealed(c.epsilon, c.epsilon_final, c.epsilon_fraction, updates, scale.num_updates)
        learner = learner._replace(policy=learner.policy._replace(epsilon=epsilon), updates=updates)
        return learner, jax.tree.map(jnp.mean, metrics) | {"epsilon": explored}

    observe = count_rollout(spec, c, mixer.team)
    act, state = explore(acting), state_names(c, net.initial_carry((1,)))
    told = c.explore_in_evaluation and explore is epsilon_greedy
    return Algorithm(
        init, lambda num_envs: net.initial_carry((num_envs,)), with_state(act) if state else act, update,
        replay=make_replay(c, sequences=c.sequences, state=mixer.reads_state or c.normalise_inputs, extras=state),
        inspect=make_inspect_utilities(q, mixer.of_actions, c.reward_norm, told),
        observe=observe, stochastic=c.explore_in_evaluation, **learned_from(spec, mixer.team),
    )  # fmt: skip


def make_policy(
    spec: EnvSpec, config: QConfig, explore: Callable[[Utilities], Callable] = epsilon_greedy, team: bool = True
) -> Algorithm:
    """The policies, for acting only; ``team`` is that of the mixer.

    Raises:
        InputError: actions are continuous, or an option is out of its range.
    """
    check_q(spec, config)
    facts = learned_from(spec, team)
    return utilities.make_policy(spec, config, config.epsilon, explore, config.explore_in_evaluation, **facts)
