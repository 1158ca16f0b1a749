"""Shoal's side of ``beside_jaxmarl.py`` and of ``beside.py``."""

import sys
from typing import Any

import jax
import numpy as np
import optax

import shoal
from alternated import Made
from arithmetic import kernels
from programs import Calls, build, flop_of_program, flop_per_step
from shoal.game import HostEnvironment
from shoal.training.sharding import one_device_per_core


def make(checkout: str, row: dict, seconds: float, updates: int | None) -> Made:
    """Compile a row; see :func:`jaxmarl_side.make`."""
    one_device_per_core()  # JaxMARL starts JAX
    if row["kind"] == "smax":
        sys.path.insert(0, checkout)
        env = shoal.make("jaxmarl/smax/3m")
    else:
        env = shoal.make("mpe/simple_spread", num_agents=row["num_agents"], horizon=26)
    return trained(env, row, seconds, updates)


def trained(env: Any, row: dict, seconds: float, updates: int | None = None) -> Made:
    """Compile a row in an environment."""
    seeds, per_update = row.get("seeds", 1), row["num_envs"] * row["rollout_length"] * row.get("seeds", 1)
    training = build(row, env)
    call = Calls(training, seeds)

    def gradient_steps() -> int:
        counts = optax.tree.get_all_with_path(call.state.learner.optimiser, "count")
        return int(max(np.max(count) for _, count in counts))

    call(1)
    count = updates or max(1, round(seconds / call(1)))
    before = gradient_steps()
    call(count)
    config = training.config
    nets = [call.state.learner.policy.actor, call.state.learner.critic]
    report = {
        "environments": training.layout.num_envs * training.layout.mesh.shape["devices"],
        "steps per rollout": row["rollout_length"],
        "gradient steps per rollout": (gradient_steps() - before) / count,
        "activation": config.network.activation,
        "layers": [f"{i}x{o}" for net in nets if net for i, o in kernels(net)],
        "devices": f"{training.layout.mesh.size} x {jax.devices()[0].platform}",
        "jax": jax.__version__,
        "updates per call": count,
        "FLOP per step": flop_per_step(training, row, call.state),
    }
    if not isinstance(env, HostEnvironment):
        report["FLOP per step of the program"] = flop_of_program(training, row["rollout_length"])
    if replay := training.algorithm.replay:
        report["sequences per gradient step"] = replay.batch
    else:
        report |= {"epochs": config.epochs, "minibatches": config.minibatches, "agents": env.spec.num_agents}
    return report, lambda: (call(count), count * per_update)
