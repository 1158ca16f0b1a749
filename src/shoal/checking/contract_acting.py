"""Requirements of ``act``: legal actions, no effect of dead agents' observations, and no use of the critic."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.checking.findings import Finding
from shoal.checking.specimen import E, Specimen, acting, difference, fast
from shoal.types import Box, Learner, Trajectory


def error(subject: str, sentence: str) -> Finding:
    """A finding that makes the check fail."""
    return Finding("error", subject, sentence)


def form(one: Specimen) -> Iterator[Finding]:
    """Actions have the shape and the type that rollouts expect."""
    box, n = isinstance(one.spec.action, Box), one.spec.num_agents
    shape = (one.length, E, n, one.spec.action.width) if box else (one.length, E, n)
    action = one.trajectory.action
    if action.shape != shape or (action.dtype.kind == "f") != box:
        wanted = f"{'float32' if box else 'int32'}[{', '.join(map(str, shape[1:]))}]"
        text = f"{action.dtype.name}[{', '.join(map(str, action.shape[1:]))}]"
        yield error("actions", f"act returns an action {text}; for {one.spec.name} it must be {wanted}, [E, N ...].")


def masks(one: Specimen) -> Iterator[Finding]:
    """Sampled and greedy actions are legal; padded dimensions of a continuous action are 0."""
    for how, traj in (("sampled", one.trajectory), ("greedy", one.greedy)):
        legal, action = np.asarray(traj.step.legal), np.asarray(traj.action)
        alive = np.asarray(traj.step.alive)
        if isinstance(one.spec.action, Box):
            if (action[~legal] != 0).any():
                yield error(
                    "masks",
                    f"{how} actions are not 0 in dimensions that an agent does not have: multiply by step.legal, or "
                    f"sample with shoal.equations.distributions.",
                )
            continue
        inside = (action >= 0) & (action < legal.shape[-1])
        chosen = np.take_along_axis(legal, np.clip(action, 0, legal.shape[-1] - 1)[..., None], -1)[..., 0] & inside
        if not chosen[alive].all():
            share = 1.0 - chosen[alive].mean()
            yield error(
                "masks",
                f"{share:.0%} of the {how} actions of living agents are illegal or out of range: act must read "
                f"step.legal, which is also False for actions that an agent with fewer actions does not have.",
            )


def dead_agents(one: Specimen) -> Iterator[Finding]:
    """Observations of dead agents, even NaN, do not affect the actions of living agents."""
    traj = one.trajectory
    spoiled = traj._replace(step=blinded(traj.step, jnp.nan))
    alive = np.asarray(traj.step.alive)
    for how, before, after in zip(
        ("sampled", "greedy"), (one.trajectory, one.greedy), one.acts(one.learner, spoiled), strict=True
    ):
        same = np.asarray(before.action) == np.asarray(after.action)
        same = np.asarray(same.all(-1) if same.ndim > alive.ndim else same)
        extras = {name: x for name, x in after.extras.items() if x.shape[:3] == alive.shape}
        broken = [name for name, x in extras.items() if np.isnan(np.asarray(x, np.float32)[alive]).any()]
        if not same[alive].all() or broken:
            what = "actions" if not same[alive].all() else f"the extras {broken[0]!r}"
            yield error(
                "dead agents",
                f"{how} {what} of living agents change if dead agents observe NaN: replace a dead agent's input by 0 "
                f"with jnp.where(alive, x, 0), since 0 times NaN is NaN.",
            )
            return


def blinded(step: Any, value: float) -> Any:
    """The steps with ``value`` in the observations of dead agents."""
    return step._replace(obs=jnp.where(step.alive[..., None], step.obs, value))


def without_critic(one: Specimen) -> Iterator[Finding]:
    """Greedy actions need only the policy, as in deployment."""
    bare = Learner(one.learner.policy, (), (), (), one.learner.updates)
    act = fast(acting(one.algorithm))
    try:
        traj = act(bare, one.trajectory)[1]
    except Exception as problem:
        yield error(
            "deployment",
            f"act raises {type(problem).__name__} when the learner has only its policy, as shoal.load returns "
            f"it: keep everything that act needs in Learner.policy.",
        )
        return
    if difference(traj.action, one.greedy.action):
        yield error(
            "deployment",
            "greedy actions change when the learner has only its policy: act must read only Learner.policy.",
        )


def recurrence(one: Specimen) -> Iterator[Finding]:
    """The recurrent state is reset where ``step.first`` is True, and has an effect elsewhere."""
    if not jax.tree.leaves(one.trajectory.carry):
        return
    stale = _with_stale_carry(one)
    for before, after in zip((one.trajectory, one.greedy), one.acts(one.learner, stale), strict=True):
        if difference((before.action, before.extras), (after.action, after.extras)):
            yield error(
                "recurrent state",
                "actions at the start of an episode depend on the recurrent state of the previous episode: reset it "
                "where step.first is True, before it is used.",
            )
            return
    key = jax.random.key(3)
    if path := difference(
        one.update(one.learner, one.trajectory._replace(carry=stale.carry), key)[0],
        one.update(one.learner, one.trajectory, key)[0],
    ):
        yield error(
            "recurrent state",
            f"after an update from a rollout that begins with new episodes, {path} depends on the recurrent state "
            f"before the rollout: the update must reset it where step.first is True, as act does.",
        )


def _with_stale_carry(one: Specimen) -> Trajectory:
    """The trajectory, which begins with first steps, with noise in place of its recurrent state."""
    rng = np.random.default_rng(1)

    def fill(x: jax.Array) -> jax.Array:
        return jnp.asarray(rng.normal(size=x.shape), x.dtype) if x.dtype.kind == "f" else x

    return one.trajectory._replace(carry=jax.tree.map(fill, one.trajectory.carry))


RULES = (form, masks, dead_agents, without_critic, recurrence)
