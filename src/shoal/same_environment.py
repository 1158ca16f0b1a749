"""Whether two runs were trained in the same environment."""

from shoal.configs import SPEC_WORDS, games_to_json, options_from_json
from shoal.environments import registry
from shoal.errors import InputError
from shoal.run import Run


def check_same_environment(one: Run, other: Run) -> None:
    """Check that two runs have the same environment, without building it.

    What :func:`shoal.configs.games_to_json` leaves out may differ.

    Raises:
        InputError: they have not; the message names the first difference.
    """
    named = one.by_name and other.by_name
    games = zip((one, other), games_to_json(one.spec, other.spec), strict=True)
    descriptions = [({"environment": run.environment} if named else {}) | game for run, game in games]
    if named and one.environment == other.environment:
        known = registry.options_of(one.environment)
        defaults = {name: option.default for name, option in known.items() if option.default is not option.empty}
        descriptions = [
            spec | defaults | options_from_json(run.env_options, known)
            for spec, run in zip(descriptions, (one, other), strict=True)
        ]
    for name in descriptions[0] | descriptions[1]:
        here, there = (x.get(name, "missing") for x in descriptions)
        if here != there and name != "metrics":  # the option metrics does not change the game
            raise InputError(
                f"{other.folder} and {one.folder} were trained in different environments: {SPEC_WORDS.get(name, name)} "
                f"{'are' if name in SPEC_WORDS else 'is'} {there!r} in the one and {here!r} in the other."
            )
