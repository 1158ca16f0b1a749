"""Random commands and damaged run folders end in success or in one clear sentence; ``tests/fuzz.py`` runs many more."""

from collections.abc import Iterator

import pytest

import fuzz
from support.trained import cache_environment

SEEDS = range(10_000, 10_012)
SLOW = range(20_000, 20_200)


@pytest.fixture(scope="module")
def fuzzer() -> Iterator[fuzz.Fuzzer]:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in cache_environment().items():
            patched.setenv(name, value)
        with fuzz.fuzzer() as made:
            yield made


@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SLOW)])
def test_random_commands_succeed_or_fail_with_one_sentence(fuzzer: fuzz.Fuzzer, seed: int) -> None:
    result = fuzzer.run(seed)
    assert not result.wrong, f"{result.wrong}: python tests/fuzz.py --only {seed} shows it\n{result}"


def test_the_cases_are_of_every_kind(fuzzer: fuzz.Fuzzer) -> None:
    assert fuzzer.updates >= 1 and {0, 2} <= fuzzer.codes, (fuzzer.updates, fuzzer.codes)
