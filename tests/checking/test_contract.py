"""``shoal check`` of an algorithm: a sound one passes, each flaw is found and named, and all of Shoal's pass."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shoal as library
from shoal import algorithms
from shoal.checking import contract
from shoal.checking.findings import Finding
from shoal.checking.specimen import BOX, DISCRETE, Specimen, random_trajectory, specimen, tiny
from support import flawed
from support.selection import quick

ACTING = {
    "float actions": (
        contract.action_form,
        "actions",
        "float32[4, 3]; for a team with discrete actions it must",
    ),
    "one action too few": (contract.action_form, "actions", "int32[4, 2]"),
    "an extra of all environments": (contract.extras_form, "extras", "the extra 'mean' with the shape (3,): the first"),
    "extras in a tuple": (contract.extras_form, "extras", "a flat dict from names to arrays [E ...]"),
    "sampled masks": (contract.action_masks, "masks", "of the sampled actions of living agents are illegal"),
    "greedy masks": (contract.action_masks, "masks", "of the greedy actions of living agents are illegal"),
    "multiplies": (contract.dead_agents_in_act, "dead agents", "change if dead agents observe NaN"),
    "acts by statistics": (contract.without_critic, "deployment", "raises TypeError when the learner has only"),
    "acts by what there is": (contract.without_critic, "deployment", "actions change when the learner has only"),
}
UPDATING = {
    "another structure": (contract.learner_types, "types", "a learner with a different structure"),
    "another type": (contract.learner_types, "types", "changes updates from int32[] to float32[]"),
    "does not count": (contract.learner_types, "types", "updates is not 1 after the first update"),
    "metrics in a list": (contract.update_metrics, "metrics", "a flat dict from names to scalars"),
    "a metric of all agents": (contract.update_metrics, "metrics", "'reward' has the shape (3,)"),
    "a metric of NaN": (contract.update_metrics, "finite", "'share' is nan after update 1"),
    "explodes": (contract.update_metrics, "finite", "['theta'] is NaN or infinite after update 2"),
    "learns nothing": (contract.update_metrics, "learning", "do not change Learner.policy"),
    "no weights": (contract.dead_agents_in_update, "dead agents", "depends on the actions of dead agents"),
    "extras of the dead": (contract.dead_agents_in_update, "dead agents", "depends on the extras of dead agents"),
    "divides by none": (contract.no_agents_alive, "dead agents", "every agent is dead gives NaN"),
    "host noise": (contract.repeated_update, "determinism", "differs when the same update is made twice"),
    "random make": (contract.vmapped_seeds, "seeds", "differs when two seeds are updated together"),
    "alone on each device": (contract.equal_devices, "devices", "policy['theta'] differs after an update on two"),
    "branches": (contract.traced_numbers, "traced numbers", "rate cannot be a traced array"),
}
INSPECTING = {
    "tells of one environment": (contract.inspection, "inspection", "with the shape (3, 4), but it must be (4, 3, 4)."),
    "tells by statistics": (contract.inspection, "inspection", "inspect raised TypeError"),
    "tells illegal actions": (contract.inspection, "inspection", "must be 0 for illegal actions"),
    "tells the opposite": (contract.inspection, "inspection", "does not have the largest of the probabilities"),
    "tells a sharper policy": (contract.inspection, "inspection", "are not those by which act draws actions"),
}
RECURRENT = {
    "never resets": (
        contract.recurrent_state,
        "recurrent state",
        "depend on the recurrent state of the previous episode",
    ),
    "update keeps the state": (contract.recurrent_state, "recurrent state", "the update must reset it"),
}


def found(flaw: str, rule: Callable[..., Any], **flags: Any) -> list[Finding]:
    module = flawed.module(flaw)
    return list(rule(specimen(module, tiny(module.Config(), **flags), DISCRETE)))


@pytest.mark.parametrize("flaw", [*ACTING, *UPDATING, *INSPECTING])
def test_each_flaw_is_found(flaw: str) -> None:
    rule, subject, said = (ACTING | UPDATING | INSPECTING)[flaw]
    (finding,) = found(flaw, rule)
    assert finding.subject == subject and said in finding.sentence and finding.sentence.endswith(".")
    assert finding.level == ("warning" if subject in ("learning", "traced numbers") else "error")


@pytest.mark.parametrize("flaw", RECURRENT)
def test_each_flaw_of_a_recurrent_net_is_found(flaw: str) -> None:
    rule, subject, said = RECURRENT[flaw]
    (finding,) = found(flaw, rule, recurrent=4)
    assert (finding.level, finding.subject) == ("error", subject) and said in finding.sentence


def test_a_sound_algorithm_has_no_finding() -> None:
    findings, facts = contract.inspected(flawed.module())
    assert findings == []
    assert dict(facts)["tested"] == "a team with discrete actions, a recurrent net"
    assert "continuous" not in dict(facts)["supports"]


def test_a_learner_that_a_checkpoint_changes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module = flawed.module()
    one = specimen(module, tiny(module.Config()), DISCRETE)
    assert list(contract.restored_checkpoint(one)) == []
    restore = contract.Checkpoints.restore

    def forgetful(self: Any, template: Any) -> Any:
        learner, *rest = restore(self, template)
        return replace_policy(learner), *rest

    def replace_policy(learner: Any) -> Any:
        return learner._replace(policy={"theta": jnp.asarray(learner.policy["theta"]) + 1.0})

    monkeypatch.setattr(contract.Checkpoints, "restore", forgetful)
    (finding,) = contract.restored_checkpoint(one)
    assert finding.subject == "resume" and "saved and restored" in finding.sentence
    monkeypatch.setattr(contract.Checkpoints, "save", lambda *_: 1 / 0)
    (finding,) = contract.restored_checkpoint(one)
    assert finding.subject == "resume" and "cannot be saved and restored (ZeroDivisionError" in finding.sentence


@pytest.mark.parametrize("rule", [contract.update_metrics, contract.restored_checkpoint])
def test_keys_in_a_learner_are_no_flaw(rule: Callable[..., Any]) -> None:
    assert found("keeps keys", rule) == []


def test_inspected_means_and_utilities_that_contradict_greedy_actions_are_found() -> None:
    step = jax.tree.map(lambda x: x[0], random_trajectory(BOX, 1, ()).step)
    legal = np.asarray(step.legal)
    mean, off = np.where(legal, 0.5, np.nan), np.where(legal, 0.6, np.nan)
    action = np.where(legal, 0.5, 0.0)
    assert contract._contradiction(BOX, step, action, {"mean": mean}) == ""
    assert "the mean that inspect returns differs" in contract._contradiction(BOX, step, action, {"mean": off})
    step = jax.tree.map(lambda x: x[0], random_trajectory(DISCRETE, 1, ()).step)
    utilities = np.where(step.legal, np.arange(4.0), np.nan)
    best = np.nanargmax(utilities, -1)
    assert contract._contradiction(DISCRETE, step, best, {"utilities": utilities}) == ""
    said = contract._contradiction(DISCRETE, step, np.zeros_like(best), {"utilities": utilities, "own": np.zeros(2)})
    assert "does not have the largest of the utilities" in said


def test_padded_dimensions_of_continuous_actions_are_found() -> None:
    traj = random_trajectory(BOX, 5, ())
    sound = traj._replace(action=jnp.where(traj.step.legal, 0.5, 0.0))
    wide = traj._replace(action=jnp.full(traj.step.legal.shape, 0.5))
    nothing: Any = None
    one = Specimen(nothing, nothing, BOX, 5, nothing, nothing, nothing, nothing, sound, sound)
    assert list(contract.action_masks(one)) == []
    (finding,) = contract.action_masks(one._replace(greedy=wide))
    assert finding.subject == "masks" and "greedy actions are not 0 in dimensions" in finding.sentence


@pytest.mark.parametrize(
    ("flaw", "subject", "level", "said"),
    [
        ("raises", "refusals", "error", "make raised ValueError: no for a team with continuous actions: support it"),
        ("two lines", "refusals", "warning", "is not one sentence: "),
        ("a dict", "Config", "error", "table of type dict | None cannot be a flag"),
        ("wrong defaults", "Config", "error", "cannot be saved in run.json (pair"),
    ],
)
def test_faults_of_config_and_make_are_found(flaw: str, subject: str, level: str, said: str) -> None:
    module = flawed.module(flaw)
    findings = [*contract.saved_config(module), *contract.refusals(module)[0]]
    (finding,) = findings
    assert (finding.subject, finding.level) == (subject, level) and said in finding.sentence


def test_why_make_refuses_every_team_is_told() -> None:
    def make(spec: Any, config: Any, scale: Any) -> Any:
        raise library.InputError(f"batch 64 does not divide {scale.num_envs} environments.")

    module: Any = SimpleNamespace(Config=flawed.Config, make=make)
    (finding,) = contract.refusals(module)[0]
    assert finding.sentence.endswith("and of one agent: batch 64 does not divide 4 environments.")


def test_an_exception_is_a_finding_with_its_own_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flawed, "WIDTH", "three")
    findings, _ = contract.inspected(flawed.module())
    assert [finding.subject for finding in findings] == ["exception"]  # of the recurrent net
    assert "raised" in findings[0].sentence and "flawed.py" in findings[0].detail and "jax" not in findings[0].detail


OWN = """
from support import flawed
from support.flawed import Config
make = flawed.module({flaw!r}).make
"""


def test_the_command(shoal: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shoal.checking.contract.FIRST_TEAM_RULES", (contract.action_masks,))
    monkeypatch.setattr("shoal.checking.contract.RECURRENT_RULES", ())
    (tmp_path / "sound_idea.py").write_text(OWN.format(flaw=""), encoding="utf-8")
    (tmp_path / "bad_idea.py").write_text(OWN.format(flaw="greedy masks"), encoding="utf-8")
    code, out, err = shoal("check", "sound_idea")
    assert (code, err) == (0, "") and "READY: these checks found no problem in sound_idea" in out
    assert "shoal train sound_idea mpe/simple_spread" in out and "with greedy and" in out
    code, out, _ = shoal("check", "bad_idea")
    assert code == 1 and "ERROR    masks:" in out and "NOT READY: bad_idea has 1 error" in out
    assert "learned" not in out and not library.check("bad_idea").ok
    code, out, _ = shoal("check", "bad_idea", "--rate", "0.25")
    assert out.splitlines()[-1].endswith("check again: shoal check bad_idea --rate 0.25")
    code, out, _ = shoal("check", "bad_idea", "--help")
    assert code == 0 and "--rate NUMBER" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no_idea",), "There is no algorithm, and no module in the working directory, of this name either."),
        (("scripted",), "requires the name of one trainable algorithm, not 'scripted'"),
        (("mappo", "qmix"), "takes one environment or algorithm; 'qmix' is an extra word"),
        (("mappo", "--gama", "0.9"), "did you mean --gamma?"),
        (("mappo", "--gamma", "2"), "gamma must be at least 0 and at most 1, not 2"),
    ],
)
def test_invalid_input_is_refused(words: tuple[str, ...], said: str, shoal: Callable) -> None:
    code, out, err = shoal("check", *words)
    assert (code, out) == (2, "") and said in err and err.count("\n") == 1


def test_options_reach_every_team_and_take_precedence_over_small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def specimen(module: Any, config: Any, *_: Any) -> Any:
        made.append(config)
        raise library.InputError("Enough.")

    monkeypatch.setattr(contract, "specimen", specimen)
    monkeypatch.setattr(contract, "made", lambda module, config, spec: made.append(config))
    flags = {"learning_rate": 0.25, "entropy_coef": 0.5}
    assert not contract.check_algorithm("mappo", flags, train=False).ok
    assert len(made) > 6 and {(c.learning_rate, c.entropy_coef) for c in made} == {(0.25, 0.5)}
    with pytest.raises(library.InputError, match="The check of an environment takes no 'gamma'"):
        library.check("matrix/climbing", gamma=0.9)
    with pytest.raises(library.InputError, match="did you mean 'gamma'"):
        library.check("mappo", gama=0.9)


@pytest.mark.parametrize("name", quick([*algorithms.NAMES, "sarsa", "self_imitation"]))
def test_every_algorithm_of_shoal_passes(name: str) -> None:
    """But for traced numbers, which the tests' own check of types refuses in a Config; see ``test_traced.py``."""
    findings, facts = contract.inspected(algorithms.get(name))
    findings = [finding for finding in findings if finding.subject != "traced numbers"]
    assert findings == [], [finding.sentence for finding in findings]
    assert "tested" in dict(facts)
