"""Scores of teams that do not learn, in the environment of a run: random actions, doing nothing, a script.

A report shows them beside the run's scores and in its curves. The first report that may play episodes measures them and
saves them in the run's folder; later ones read the file. The command line also keeps those of Shoal's own environments
with its compiled programs, for other runs in them. They are not measured where frozen policies play a side, whose
scores depend on those policies.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from shoal.algorithms.scripts.random import drawn
from shoal.errors import GameError, InputError
from shoal.game import HostEnvironment
from shoal.rollouts.drawing import WatchedGame
from shoal.rollouts.host import HostRollout, Parallelism
from shoal.runs.run import Run
from shoal.security import reading
from shoal.storage.folders import MAX_EVALUATION_BYTES
from shoal.storage.zoo import is_policy_folder
from shoal.system.files import dumps, from_json, write_text
from shoal.training import program_cache
from shoal.training.evaluation import Evaluation, evaluate, evaluation_of, learner_of
from shoal.types import Algorithm, AnyEnvironment, Box, Environment, EnvSpec, Learner, PyTree, Scale, Step

REFERENCES_FILE = "references.json"
EPISODES = 64
"""Largest number of episodes of each team."""
STEPS, AGENT_STEPS = 16_384, 262_144
"""Steps of each team on the device, and of all its agents, as far as they are more than :data:`FEWEST` episodes."""
FEWEST = 16
"""Least number of episodes of each team on the device."""
HOST_SECONDS = 5.0
"""Time after which no further episode of a host environment is begun or finished, without the start of its process."""
RANDOM, NOTHING = "random actions", "doing nothing"
_NOTHING = frozenset({"no-op", "noop", "none", "nothing", "stay", "stop", "wait"})
"""Names of actions without an effect."""

Act = Callable[[Step, PRNGKeyArray], Array]
"""(step [E ...], key) -> actions [E N ...]."""


def measured(run: Run) -> Mapping[str, Any]:
    """Play the episodes, and save their evaluations in the run's folder unless it has policies alone or cannot be
    written; empty if the environment cannot be built, fails, or does not finish an episode in time."""
    if run.settings.opponent_options.opponents is not None:
        return {}
    key = run._environment_key()
    entries = _entries(program_cache.kept(key) or b"{}")
    if not entries:
        try:
            found = played(run.env)
        except (InputError, GameError):  # the replays report why it cannot be played
            return {}
        entries = {name: one.as_json() | {"episodes": one.scores.shape[1]} for name, one in found.items()}
    text = dumps({"scores": entries}, "references", indent=1) + "\n"
    if entries and not is_policy_folder(run.folder):
        with contextlib.suppress(InputError):
            write_text(reading.own_file(run.folder, REFERENCES_FILE), text)
    program_cache.keep(key, text.encode())
    return entries


def read_references(folder: Path) -> Mapping[str, Any] | None:
    """The evaluations in the run's folder, by name and unchecked, empty if they are damaged; None if there are none."""
    try:
        return _entries(reading.read_bytes(folder / REFERENCES_FILE, MAX_EVALUATION_BYTES))
    except FileNotFoundError:
        return None
    except OSError:
        return {}


def _entries(data: bytes) -> Mapping[str, Any]:
    try:
        found = from_json(reading.parse_json(data))
    except ValueError:
        return {}
    scores = found.get("scores") if isinstance(found, dict) else None
    known = scores if isinstance(scores, dict) else {}
    return {name: one for name, one in known.items() if isinstance(one, dict)}


def played(env: AnyEnvironment) -> dict[str, Evaluation]:
    """The scores by the team's name; on the host only of random actions."""
    if isinstance(env, HostEnvironment):
        found = _on_host(env, _algorithm([drawn(env.spec)]))
        return {} if found is None else {RANDOM: found}
    teams = {RANDOM: drawn(env.spec)} | _idle(env) | _scripted(env.spec)
    most = min(STEPS, AGENT_STEPS // env.spec.num_agents) // env.spec.horizon
    learner, episodes = learner_of(jnp.arange(len(teams))), min(EPISODES, max(FEWEST, most))
    found = evaluate(env, _algorithm(list(teams.values())), learner, jax.random.key(0), episodes)
    return {name: _of_seed(found, i) for i, name in enumerate(teams)}


def _of_seed(found: Evaluation, i: int) -> Evaluation:
    row, metrics = slice(i, i + 1), {name: x[i : i + 1] for name, x in found.metrics.items()}
    return Evaluation(found.returns[row], found.lengths[row], found.scores[row], metrics)


def _algorithm(teams: Sequence[Act]) -> Algorithm:
    """An algorithm whose policy is the number of a team; with one of them for each seed, all are compiled at once."""

    def act(
        learner: Learner, carry: PyTree, step: Step, key: PRNGKeyArray, greedy: bool
    ) -> tuple[PyTree, Array, dict[str, Array]]:
        del greedy
        return carry, jnp.stack([team(step, key) for team in teams])[learner.policy], {}

    def init(key: PRNGKeyArray) -> Learner:
        del key
        return learner_of(jnp.arange(1))

    return Algorithm(init, lambda count: (), act, lambda learner, data, key: (learner, {}))


def _idle(env: Environment) -> dict[str, Act]:
    """The team that does nothing; empty unless each agent has an action of which the environment's names say so."""
    spec = env.spec
    if isinstance(spec.action, Box) or env.outline is None:
        return {}
    names = env.outline(_some_state(env)).fixed.get("actions") or []
    idle = np.zeros((spec.num_agents, spec.action.n), bool)
    for i, row in enumerate(names[: spec.num_agents]):
        idle[i, : len(row)] = [str(name) in _NOTHING for name in row[: spec.action.n]]
    if not idle.any(1).all():
        return {}

    def act(step: Step, key: PRNGKeyArray) -> Array:
        del key
        return (2 * step.legal + idle).argmax(-1).astype(jnp.int32)  # a legal action in any case

    return {NOTHING: act}


def _some_state(env: Environment) -> PyTree:
    """A state of zeros, without the compilation of a reset: names do not depend on it."""

    def zeros(x: jax.ShapeDtypeStruct) -> Any:
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jnp.broadcast_to(jax.random.key(0), x.shape)
        return np.zeros(x.shape, x.dtype)

    return jax.tree.map(zeros, jax.eval_shape(env.reset, jax.random.key(0))[0])


def _scripted(spec: EnvSpec) -> dict[str, Act]:
    """The script of the environment's own that plays by default, if there is one."""
    from shoal.environments.skirmish import scripts  # slow to import, and not needed where scores are kept

    config = scripts.Config()
    try:
        script = scripts.make(spec, config, Scale(1, 1, 1))
    except InputError:
        return {}
    learner = script.init(jax.random.key(0))
    return {f"script {config.script}": lambda step, key: script.act(learner, (), step, key, True)[1]}


def _on_host(env: HostEnvironment, algorithm: Algorithm) -> Evaluation | None:
    """Episodes of one game in a process of its own; None if none ends in time."""
    spec, learner = env.spec, learner_of(jnp.zeros(1, jnp.int32))
    returns, lengths, metrics, ends = [], [], [], time.monotonic()
    with closing(HostRollout(env, algorithm.initial_carry, Parallelism(1, 1), 1, pool=WatchedGame(env, False))) as game:
        for key in jax.random.split(jax.random.key(0), EPISODES):
            rewards = []
            for _, _, outcome, _ in game.watch(algorithm.act, learner, key[None], False):
                if outcome is None:
                    ends = ends if returns else time.monotonic() + HOST_SECONDS
                    continue
                rewards.append(outcome.reward)
                if time.monotonic() > ends:
                    break
                if outcome.last:
                    returns.append(np.sum(rewards, 0))
                    lengths.append(len(rewards))
                    metrics.append(np.asarray(outcome.metrics, np.float64))
            if time.monotonic() > ends:
                break
    if not returns:
        return None
    return evaluation_of(spec, np.stack(returns)[None], np.array([lengths]), np.stack(metrics)[None])
