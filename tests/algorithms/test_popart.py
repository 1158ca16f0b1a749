"""PopArt over several updates against a critic whose head is kept in units of reward and never rescaled.

PopArt changes the statistics and rescales the head so that predictions stay (van Hasselt et al. 2016, proposition 1;
Hessel et al. 2019, eq. 8). In units of reward the head therefore changes by gradient steps alone: this oracle keeps it
there and reads it in the net's units for each step.
"""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from shoal.algorithms import mappo
from shoal.errors import InputError
from shoal.models.actor_critic import make_nets
from shoal.types import Scale, Trajectory
from support.algorithm_cases import BASE
from support.naive import critic_loss, gae, gradient, mask_dead_values, next_values, to_numpy, values
from support.naive_update import Adam, group_of
from support.trajectories import NUM_UPDATES, assert_trees_close, make_spec, make_trajectory, program

SPEC = make_spec()
POPART = replace(
    BASE, value_norm="popart", value_norm_beta=0.8, value_clip=0.3, huber=None, learning_rate=0.3, gamma=0.9, lam=0.8
)
CASES = {
    "a net per role": replace(POPART, critic_input="local", sharing="role"),
    "an output per agent": replace(POPART, critic_input="concat"),
}


def data(k: int) -> Trajectory:
    """Rewards whose scale and mean grow tenfold from update to update."""
    traj = make_trajectory(SPEC, k)
    return traj._replace(outcome=traj.outcome._replace(reward=10.0**k * (traj.outcome.reward + 2.0)))


class InRewards:
    """A critic whose predictions are returns."""

    def __init__(self, c: Any, critic: Any) -> None:
        self.c, self.critic, self.group = c, to_numpy(critic), group_of(SPEC, c)
        self.adam = Adam(self.critic, c.learning_rate, c, NUM_UPDATES * c.epochs)
        self.history: list[tuple[np.ndarray, np.ndarray]] = []

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each group's targets: batch k of K counts β^(K−k)."""
        weight = self.c.value_norm_beta ** np.arange(len(self.history))[::-1]
        mean, square = (np.tensordot(weight, np.array(x), 1) / weight.sum() for x in zip(*self.history, strict=True))
        return mean, np.sqrt(np.maximum(square - mean**2, 0.01))

    def with_head(self, critic: Any, kernel: np.ndarray, bias: np.ndarray) -> Any:
        return {**critic, "head": {"kernel": kernel, "bias": bias}}

    def in_units(self, mean: np.ndarray, std: np.ndarray) -> Any:
        """The critic as the library holds it."""
        kernel, bias = self.critic["head"]["kernel"], self.critic["head"]["bias"]
        mean, std = mean.reshape(bias.shape), std.reshape(bias.shape)
        return self.with_head(self.critic, kernel / std[:, None], (bias - mean) / std)

    def update(self, traj: Any) -> tuple[Any, float]:
        """(the critic in its units after the update, the mean of the loss)."""
        traj, c, alive = to_numpy(traj), self.c, np.asarray(traj.step.alive)
        value = values(SPEC, c, self.critic, traj.step)
        following = mask_dead_values(
            SPEC, next_values(SPEC, c, self.critic, traj.step, traj.outcome), traj.outcome.alive
        )
        _, target = gae(c, mask_dead_values(SPEC, value, alive), following, traj.outcome)
        groups = [np.array(self.group) == g for g in range(max(self.group) + 1)]
        seen = [target[..., own][alive[..., own]] for own in groups]
        self.history.append((np.array([x.mean() for x in seen]), np.array([(x**2).mean() for x in seen])))
        mean, std = self.moments()
        params, total, who = self.in_units(mean, std), 0.0, list(self.group)
        old, goal = ((x - mean[who]) / std[who] for x in (value, target))

        def loss(params: Any) -> Any:
            return critic_loss(SPEC, c, params, traj.step, old, goal)

        for _ in range(c.epochs):
            total += loss(params)[1]["value_loss"] / c.epochs
            params = self.adam.step(params, gradient(loss, params))[0]
        kernel, bias = params["head"]["kernel"], params["head"]["bias"]
        mean, std = mean.reshape(bias.shape), std.reshape(bias.shape)
        self.critic = self.with_head(params, kernel * std[:, None], bias * std + mean)
        return params, total


@pytest.mark.parametrize("lacking", ["head", "bias", "outputs"])
def test_popart_refuses_nets_without_the_layer_that_it_rescales(lacking: str) -> None:
    """Given by ``nets``; they ended in a KeyError while the update was compiled."""
    scale = Scale(4, 6, NUM_UPDATES)
    nets = make_nets(SPEC, POPART, (0,) * SPEC.num_agents)

    def init(key: Any) -> Any:
        params = nets.critic.init(key)
        head = params.pop("head")
        other = {"kernel": head["kernel"]} if lacking == "bias" else jax.tree.map(lambda x: x[..., :1], head)
        return params | ({} if lacking == "head" else {"head": other})

    mappo.make(SPEC, POPART, scale, nets=nets)
    with pytest.raises(InputError, match=r"^popart rescales the critic's last layer, .* which these nets lack"):
        mappo.make(SPEC, POPART, scale, nets=nets._replace(critic=nets.critic._replace(init=init)))


@pytest.mark.parametrize("name", CASES)
def test_popart_only_changes_the_units_that_the_critic_is_kept_in(name: str) -> None:
    prog = program(SPEC, CASES[name])
    learner, naive = prog.learner, InRewards(CASES[name], prog.learner.critic)
    for k in range(3):
        learner, metrics = prog.update(learner, data(k), jax.random.key(k))
        expected, loss = naive.update(data(k))
        assert_trees_close(learner.critic, expected, 2e-3, 2e-4)
        np.testing.assert_allclose(metrics["value_loss"], loss, rtol=1e-3)
    mean, std = naive.moments()
    assert (np.abs(mean) > 20).all() and (std > 20).all()
