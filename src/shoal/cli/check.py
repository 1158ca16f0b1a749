"""Test an environment with random actions, or an algorithm on random data, and report errors."""

import itertools
from collections.abc import Sequence

import shoal
from shoal import algorithms
from shoal.cli.flags import Command, Flag, Values, of_environment
from shoal.environments.names import check_name
from shoal.errors import InputError, shortened

_FLAGS = [
    Flag("episodes", int, 5, "Number of episodes, each with its own seed."),
    Flag("steps", int, 5000, "Maximum total number of steps."),
    Flag("seed", int, 0, "Seed of the first episode and of the actions."),
    Flag("timeout", float, 60.0, "Seconds after which a reset or a step counts as hanging."),
    Flag("isolate", bool, True, "Play in a separate process, so that a crash or a hang is detected and reported."),
]


def check(args: Sequence[str]) -> tuple[Command, list[str]]:
    """``shoal check ENVIRONMENT [flags]`` or ``shoal check ALGORITHM``; the exit code is 1 if there is an error.

    Raises:
        InputError: the environment or algorithm is missing or unknown.
    """
    words = list(itertools.takewhile(lambda word: not word.startswith("-"), args))
    rest = list(args[len(words) :])
    if len(words) > 1:
        raise InputError(f"shoal check takes one environment or algorithm; {shortened(words[1])} is an extra word.")
    if not words and not {"-h", "--help"} & set(rest):
        raise InputError(
            "shoal check needs an environment or an algorithm first, for example: shoal check mpe/simple_spread."
        )
    if words and algorithms.alone(words[0]):
        return _check_algorithm(words[0]), rest
    if words:
        try:
            check_name(words[0])
        except InputError as error:
            near = algorithms.near_module(words[0])
            meant = f"; did you mean your module {near!r}?" if near else "."
            raise InputError(
                f"{error} There is no algorithm, and no module in the working directory, of this name either{meant}"
            ) from None
    groups = {"check": _FLAGS}
    if words:
        groups["env"] = of_environment(words[0], {}, rest)

    def do(values: Values) -> int:
        chosen = {flag.name: flag.default for flag in _FLAGS} | values["check"]
        report = shoal.check(words[0], env=values["env"], **chosen)
        print(report)
        return 0 if report.ok else 1

    about = (
        "Play random legal actions in an environment and report its speed and its errors: values that are "
        "not finite, masks without a legal action, agents that disappear, time limits reported as terminations, "
        "randomness that does not depend on the seed. The exit code is 1 if there is an error. To test an algorithm "
        "instead, give its name, for example my_idea for your file my_idea.py (docs/your-algorithm.md)."
    )
    return Command(" ".join(["shoal check", *words]), about, groups, do), rest


def _check_algorithm(name: str) -> Command:
    def do(values: Values) -> int:
        report = shoal.check(name)
        print(report)
        return 0 if report.ok else 1

    about = (
        "Let an algorithm act and update on random data and report violations of the rules for algorithms: masks, "
        "dead agents, padding, seeds in parallel, exact resumption, finite numbers, acting without the critic. It "
        "takes about a minute on two cores. The exit code is 1 if there is an error."
    )
    return Command(f"shoal check {name}", about, {}, do)
