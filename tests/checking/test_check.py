"""``shoal check``: each fault is found, named and placed, and nothing is found where there is none."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

import faulty
import toys
from shoal.checking import Finding, Report, check, inspection, process
from shoal.errors import InputError
from shoal.game import HostEnvironment
from shoal.spec import Discrete
from shoal.types import Environment
from support.selection import quick


def only(report: Report) -> Finding:
    assert len(report.findings) == 1, str(report)
    return report.findings[0]


def test_a_sound_environment_has_no_findings() -> None:
    report = check("faulty:make")
    assert report.findings == () and report.ok
    facts = dict(report.facts)
    assert facts["agents"] == "2: red, blue" and facts["observation"] == "features: 3, 2"
    assert facts["actions"] == "discrete, choices: 3, 2" and facts["horizon"] == "10 steps"
    assert facts["played"].startswith("5 episodes, 50 steps") and "steps/s" in facts["speed"]
    assert report.verdict.startswith("READY") and report.verdict.endswith("shoal train mappo faulty:make")


@pytest.mark.parametrize(
    ("values", "level", "words"),
    [
        ((0.5, 1.0), None, ""),
        ((1.5, 1.0), "error", "metric won: it is 1.5 at step 7"),
        ((-1.0, 1.0), "error", "1 where an episode was won and 0 where it was not"),
        ((1.0, jnp.inf), "error", "metric kills: it is infinite at step 7"),
        ((1.0, jnp.nan), "warning", "metric kills: it is unknown (NaN) in all 3 episodes that ended; its name may be"),
    ],
)
def test_metrics_are_finite_known_and_shares(
    values: tuple[float, float], level: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.checking.device.vmapped_rate", lambda env: (1.0, 1.0))
    busy = toys.busy(end=0.0, death=0.0)

    def step(*timestep: Any) -> Any:
        state, outcome = busy.step(*timestep)
        return state, outcome._replace(metrics=jnp.array(values))

    spec = dataclasses.replace(busy.spec, metrics=("won", "kills"))
    report = check(Environment(spec, busy.reset, step), episodes=3)
    found = [f for f in report.findings if f.subject.startswith("metric")]
    assert [f.level for f in found] == ([] if level is None else [level])
    assert words in " ".join(str(report).split())
    facts = dict(report.facts)
    assert facts["metrics"] == "won, kills"
    if level is None:
        assert facts["played"].endswith("; win rate 50.0 %, kills 1")


FOUND: dict[str, tuple[str, str, str]] = {
    "nan": (
        "error",
        "observation",
        "feature 0 of blue's observation is NaN at step 4 of episode 1 (seed 0), after the",
    ),
    "infinite reward": ("error", "reward", "red's reward is infinite at step 3 of episode 1"),
    "nan state": ("error", "state", "feature 1 of the state is NaN at step 2"),
    "unwritten": ("error", "state", "feature 0 of the state is not written at step 6 of episode 1"),
    "no legal": ("error", "legal actions", "red has no legal action at step 5 of episode 1"),
    "beyond": ("error", "action space", "blue has 2 actions by spec.action_dims, but action 2 is marked"),
    "padding": ("error", "observation padding", "but feature 2, which is padding, is 7 at step 3 of episode 1"),
    "paid at reset": ("error", "reward", "blue has a reward of 2 after reset (episode 1, seed 0)"),
    "over at reset": ("error", "last", "last is True after reset"),
    "nobody": ("error", "alive", "no agent is alive after reset"),
    "endless": ("error", "horizon", "is not over after spec.horizon = 10 steps"),
    "half": ("warning", "discount", "red's discount is 0.5 at step 3"),
    "goes on": ("error", "last", "every agent's discount is 0 at step 4"),
    "clock ends": (
        "warning",
        "time limit",
        "all 5 episodes ended after exactly 10 steps (its horizon) with discount 0",
    ),
    "cut early": ("note", "time limit", "the earliest after 3, seed 0) with discount 1"),
    "blind": ("warning", "observation", "red's observation is the same at all 55 timesteps"),
    "still": ("warning", "state", "The state is the same at all 55 timesteps"),
    "poor": ("warning", "reward", "all rewards are 0 in 50 random steps"),
    "claims": ("error", "shared reward", "spec.shared_reward is True, so rewards must be equal, but red received"),
    "claims of sides": (
        "error",
        "shared reward",
        "spec.sides requires equal rewards within a side, but red received",
    ),
    "alike": ("note", "shared reward", "all agents that acted received equal rewards at each of 50 steps"),
    "dies": ("note", "agent death", "for 7 timesteps on average. Its discount becomes 0, and it receives"),
    "dies for the team": (
        "note",
        "agent death",
        "blue dies (alive becomes False) in 5 of 5 episodes, first at step 4",
    ),
    "shared by the living": ("note", "agent death", "Its discount becomes 0, and it receives no reward"),
    "dies and is paid": ("warning", "agent death", "becomes 0, but it receives rewards while it is dead"),
    "dies unsaid": ("warning", "agent death", "stays 1 although only other agents receive rewards"),
    "undead": ("warning", "discount", "blue's discount is 0 at step 4 of episode 1"),
    "seedless": ("note", "seed", "5 episodes with different seeds start alike"),
    "chance": (
        "warning",
        "determinism",
        "two copies given the same seed and the same actions differ: the observation of red",
    ),
    "memory": ("warning", "determinism", "an episode depends on earlier episodes"),
    "shares": ("warning", "determinism", "an episode depends on other copies in the same process: repeated with"),
    "tires": ("warning", "determinism", "with the same seed and the same actions, last is first False, True at step 4"),
    "roles": ("error", "interface", "spec.roles must be numbered"),
    "raises": ("error", "exception", "step 3 of episode 1 (seed 0), with the joint action ["),
    "raises at reset": ("error", "exception", "reset (episode 1, seed 0) raised ValueError: which wheel fell off?"),
    "refuses": ("error", "exception", "step 3 of episode 1 (seed 0), with the joint action ["),
    "raises on closing": ("error", "exception", "closing the environment raised ValueError"),
    "unmakeable": ("error", "exception", "making the environment raised ValueError"),
    "wrong shape": ("error", "exception", "could not broadcast input array from shape (5,) into shape (2,)"),
}


ISOLATED = ("nan", "still", "chance", "roles", "raises", "refuses", "raises at reset", "raises on closing")
ISOLATED += ("unmakeable",)
"""Faults that are looked for in a process of its own, as the command does; the others in this one, which is quicker."""
QUICK = ("nan", "raises", "unmakeable")


@pytest.mark.parametrize(
    ("fault", "isolate"),
    quick(
        [*((fault, False) for fault in FOUND), *((fault, True) for fault in ISOLATED)],
        *((fault, fault in QUICK) for fault in FOUND),
    ),
)
def test_each_fault_is_found_and_named(fault: str, isolate: bool) -> None:
    report = check(faulty.make(fault), isolate=isolate)
    finding = only(report)
    level, subject, words = FOUND[fault]
    assert (finding.level, finding.subject) == (level, subject), finding
    assert words in finding.sentence, finding
    assert report.ok == (level != "error")
    assert report.verdict.startswith("READY" if report.ok else "NOT READY")
    played = dict(report.facts).get("played")
    assert played is None or ("in this process" in played) == (not isolate)
    if fault == "raises":  # the traceback is the environment's own
        assert 'raise ValueError("which wheel fell off?")' in finding.detail and "faulty.py" in finding.detail
        assert "shoal/checking" not in finding.detail


def test_an_agent_that_left_but_is_still_observed_is_reported() -> None:
    levels = {f.level: f.sentence for f in check(faulty.make("dies and shows")).findings}
    assert set(levels) == {"note", "warning"} and "blue's observation is not 0 while it is dead" in levels["warning"]


LOST: dict[str, str] = {
    "segfault": "step 3 of episode 1 (seed 0), with the joint action [0, 1], ended its process, with signal 11 (SIG",
    "exit": "step 3 of episode 1 (seed 0), with the joint action [0, 1], ended its process, with exit code 3",
    "sys.exit": "step 3 of episode 1 (seed 0), with the joint action [0, 1], raised SystemExit: enough",
    "exit at reset": "reset (episode 1, seed 0) ended its process, with exit code 4",
    "hang": "step 3 of episode 1 (seed 0), with the joint action [0, 1], did not return within 2 s",
    "child keeps the pipe": "with the joint action [0, 1], ended its process, with exit code 5",
    "exit on making": "making the environment ended its process, with exit code 6",
    "exit on closing": "closing the environment ended its process, with exit code 7",
}


@pytest.mark.parametrize("fault", LOST)
def test_a_crash_an_exit_and_a_hang_are_reported(fault: str) -> None:
    report = check(faulty.make(fault), timeout=2.0)
    finding = only(report)
    assert (finding.level, finding.subject) == ("error", "exception") and LOST[fault] in finding.sentence, finding
    assert report.verdict.startswith("NOT READY")
    if fault in ("segfault", "hang", "sys.exit"):
        assert "faulty.py" in finding.detail and "shoal/checking" not in finding.detail
        last = [line for line in finding.detail.splitlines() if line.startswith("  File")][-1]
        assert last.endswith("in <lambda>"), finding.detail


def test_a_crash_in_a_copy_is_reported() -> None:
    """The first copy is sound; the process ends as the second is made."""
    finding = only(check(HostEnvironment(faulty.SPEC, faulty.second_exits)))
    assert "playing the first episode's seed and actions a second time ended its process" in finding.sentence


def test_the_place_of_a_crash_is_in_the_stack_of_python() -> None:
    """From Python 3.14 on the stack of C follows it."""
    python = 'Current thread 0x1 [x] (most recent call first):\n  File "game.py", line 7 in step\n'
    python += '  File "main.py", line 2 in go\n'
    compiled = 'Current thread\'s C stack trace (most recent call first):\n  Binary file "python" [0x1]\n'
    found = '  File "main.py", line 2, in go\n  File "game.py", line 7, in step'
    assert process._stack(python) == process._stack(python + compiled) == found


def test_what_was_found_before_a_crash_is_kept() -> None:
    subjects = {f.subject for f in check(faulty.make("nan, then exit")).findings}
    assert subjects == {"observation", "exception"}


def test_a_host_callback_of_a_device_environment_that_exits() -> None:
    sentences = [f.sentence for f in check("faulty:calls_back", episodes=1).findings if f.level == "error"]
    assert len(sentences) == 1 and "step 3 of episode 1" in sentences[0] and "with exit code 8" in sentences[0]


def test_output_of_the_environment_is_not_in_the_report(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is on stderr, also if Python buffers what its process prints."""
    from shoal import cli

    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    assert cli.main(["check", "faulty:make", "--env.fault", "prints", "--episodes", "1"]) == 0
    said = capfd.readouterr()
    assert "noise" not in said.out and "noise" in said.err


def test_an_environment_that_closes_slowly_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "SLOW", 0.01)
    finding = only(check(faulty.make("slow to close")))
    assert (finding.level, finding.subject) == ("warning", "close")


def test_an_environment_that_cannot_be_pickled_is_reported() -> None:
    report = check(HostEnvironment(faulty.SPEC, lambda: faulty.Game()))
    assert "in this process" in dict(report.facts)["played"]
    finding = only(report)
    assert finding.level == "error" and "cannot be sent to worker processes" in finding.sentence


def test_a_game_that_describes_itself_differently() -> None:
    finding = only(check(HostEnvironment(faulty.SPEC, functools.partial(faulty.Game, "claims"))))
    assert finding.level == "error" and "that of the environment: shared_reward" in finding.sentence


@pytest.mark.parametrize(("steps", "length"), [(20, 16), (14, 128)])  # two whole episodes; one and a part
def test_rollouts_are_sized_by_episodes_that_all_ended(
    steps: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(faulty.SPECS, "far limit", {"horizon": 10_000})
    sizes = dict(check(faulty.make("far limit"), episodes=2, steps=steps, isolate=False).facts)["sizes"]
    assert sizes.startswith(f"--num-envs 8 --rollout-length {length} "), sizes


def test_too_few_steps_for_an_episode_are_reported() -> None:
    assert only(check("faulty:make", steps=4)).sentence.startswith("no episode ended within the 4 steps played")


@pytest.mark.parametrize("wrong", [{"episodes": 0}, {"steps": 0}, {"seed": -1}, {"timeout": 0.0}, {"timeout": 1e30}])
def test_arguments_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        check("faulty:make", **wrong)  # type: ignore[arg-type]


# On the device


def test_a_device_environment_with_dead_agents_and_moving_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.checking.device.vmapped_rate", lambda env: (1.0, 1.0))
    report = check(toys.busy(), episodes=8)
    assert report.ok and {f.subject for f in report.findings} <= {"agent death", "time limit", "metric luck"}
    assert report.train == 'shoal.train("mappo", environment)'


def test_a_device_environment_that_turns_nan() -> None:
    report = check(toys.poison(5), steps=20)
    assert "steps/s, 256 at once compiled" in dict(report.facts)[""]
    sentences = [f.sentence for f in report.findings if f.level == "error"]
    assert len(sentences) == 1 and "agent_0's reward is NaN at step 6 of episode 1" in sentences[0]


def test_a_device_environment_of_the_wrong_type() -> None:
    spec = toys.spec_of("toys/whole", (1,), Discrete(2), 1)

    def reset(key: Any) -> Any:
        step = toys.step_of(spec, jnp.ones(1), 0.0, False, False, True)
        return 0.0, step._replace(obs=step.obs.astype(jnp.int32))

    finding = only(check(Environment(spec, reset, lambda key, state, action: reset(key))))
    assert finding.level == "error" and "reset gives obs of type int32, but it must be float" in finding.sentence


# On the command line


def test_the_command_prints_findings(shoal: Callable) -> None:
    code, out, _ = shoal("check", "faulty:make", "--episodes", "2", "--seed", "3")
    assert code == 0 and "2 episodes, 20 steps" in out
    assert out.splitlines()[-1].endswith("Next: shoal train mappo faulty:make")
    code, out, _ = shoal("check", "faulty:make", "--env.fault", "no legal", "--no-isolate")
    assert code == 1 and "ERROR    legal actions: red has no legal action at step 5" in out
    assert out.splitlines()[-1].endswith("shoal check faulty:make --env.fault 'no legal'")
    code, out, _ = shoal("check", "faulty:make", "--env.fault", "poor", "--no-isolate")
    assert code == 0 and "WARNING  reward" in out


def test_the_command_refuses(shoal: Callable) -> None:
    for words, said in (
        (["check"], "needs an environment or an algorithm first"),
        (["check", "a", "b"], "an extra word"),
        (["check", "mpe/simple_spred"], "did you mean 'mpe/simple_spread'?"),
        (["check", "faulty:make", "--episodes", "0"], "episodes must be at least 1"),
        (["check", "faulty:make", "--env.falt", "1"], "did you mean --env.fault?"),
        (["check", "faulty:flexible", "--env.a.b", "1"], "cannot name an option"),
        (["check", "faulty:flexible", "--env.size"], "--env.size needs a value: VALUE"),
        (["check", "faulty:listed", "--env.sizes", "3"], "--env.sizes would be of the type list[int] | None, which no"),
    ):
        code, out, err = shoal(*words)
        assert (code, out) == (2, "") and said in err and err.count("\n") == 1


def test_help_of_the_command(shoal: Callable) -> None:
    code, out, _ = shoal("check", "faulty:make", "--help")
    assert code == 0 and "--env.fault TEXT" in out and "which; nothing for none." in out and "--episodes INT" in out


def test_options_that_only_the_environment_knows(shoal: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--env.size=[1, 2]", "--env.max-cycles", "30", "--env.mode", "easy", "--env.rate", "0.5"]
    words += ["--env.dynamic", "True"]
    expected = {"size": [1, 2], "max_cycles": 30, "mode": "easy", "rate": 0.5, "dynamic": True}
    faulty.calls.clear()
    code, out, _ = shoal("check", "faulty:flexible", *words, "--no-isolate")  # where the calls can be seen
    assert code == 0 and faulty.calls == [expected]
    assert "--env.max-cycles 30" in out.splitlines()[-1]
    asked: dict[str, Any] = {}

    def train(found: Any, *_: Any, **__: Any) -> Any:
        asked.update(found.env)
        raise InputError("enough")

    monkeypatch.setattr("shoal.runs.api.train_configured", train)
    code, _, err = shoal("train", "mappo", "faulty:flexible", *words, "--steps", "8")
    assert (code, err) == (2, "shoal: enough.\n") and asked == expected


def test_families_are_listed_without_running_them(shoal: Callable) -> None:
    code, out, _ = shoal("list", "environments")
    assert code == 0 and "\nmamujoco/…  " in out and "\npackage.module:factory" in out
