"""Training programs of benchmarks, and their arithmetic per environment step.

The passes of a training program per row (an agent, or the team) and environment step:

* MAPPO, IPPO: the actor acts; the critic values steps and outcomes. With a GRU the actor also runs over the rollout for
  the states before chunks, and the critic while acting. Then every epoch trains both.
* Q-learning: the utilities act. For each step of a sequence the trained net and the target's run over steps and over
  outcomes, then the trained net once with its gradient; the mixers run once each.
"""

import time
from typing import Any, NamedTuple

from arithmetic import from_passes, from_program

EPOCHS = MINIBATCHES = 4


class Training(NamedTuple):
    """A training program and what it was made of."""

    env: Any
    algorithm: Any
    config: Any
    layout: Any
    program: Any


def build(flags: dict, env: Any = None) -> Training:
    """The program for the flags of a row, on all cores.

    Args:
        flags: ``num_envs``, ``rollout_length``, ``algorithm``, ``seeds``, ``num_agents``, ``horizon``, and fields of
            the algorithm's configuration.
        env: the environment; None for ``mpe/simple_spread``.
    """
    import shoal
    from shoal import algorithms
    from shoal.game import HostEnvironment
    from shoal.options.flags import override
    from shoal.training import sharding
    from shoal.training.hosted import compile_host_program
    from shoal.training.program import compile_program
    from shoal.training.settings import Settings
    from shoal.types import Scale

    sharding.one_device_per_core()
    layout = sharding.plan_layout(flags.get("seeds", 1), flags["num_envs"], None)
    options = {name: flags[name] for name in ("num_agents", "horizon") if name in flags}
    env = env or shoal.make("mpe/simple_spread", **options)
    module, length = algorithms.get(flags.get("algorithm", "mappo")), flags["rollout_length"]
    config = override(module.Config(), {"epochs": EPOCHS, "minibatches": MINIBATCHES} | flags)
    algorithm = module.make(env.spec, config, Scale(layout.num_envs, length, 1_000_000))
    if isinstance(env, HostEnvironment):
        settings = Settings(num_envs=flags["num_envs"], rollout_length=length)
        program = compile_host_program(env, algorithm, layout, settings, print, lambda: algorithm)
        return Training(env, algorithm, config, layout, program)
    return Training(env, algorithm, config, layout, compile_program(env, algorithm, layout, length, capacity=256))


def start(training: Training, seeds: int) -> tuple[Any, Any]:
    """The first state, and the compiled function (state, n) -> (state after n updates, metrics)."""
    import jax

    layout = training.layout
    keys = jax.device_put(jax.random.split(jax.random.key(0), seeds), layout.named(layout.learner))
    state = training.program.init(keys)
    advance = training.program.start(state)
    jax.block_until_ready(state)
    return state, advance


class Calls:
    """Timed calls of a compiled training program."""

    def __init__(self, training: Training, seeds: int) -> None:
        self.state, self.advance = start(training, seeds)
        self.capacity = training.program.capacity

    def __call__(self, n: int) -> float:
        """Make n updates; returns the seconds that they took."""
        import jax
        import numpy as np

        began, metrics = time.perf_counter(), None
        for done in range(0, n, self.capacity):
            self.state, metrics = self.advance(self.state, np.int32(min(self.capacity, n - done)))
        jax.block_until_ready((self.state, metrics))
        return time.perf_counter() - began


def flop_per_step(training: Training, flags: dict, state: Any) -> float:
    """FLOP of all matrix products of one seed per environment step, from parameters and passes.

    The algorithm is MAPPO, IPPO, QMIX or VDN; mixing itself, a product of vectors, is left out.
    """
    config, learner, agents = training.config, state.learner, training.env.spec.num_agents
    gru = bool(config.network.recurrent)
    if training.algorithm.replay:
        drawn = flags["gradient_steps"] * flags["batch_size"] * flags["sequence_length"]
        drawn /= flags["num_envs"] * flags["rollout_length"]  # steps of sequences per environment step
        mixer = from_passes(learner.critic, drawn, drawn) if learner.critic else 0.0
        once_at_ends = 2 * drawn / flags["sequence_length"]  # both nets in the outcome that ends a sequence
        return agents * from_passes(learner.policy.actor, 1 + drawn + once_at_ends, drawn) + mixer
    per_agent = config.critic_input in ("local", "agent", "pruned")
    critic = from_passes(learner.critic, 3 if gru else 2, config.epochs)
    return agents * from_passes(learner.policy.actor, 2 if gru else 1, config.epochs) + critic * (
        agents if per_agent else 1
    )


def flop_of_program(training: Training, length: int) -> float:
    """The same from all ``dot_general`` of a rollout and an update, those of the environment included."""
    import jax
    import jax.numpy as jnp

    from shoal.rollouts import fused
    from shoal.types import Experience

    algorithm, num_envs = training.algorithm, training.layout.num_envs
    rollout = fused.make_rollout(training.env, num_envs, length)

    def first(key: Any) -> tuple:
        return algorithm.init(key), rollout.init(key, algorithm.initial_carry(num_envs)), key

    def update(learner: Any, state: Any, key: Any) -> Any:
        data = newest = rollout.collect(algorithm.act, learner, state, key)[1]
        if one := algorithm.replay:
            lead = one.draws, one.length, one.batch // training.layout.mesh.size
            kept = one.keep(newest)
            data = Experience(newest, jax.tree.map(lambda x: jnp.zeros((*lead, *x.shape[2:]), x.dtype), kept))
        return algorithm.update(learner, data, key)

    traced = jax.make_jaxpr(update)(*jax.eval_shape(first, jax.random.key(0)))
    return from_program(traced.jaxpr) / (num_envs * length)
