"""Values of images are computed block by block, in the memory of a block, and are those of all timesteps at once."""

import jax
import numpy as np
import pytest

import images
from shoal import algorithms
from shoal.learning import sgd
from shoal.models.actor_critic import Policy, make_nets
from shoal.networks.inputs import Inputs
from shoal.options.flags import override
from shoal.rollouts import fused
from shoal.types import Learner

E, T = 3, 6


@pytest.mark.parametrize("recurrent", [None, 4])
def test_values_in_blocks(recurrent: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    env = images.device()
    config = override(algorithms.get("mappo").Config(), {"recurrent": recurrent, "hidden": (4,), "channels": (2,)})
    nets = make_nets(env.spec, config, (0,) * env.spec.num_agents)
    params = jax.jit(nets.init)(jax.random.key(0))
    learner = Learner(Policy(params.actor, Inputs()), params.critic, (), (), jax.numpy.int32(0))
    rollout = fused.make_rollout(env, E, T)
    state = jax.jit(rollout.init)(jax.random.key(1), nets.initial_carry(E))
    for turn in range(2):  # the second one begins in the middle of episodes, with a recurrent state
        state, traj, _ = jax.jit(rollout.collect, static_argnums=0)(nets.act, learner, state, jax.random.key(turn))
    found, memory = [], []
    for size in (2**21, 1 + traj.step.obs.size // 3, 1):
        monkeypatch.setattr(sgd, "IMAGE_BYTES", size)
        compiled = jax.jit(lambda learner, traj: nets.evaluate(learner, traj)).lower(learner, traj).compile()
        found.append(compiled(learner, traj))
        memory.append(compiled.memory_analysis().temp_size_in_bytes)
    whole, *cut = found
    assert memory[0] > 1.5 * memory[1] > 1.5 * memory[2], memory
    for one in cut:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), whole, one)
    assert whole.value.shape == (T, E, env.spec.num_agents) and np.ptp(whole.value) > 0
