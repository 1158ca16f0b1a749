"""Trained policies for deployment: actions from observations, without environment or critic."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shoal.environments.interface import Converter, mask_bits, row_of
from shoal.environments.rows import all_numbers, parts_of
from shoal.environments.wrappers import Wrapping, change_of, unwrapped
from shoal.errors import InputError, shortened
from shoal.export.files import Format, check_path, write_policy
from shoal.export.function import of_one_agent, policy_function
from shoal.system import notices
from shoal.system.files import with_home
from shoal.system.shipped import page
from shoal.types import Algorithm, Discrete, EnvSpec, Learner, PyTree, Step

# The trained policy of one agent, and the description of spaces as text.


class AgentPolicy:
    """The policy of one agent, which acts on its own observation only."""

    def __init__(self, team: Any, index: int):
        self._team, self._index = team, index
        self.name = team.agents[index]

    def __repr__(self) -> str:
        team, i = self._team, self._index
        return f"AgentPolicy({self.name} of {team._title}; {spaces_in_words(team.spec, [i])}; {team._how})"

    def reset(self) -> None:
        """Start a new episode."""
        self._team.reset()

    def act(
        self, observation: Any, legal: Any = None, *, info: Any = None, turn: bool = True, alive: bool = True
    ) -> Any:
        """The agent's action.

        A policy that is recurrent, blind, stacks frames or reads its last action must be called at every timestep; in a
        turn-based game also for the moves of others (``env.observe(name)``, with ``turn=False``).

        Args:
            observation: the agent's observation [O_i], or that of a PettingZoo or Gymnasium environment, as in
                :meth:`Policies.act`.
            legal: mask of its legal actions [A_i]; None for the mask in ``observation`` or ``info``, or for all
                actions. Without its masks a policy may choose illegal actions.
            info: the agent's info from the environment, for the mask in it.
            turn: False for another agent's move in a turn-based game, at which the action is not executed. As in
                training, one of several choices is then the only legal one: index 0 in a PettingZoo environment, else
                the one in ``legal``, or index 0 without it.
            alive: False before the agent joins and after its death, where the observation is zeros and the action not
                executed; read by policies that read their last action, and by recurrent ones.

        Returns:
            An int (discrete) or Float[A_i] (box); for a PettingZoo or Gymnasium environment an action that it accepts.

        Raises:
            InputError: the observation or the mask has the wrong shape, or the observation holds NaN or infinity.
        """
        team, i = self._team, self._index
        n, converter = team.spec.num_agents, team._converter
        if converter is not None:
            row, mask = converter.row(i, observation), converter.legal(i, observation, info, legal)
        else:
            row = team._row(i, observation, team.spec.obs_dims, team.spec.obs_dim, OBSERVATION)
            dims, width = team.spec.action_dims, team.spec.action.width
            mask = None if legal is None else team._row(i, legal, dims, width, LEGAL).astype(bool)
            if mask is None and turn:
                team._tell_of_masks()
        if not turn and isinstance(team.spec.action, Discrete) and (converter is not None or mask is None):
            mask = np.arange(team.spec.action_dims[i]) == 0
        rows: list[np.ndarray | None] = [None] * n
        # Others may not have a choice where agents take turns.
        masks = [np.arange(dim) == 0 if team.spec.turns else None for dim in team.spec.action_dims]
        rows[i], masks[i] = row, mask
        chosen = team._choose(rows, masks, (np.arange(n) != i) | alive, None)[i]
        if converter is not None:
            return converter.action(i, chosen)
        return int(chosen) if isinstance(team.spec.action, Discrete) else chosen[: team.spec.action_dims[i]]


def check_given(
    team: Any,
    observations: Any,
    legal: Any = None,
    *,
    alive: Any = None,
    infos: Any = None,
    turn: Any = None,
    state: Any = None,
) -> None:
    """Check arguments of :meth:`Policies.act` without acting, which compiles.

    Raises:
        InputError: an observation, a mask or the state is missing, has the wrong shape, or holds NaN or infinity; or
            there is no agent ``turn``.
    """
    converter, spec = team._converter, team.spec
    if converter is not None and converter.understands(observations):
        given = converter.read(observations, infos, legal, team._present(alive), turn)
        team._observed(given.rows, given.alive)
    else:
        rows = team._rows(observations, spec.obs_dims, spec.obs_dim, OBSERVATION)
        team._observed(rows, team._living(alive))
        if legal is not None:
            team._rows(legal, spec.action_dims, spec.action.width, LEGAL)
        if turn is not None:
            team._mover(turn)
    team._state(state)


def spaces_in_words(spec: EnvSpec, which: Iterable[int]) -> str:
    """The observation and action spaces of these agents, as text."""
    observed, acts = ({dims[i] for i in which} for dims in (spec.feature_dims, spec.action_dims))
    if isinstance(spec.action, Discrete):
        does = f"1 of {_to(acts)} actions"
    else:
        does = f"{_to(acts)} numbers in [{spec.action.low:g}, {spec.action.high:g}]"
    return f"{_to(observed)} numbers observed, {does} chosen"


def _to(numbers: set[int]) -> str:
    """A range as text, for example ``5`` or ``3 to 7``."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


# The policies of a team.


OBSERVATION, LEGAL = "observation", "legal actions"
Observations = Mapping[str, Any] | Sequence[Any] | np.ndarray | jax.Array


class Policies:
    """A team's trained policies. ``act`` advances recurrent state; ``reset`` starts a new episode.

    Observations are passed as the environment returns them; frame stacking, blindness, last actions and agent ids are
    applied here. The last action is the one that ``act`` returned, so the environment must be stepped with it. Policies
    trained without masks (``action_mask=False``) are not shown ``legal``: ``act`` returns an agent's first legal action
    where its policy chose an illegal one.

    Decentralised policies (``Algorithm.acts_on`` is ``own``) read each agent's own observation only, and
    :meth:`agent` returns the policy of a single agent; also where opponents or another side of the team read more.
    """

    def __init__(
        self,
        spec: EnvSpec,
        algorithm: Algorithm,
        policy: PyTree,
        *,
        greedy: bool = True,
        seed: int = 0,
        wrapping: Wrapping | None = None,
        title: str = "",
    ):
        """Create a team's policies.

        Args:
            spec: the spec that ``algorithm`` was made for, of the wrapped environment.
            algorithm: the team's algorithm.
            policy: its trained ``Learner.policy``.
            greedy: act by the mode of the policy rather than by sampling.
            seed: seed of the samples.
            wrapping: the wrappers of training; ``Policies.spec`` is the spec without them.
            title: origin of the policies, for ``repr``; by default the environment's name.

        Raises:
            InputError: ``seed`` is no whole number from 0 to 2³² - 1.
        """
        if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
            raise InputError(f"The seed of samples must be a whole number from 0 to 2^32 - 1, not {shortened(seed)}.")
        self._title = title or spec.name
        self._wrapping = (wrapping or Wrapping()).observing
        self._trained_for, self.spec, self.greedy = spec, unwrapped(spec, self._wrapping), greedy
        self._change, self._memory = change_of(self.spec, self._wrapping), None
        self._learner = Learner(policy, (), (), (), np.int32(0))  # type: ignore[arg-type]
        self._algorithm, self._key = algorithm, jax.random.key(seed)
        self._act = jax.jit(algorithm.act, static_argnums=4)
        self._converter = Converter(self.spec) if self.spec.interface else None
        self._told: set[str] = set()
        """Of what this team and its agents have warned."""
        self.reset()

    def __repr__(self) -> str:
        spec = self.spec
        names = ", ".join(spec.agents[:4]) + (", …" if spec.num_agents > 4 else "")
        agents = f"{spec.num_agents} agents ({names})" if spec.num_agents > 1 else f"one agent ({names})"
        return f"Policies({self._title}; {agents}; {spaces_in_words(spec, range(spec.num_agents))}; {self._how})"

    @property
    def _how(self) -> str:
        return "greedy" if self.greedy else "sampled"

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents' names, in the order of the rows of observations and actions."""
        return self.spec.agents

    def replace(self, policy: PyTree) -> None:
        """Act by the newer ``Learner.policy`` of the same algorithm from now on; the episode goes on."""
        self._learner = self._learner._replace(policy=policy)

    def reset(self) -> None:
        """Start a new episode: reset recurrent state, stacked frames, last actions and the time of blind agents."""
        self._carry = self._algorithm.initial_carry(1)
        self._executed: np.ndarray | None = None

    def act(
        self,
        observations: Any,
        legal: Any = None,
        *,
        alive: Any = None,
        state: Any = None,
        infos: Any = None,
        turn: Any = None,
    ) -> Any:
        """One action per agent, in the same form as the observations.

        A run that was trained in a PettingZoo or Gymnasium environment accepts the observations of that environment (a
        dict by agent, a sequence, or a single observation): spaces are flattened and ``action_mask`` is read as in
        training, and the actions can be passed to ``step``. Agents missing from such a dict are dead and get no action.

        Args:
            observations: an array [N, O], a sequence of N arrays [O_i], or a dict from names to arrays; or the
                environment's own observations. Images are uint8 [height, width, channels] from 0 to 255 (or of another
                integer type); an observation of several arrays is a sequence, or a dict by their names
                (``spec.parts``).
            legal: masks of legal actions in the same form ([N, A] or [A_i] each); None for the masks in observations
                and infos, or for all actions. Without its masks a policy may choose illegal actions.
            alive: N booleans, a dict of booleans, or, with the environment's own observations, names (``env.agents``);
                None for all agents that are given. Read by algorithms that act on the whole team, by policies that read
                their last action, and by recurrent ones.
            state: the environment's global state [S], for algorithms that act on it.
            infos: the environment's infos, for the masks in them.
            turn: the agent to move (``env.agent_selection``; beside arrays also its index), if agents take turns. The
                observations are then those of all agents, since recurrent and frame-stacking policies must see every
                timestep. Where observations are arrays, the others' actions are in the result, but are not executed;
                ``legal`` may say instead of ``turn`` who has a choice.

        Returns:
            An array Int[N] (discrete) or Float[N, A] (box), or a dict from names to each agent's own action, without
            padding. For the environment's own observations: a dict by agent, a tuple, or one agent's action.

        Raises:
            InputError: an observation or the state is missing, has the wrong shape, or holds NaN or infinity (those of
                living agents), an image has no integer type, an agent is unknown, a living agent has no legal action,
                or ``turn`` is missing.
        """
        converter = self._converter
        if converter is not None and converter.understands(observations):
            given = converter.read(observations, infos, legal, self._present(alive), turn)
            rows = self._choose(given.rows, given.legal, given.alive, state)
            if converter.kind in ("one", "list"):
                each = tuple(converter.action(i, row) for i, row in enumerate(rows))
                return each if converter.kind == "list" else each[0]
            return {name: converter.action(i, rows[i]) for i, name in given.names.items()}
        obs = self._rows(observations, self.spec.obs_dims, self.spec.obs_dim, OBSERVATION)
        living, masks = self._living(alive), None if converter is None else converter.masks(infos)
        if legal is not None:
            masks = self._rows(legal, self.spec.action_dims, self.spec.action.width, LEGAL).astype(bool)
        elif masks is None or all(mask is None for mask in masks):
            self._tell_of_masks()
        rows = self._choose(obs, masks if turn is None else self._in_turn(masks, turn), living, state)
        if not isinstance(observations, Mapping):
            return rows
        if isinstance(self.spec.action, Discrete):
            return {name: int(rows[i]) for i, name in enumerate(self.agents)}
        return {name: rows[i, : self.spec.action_dims[i]] for i, name in enumerate(self.agents)}

    def _tell_of_masks(self) -> None:
        """Warn once of missing masks where agents take turns; of other environments it is not stored whether they have
        masks."""
        if self.spec.turns and "masks" not in self._told:
            self._told.add("masks")
            notices.warn(
                f"Agents take turns in {self.spec.name}, so not every action is always legal, but act was given no "
                "masks: pass legal, or the policies may choose illegal actions."
            )

    def _in_turn(self, masks: Any, turn: Any) -> Any:
        """The masks with one legal action for each agent that is not on turn, as in training: index 0 in a PettingZoo
        environment, else that of its mask, or index 0 if it has no such mask.

        Raises:
            InputError: there is no agent ``turn``.
        """
        mover = self._mover(turn)
        if not isinstance(self.spec.action, Discrete):
            return masks
        found = []
        for i, dim in enumerate(self.spec.action_dims):
            mask = None if masks is None else masks[i]
            kept = i == mover or (self._converter is None and mask is not None and np.sum(mask[:dim]) == 1)
            found.append(mask if kept else np.arange(dim) == 0)
        return found

    def _observed(self, rows: Any, living: np.ndarray) -> np.ndarray:
        """The observations [N, O] from one row per agent, None for zeros.

        Raises:
            InputError: one of a living agent holds NaN or infinity.
        """
        packed = self.spec.packed
        obs = np.zeros((len(rows), self.spec.obs_dim), np.uint8 if packed else np.float32)
        for i, row in enumerate(rows):
            if row is not None:
                obs[i, : len(row)] = row
        numbers = all_numbers(self.spec, obs)
        finite = np.isfinite(numbers)
        if not finite.all() and (wrong := living & ~finite.all(-1)).any():
            i = int(wrong.argmax())
            held = "NaN" if np.isnan(numbers[i]).any() else "infinity"
            raise InputError(f"{self.agents[i]}'s {OBSERVATION} holds {held}.")
        obs[~finite.all(-1)] = 0  # of agents that are not alive; stacked frames hold it when they come back
        return obs

    def _living(self, alive: Any) -> np.ndarray:
        """Whether each agent lives, from N booleans, a dict of booleans, or None for all."""
        n = self.spec.num_agents
        return np.ones(n, bool) if alive is None else self._rows(alive, (1,) * n, 1, "alive")[:, 0].astype(bool)

    def _choose(self, rows: Any, legal: Any, living: np.ndarray, state: Any) -> np.ndarray:
        """Actions [N] or [N, A] from one row per agent and masks over its own actions (None: all legal)."""
        n = self.spec.num_agents
        obs, own = self._observed(rows, living), np.zeros((n, self.spec.action.width), bool)
        for i, dim in enumerate(self.spec.action_dims):
            mask = None if legal is None else legal[i]
            own[i, :dim] = True if mask is None else mask[:dim]
        able = own.any(-1) | ~living
        if not able.all():
            raise InputError(f"{self.agents[able.argmin()]} has no legal action.")
        step = Step(
            obs=obs,  # type: ignore[arg-type]
            state=self._state(state).astype(np.float32),  # type: ignore[arg-type]
            legal=own,  # type: ignore[arg-type]
            alive=living,  # type: ignore[arg-type]
            reward=np.zeros(n, np.float32),  # type: ignore[arg-type]
            discount=np.ones(n, np.float32),  # type: ignore[arg-type]
            first=np.full((), self._executed is None),  # type: ignore[arg-type]
            last=np.zeros((), bool),  # type: ignore[arg-type]
        )
        if self._executed is None:
            self._memory, step = self._change.begin(step)
        else:
            self._memory, step = self._change.follow(self._memory, step, self._executed)
        self._key, key = jax.random.split(self._key)
        batch = jax.tree.map(lambda x: x[None], step)
        self._carry, action, _ = self._act(self._learner, self._carry, batch, key, self.greedy)
        chosen, space = np.asarray(action[0]), self.spec.action
        if not isinstance(space, Discrete):
            chosen = np.clip(chosen, space.low, space.high)
        chosen = self._change.execute(self._memory, chosen)
        self._executed = chosen.copy()  # the caller may change what is returned
        return chosen

    def _present(self, alive: Any) -> list[Any] | None:
        """The names of living agents, from names, N booleans or a dict of booleans."""
        if isinstance(alive, Mapping):
            return [name for name, lives in alive.items() if lives]
        if alive is not None and not hasattr(alive, "__iter__"):
            raise InputError(f"alive says of each agent whether it lives, or names those that do, not {alive!r}.")
        if alive is None or not all(isinstance(x, bool | np.bool_) for x in alive):
            return alive
        if len(alive) not in (0, len(self.agents)):
            raise InputError(f"{len(self.agents)} booleans say who is alive, one per agent, not {len(alive)}.")
        return [name for name, lives in zip(self.agents, alive, strict=False) if lives]

    def agent(self, name: str | int | np.integer, *, sample_seed: int = 0) -> AgentPolicy:
        """The policy of one agent, with its own recurrent state.

        Args:
            name: its name or index.
            sample_seed: seed of the samples, which agents that draw alike should not share.

        Raises:
            InputError: the agent is unknown, or its policy reads all agents' observations or the global state.
        """
        index, algorithm = self._alone(name)
        policy = self._learner.policy
        team = Policies(
            self._trained_for,
            algorithm,
            policy,
            greedy=self.greedy,
            seed=sample_seed,
            wrapping=self._wrapping,
            title=self._title,
        )
        team._told = self._told
        return AgentPolicy(team, index)

    def _alone(self, name: str | int | np.integer) -> tuple[int, Algorithm]:
        """The index of an agent that acts alone, and what acts for it."""
        index = self._named(name)
        algorithm = self._algorithm.acting_alone(index)
        if algorithm.acts_on != "own":
            reads = "the global state" if algorithm.acts_on == "state" else "all agents' observations"
            raise InputError(f"{self.agents[index]} does not act alone: its policy reads {reads}; use the whole team.")
        return index, algorithm

    def _mover(self, turn: Any) -> int:
        """The index of the agent on turn; a name may be a number, too."""
        return self.agents.index(str(turn)) if str(turn) in self.agents else self._named(turn)

    def _named(self, name: str | int | np.integer) -> int:
        """The index of an agent, from its name or index."""
        known = {str(i): i for i in range(self.spec.num_agents)}
        named = {agent: i for i, agent in enumerate(self.agents)}
        text = str(name)
        if isinstance(name, str) or text not in known:  # text is also an index from the command line
            known |= named
        elif named.get(text, known[text]) != known[text]:  # the environment names its agents by numbers
            raise InputError(
                f"{name} is the name of one agent and the index of another: give the name as text, {text!r} or "
                f"{self.agents[known[text]]!r}."
            )
        if text not in known:
            raise InputError(f"There is no agent {shortened(name)}; the agents are {', '.join(self.agents)}.")
        return known[text]

    def export(self, path: str | Path, *, format: Format = "onnx", agent: str | int | np.integer | None = None) -> Path:
        """Write the policies to a file that other programs run, with a description beside it (docs/export.md).

        Args:
            path: of the model, with the suffix ``.onnx`` or ``.stablehlo``, in a folder that is created if needed; the
                description is ``.json`` beside it.
            format: ``onnx``, or ``stablehlo``, which JAX reads.
            agent: the policy of this agent alone; None for the whole team in one model.

        Returns:
            The path.

        Raises:
            InputError: the suffix is another, the agent is unknown or does not act alone, an operation of the policy
                cannot be written in this format, or ``onnx`` is not installed.
            WriteError: the disk is full, or the folder cannot be created.
        """
        path = with_home(path)
        check_path(path, format)
        index, algorithm = (None, self._algorithm) if agent is None else self._alone(agent)
        function = policy_function(self._trained_for, algorithm, self._learner.policy, self._wrapping)
        if not self.greedy:
            drawn = [name for name in ("probabilities", "normal_mean", "mean") if name in function.outputs]
            source = {"normal_mean": "normal_mean and normal_std", "mean": "mean and std"}
            hint = f": draw from its {source.get(drawn[0], drawn[0])} ({page('docs/export.md')})" if drawn else ""
            notices.warn(f"These policies act by drawing, and the model's output `action` is the greedy one{hint}.")
        if index is not None:
            function = of_one_agent(function, index)
        return write_policy(path, function, format, self._title, self._how)

    def _state(self, given: Any) -> np.ndarray:
        width = self.spec.state_dim
        if given is None:
            if self._algorithm.acts_on == "state":
                raise InputError(f"This team reads the global state, {width} numbers: give it as state.")
            return np.zeros(width)
        try:
            state = np.asarray(given, np.float64).reshape(-1)
        except (TypeError, ValueError):
            raise InputError(f"The global state is no array of numbers: {shortened(given)}.") from None
        if state.size != width:
            raise InputError(f"The global state has width {width}, not {state.size}.")
        if self._algorithm.acts_on == "state" and not np.isfinite(state.astype(np.float32)).all():
            raise InputError("The global state holds NaN or infinity.")
        return state

    def _rows(self, given: Any, widths: Sequence[int], width: int, what: str) -> np.ndarray:
        if isinstance(given, Mapping):
            missing = [name for name in self.agents if name not in given]
            if missing:
                raise InputError(f"The {what} of {', '.join(missing)} is missing.")
            given = [given[name] for name in self.agents]
        try:
            count: Any = len(given)
        except TypeError:  # also of an array without axes
            count = shortened(given)
        if count != len(self.agents):
            raise InputError(f"{len(self.agents)} rows of {what} are needed, one per agent, not {count}.")
        rows = np.zeros((len(self.agents), width), np.uint8 if what == OBSERVATION and self.spec.packed else np.float64)
        for i, row in enumerate(given):
            row = self._row(i, row, widths, width, what)
            rows[i, : row.size] = row
        return rows

    def _row(self, i: int, given: Any, widths: Sequence[int], width: int, what: str) -> np.ndarray:
        if what == OBSERVATION and self.spec.packed:
            padded = isinstance(given, np.ndarray) and given.dtype == np.uint8 and given.shape == (width,)
            return given if padded else row_of(parts_of(self.spec)[i], given, self.agents[i])
        try:
            row = np.asarray(() if given is None else given, np.float64).reshape(-1)
        except (TypeError, ValueError):
            raise InputError(f"{self.agents[i]}'s {what} is no array of numbers: {shortened(given)}.") from None
        if row.size not in (widths[i], width):
            raise InputError(f"{self.agents[i]}'s {what} has width {widths[i]}, not {row.size}.")
        return mask_bits(row) if what == LEGAL else row
