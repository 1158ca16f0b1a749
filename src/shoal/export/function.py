"""A team's policy as one pure function over named arrays, which the formats of this package write to files."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from shoal.environments.wrappers import Wrapping, change_of, unwrapped
from shoal.export.program import traced
from shoal.game import blank
from shoal.networks.inputs import Inputs
from shoal.sides.opponents import OpposedCarry
from shoal.types import Algorithm, Box, Discrete, EnvSpec, Learner, PyTree, Step


class Port(NamedTuple):
    """An input or an output: a batch of arrays."""

    shape: tuple[int, ...]
    """Without the batch axis, which comes first."""
    dtype: str
    """``float32``, ``int32``, ``bool`` or ``uint8``."""
    axes: tuple[str, ...]
    """What each axis of ``shape`` counts."""
    meaning: str
    """A sentence without its full stop."""


class PolicyFunction(NamedTuple):
    """(arrays by name, [B, ...] each) -> arrays by name: the greedy actions of one timestep, and what they follow from.

    The state that a policy keeps between the timesteps of an episode (recurrent state, stacked frames, last actions)
    is among the inputs, and its next value among the outputs as ``next_`` and the input's name. Where ``first`` is
    True the state is that of the start of an episode, whatever is passed.
    """

    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    apply: Callable[[Mapping[str, Array]], dict[str, Array]]
    spec: EnvSpec
    """Without the wrappers of training, which the function applies itself."""
    agents: tuple[int, ...]
    """The agents that it acts for, by their index."""

    @property
    def state(self) -> tuple[str, ...]:
        """The names of the inputs that are outputs of the timestep before."""
        return tuple(name for name in self.inputs if f"next_{name}" in self.outputs)


def policy_function(
    spec: EnvSpec, algorithm: Algorithm, policy: PyTree, wrapping: Wrapping | None = None
) -> PolicyFunction:
    """The policy of a whole team.

    Args:
        spec: the spec that ``algorithm`` was made for, of the wrapped environment.
        algorithm: the team's algorithm.
        policy: its trained ``Learner.policy``.
        wrapping: the wrappers of training.

    Returns:
        A function whose inputs are ``observation`` [B, N, O], zero-padded to the widest agent; ``legal`` [B, N, A];
        ``alive`` [B, N] for policies that act on the whole team or depend on who was alive before; ``state`` [B, S] for
        those that act on the global state; ``first`` [B]; and the state between timesteps. Its outputs are ``action``
        [B, N] or [B, N, A]; of stochastic policies ``probabilities`` [B, N, A], or ``mean`` and ``std``, of squashed
        ones also those of the normal before the tanh, ``normal_mean`` and ``normal_std``; of Q-learning ``utilities``;
        and the next state. Inputs that do not change any output are omitted.
    """
    wrapping = (wrapping or Wrapping()).observing
    raw = unwrapped(spec, wrapping)
    change = change_of(raw, wrapping)
    n, width, space = raw.num_agents, raw.action.width, raw.action
    discrete = isinstance(space, Discrete)
    learner = Learner(policy, (), (), (), np.int32(0))  # type: ignore[arg-type]

    memory_shapes = jax.eval_shape(lambda step: change.begin(step)[0], blank(raw))
    carry_shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), jax.eval_shape(lambda: algorithm.initial_carry(1))
    )
    memory_leaves, memory_tree = jax.tree.flatten(memory_shapes)
    carry_leaves, carry_tree = jax.tree.flatten(carry_shapes)
    acted = (n,) if discrete else (n, width)
    # A lone agent lives as long as its episode.
    frozen = isinstance(carry_shapes, OpposedCarry) and bool(jax.tree.leaves(carry_shapes.frozen_policies))
    # Whether frozen policies have statistics of their inputs is not known here: ``policy`` lacks theirs.
    remembers = n > 1 and (frozen or _remembers_death(policy, wrapping, bool(carry_leaves)))
    reads_alive = remembers or algorithm.acts_on != "own"

    agent, feature = "agent", "feature"
    legal = "whether an agent may choose an action" if discrete else "whether an agent has an action dimension"
    inputs = {
        "observation": Port(
            (n, raw.obs_dim),
            "uint8" if raw.packed else "float32",
            (agent, feature),
            "each agent's observation as the environment returns it, flattened and zero-padded",
        ),
        "legal": Port((n, width), "bool", (agent, "action"), legal),
        "alive": Port((n,), "bool", (agent,), "whether an agent is alive: False before it joins and after its death"),
        "state": Port((raw.state_dim,), "float32", (feature,), "the environment's global state"),
        "first": Port((), "bool", (), "whether an episode starts, so that the state between timesteps is reset"),
        "last_action": Port(
            acted,
            "int32" if discrete else "float32",
            (agent, "action")[: len(acted)],
            "the action of the timestep before",
        ),
    }
    for kind, leaves, meaning in (
        ("memory", memory_leaves, "what wrappers of the environment keep, such as stacked frames"),
        ("carry", carry_leaves, "recurrent state"),
    ):
        for i, leaf in enumerate(leaves):
            axes = ("agent", *("",) * (len(leaf.shape) - 1)) if leaf.shape[:1] == (n,) else ("",) * len(leaf.shape)
            inputs[f"{kind}_{i}"] = Port(tuple(leaf.shape), np.dtype(leaf.dtype).name, axes, meaning)

    def apply(given: Mapping[str, Array]) -> dict[str, Array]:
        batch = given["observation"].shape[0]
        step = Step(
            obs=given["observation"],
            state=given["state"] if algorithm.acts_on == "state" else jnp.zeros((batch, raw.state_dim)),
            legal=given["legal"],
            alive=given["alive"] if reads_alive else jnp.ones((batch, n), bool),
            reward=jnp.zeros((batch, n)),
            discount=jnp.ones((batch, n)),
            first=given["first"],
            last=jnp.zeros(batch, bool),
        )
        memory, seen = jax.vmap(change.begin)(step)
        if memory_leaves:
            kept = jax.tree.unflatten(memory_tree, [given[f"memory_{i}"] for i in range(len(memory_leaves))])
            followed = jax.vmap(change.follow)(kept, step, given["last_action"])

            def by_first(x: Array, y: Array) -> Array:
                return jnp.where(given["first"].reshape(-1, *(1,) * (x.ndim - 1)), x, y)

            memory, seen = jax.tree.map(by_first, (memory, seen), followed)
        carry = jax.tree.unflatten(carry_tree, [given[f"carry_{i}"] for i in range(len(carry_leaves))])
        after, action, extras = algorithm.act(learner, carry, seen, jax.random.key(0), True)
        told = {} if algorithm.inspect is None else algorithm.inspect(learner, carry, seen, action, extras)
        if isinstance(space, Box):
            action = jnp.clip(action, space.low, space.high)
        action = jax.vmap(change.execute)(memory, action)
        found = {"action": action}
        found |= _of_all_agents({name: told[name] for name in _TOLD if name in told}, action, seen.legal)
        found["next_last_action"] = action
        found |= {f"next_memory_{i}": x for i, x in enumerate(jax.tree.leaves(memory))}
        return found | {f"next_carry_{i}": x for i, x in enumerate(jax.tree.leaves(after))}

    return _without_unused(PolicyFunction(inputs, {}, apply, raw, tuple(range(n))))


def _of_all_agents(told: dict[str, Array], action: Array, legal: Array) -> dict[str, Array]:
    """What is told, with the distribution of the action alone for agents of a side that has none."""
    if "probabilities" in told:
        one = (action[..., None] == jnp.arange(legal.shape[-1])).astype(jnp.float32)
        told["probabilities"] = jnp.where(jnp.isnan(told["probabilities"]), one, told["probabilities"])
    if "mean" in told:
        lacks = legal & jnp.isnan(told["mean"])
        told["mean"] = jnp.where(lacks, action, told["mean"])
        told["std"] = jnp.where(lacks, 0.0, told["std"])
    return told


def _remembers_death(policy: PyTree, wrapping: Wrapping, recurrent: bool) -> bool:
    """Whether an agent that joins, or is alive again, would act otherwise if it had been alive and observed zeros.

    It would read a last action. A recurrent state reads zeros of a dead agent, but of a living one what wrappers and
    the statistics of inputs make of them.
    """
    parts = jax.tree.leaves(policy, is_leaf=lambda x: isinstance(x, Inputs))
    normalised = any(isinstance(x, Inputs) and jax.tree.leaves(x) for x in parts)
    shown = wrapping.blind or wrapping.agent_ids or wrapping.frame_stack > 1
    return wrapping.last_action or (recurrent and (normalised or shown))


_MEANINGS = {
    "action": "the greedy action",
    "probabilities": "probability of each action; 0 for illegal ones",
    "mean": "mean of each action dimension before it is clipped, or the image of normal_mean; NaN in padded dimensions",
    "std": "standard deviation of each action dimension; NaN in padded dimensions",
    "normal_mean": "mean of the normal before tanh, whose −1 and 1 are the box's bounds; NaN in padded dimensions",
    "normal_std": "standard deviation of the normal before tanh; NaN in padded dimensions",
    "utilities": "value of each action; NaN for illegal ones",
}
_TOLD = tuple(name for name in _MEANINGS if name != "action")  # what the algorithm tells beside the action


def _without_unused(function: PolicyFunction) -> PolicyFunction:
    """The function without inputs that no output depends on, and without states that nothing else depends on."""
    program = traced(function.apply, function.inputs)
    wanted = {name for name in program.outputs if not name.startswith("next_")}
    while True:  # states that reach an action, perhaps through other states
        used = program.needed(wanted).inputs
        more = {f"next_{name}" for name in used} & program.outputs.keys() - wanted
        if not more:
            break
        wanted |= more
    inputs = {name: port for name, port in function.inputs.items() if name in used}

    def port(name: str) -> Port:
        if name.startswith("next_"):
            return function.inputs[name[5:]]._replace(meaning=f"the next value of {name[5:]}")
        value = program.outputs[name]
        return Port(
            value.shape[1:], np.dtype(value.dtype).name, ("agent", "action")[: len(value.shape) - 1], _MEANINGS[name]
        )

    def apply(given: Mapping[str, Array]) -> dict[str, Array]:
        batch = next(iter(given.values())).shape[0]
        unused = {
            name: jnp.zeros((batch, *port.shape), port.dtype)
            for name, port in function.inputs.items()
            if name not in inputs
        }
        found = function.apply({**unused, **given})
        return {name: x for name, x in found.items() if name in wanted}

    order = [name for name in (*_MEANINGS, *(f"next_{name}" for name in function.inputs)) if name in wanted]
    return function._replace(inputs=inputs, outputs={name: port(name) for name in order}, apply=apply)


def of_one_agent(function: PolicyFunction, agent: int) -> PolicyFunction:
    """The policy of one agent of a team whose agents act on their own observations: no axis of agents, no padding.

    The other agents' rows are computed as well and discarded.
    """
    spec = function.spec
    n, widths = spec.num_agents, {"observation": spec.obs_dims[agent], "legal": spec.action_dims[agent]}
    actions = ("legal", *_TOLD)

    def own(name: str, port: Port) -> Port:
        name = name.removeprefix("next_")
        if port.shape[:1] != (n,) or port.axes[:1] != ("agent",):
            return port
        shape = port.shape[1:]
        if name == "observation":
            shape = (widths["observation"],)
        elif name in actions or (name in ("action", "last_action") and shape):
            shape = (widths["legal"],)
        return port._replace(
            shape=shape, axes=port.axes[1:], meaning=port.meaning.replace("each agent's", "the agent's")
        )

    inputs = {name: own(name, port) for name, port in function.inputs.items()}
    outputs = {name: own(name, port) for name, port in function.outputs.items()}

    def apply(given: Mapping[str, Array]) -> dict[str, Array]:
        rows = {}
        for name, port in function.inputs.items():
            x = given[name]
            if inputs[name].shape != port.shape:
                whole = jnp.zeros((x.shape[0], *port.shape), port.dtype)
                if name == "legal":  # others have a legal action, so that nothing is undefined
                    whole = whole | (jnp.arange(port.shape[-1]) == 0)
                    x = jnp.concatenate([x, jnp.zeros((x.shape[0], port.shape[-1] - x.shape[1]), bool)], axis=-1)
                elif x.ndim == whole.ndim - 1 and x.ndim > 1 and x.shape[-1] != port.shape[-1]:
                    x = jnp.pad(x, ((0, 0),) * (x.ndim - 1) + ((0, port.shape[-1] - x.shape[-1]),))
                which = (jnp.arange(n) == agent).reshape(n, *(1,) * (len(port.shape) - 1))
                x = jnp.where(which, x[:, None], whole)
            rows[name] = x
        found = function.apply(rows)
        for name, port in function.outputs.items():
            if outputs[name].shape != port.shape or outputs[name].axes != port.axes:
                row = found[name][:, agent]
                found[name] = row[..., : outputs[name].shape[-1]] if outputs[name].shape else row
        return found

    return function._replace(inputs=inputs, outputs=outputs, apply=apply, agents=(agent,))
