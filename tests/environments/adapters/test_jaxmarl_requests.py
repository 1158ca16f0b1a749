"""What may be asked of ``jaxmarl/…``, what is refused, and that JaxMARL stays silent."""

import contextlib
import importlib
import io
import sys

import pytest

from shoal.environments import registry
from shoal.environments.adapters import jaxmarl as adapter
from shoal.errors import InputError
from shoal.types import Box


@pytest.fixture(scope="module", autouse=True)
def jaxmarl_is_installed() -> None:
    """Asked for here, so that collecting these tests does not import it: it compiles 75 programs."""
    pytest.importorskip("jaxmarl")


@pytest.mark.parametrize(
    ("task", "options", "said"),
    [
        ("smaxx/2s3z", {}, "did you mean 'smax'"),
        ("storm", {}, "no JaxMARL environment 'storm'"),
        ("smax/2s3s", {}, "no SMAX map '2s3s'"),
        ("overcooked/cramped", {}, "did you mean 'cramped_room'"),
        ("hanabi/full", {}, "has no maps"),
        ("ant_4x2/far", {}, "has no maps"),
        ("MPE_simple_spread_v3", {"agents": 3}, "cannot be built with these options"),
        ("MPE_simple_tag_v3", {"damping": 0.5, "num_god": 3}, "no option 'num_god'; did you mean"),
        ("hanabi", {"num_agents": 9}, "cannot be built with these options"),
        ("smax/3m", {"shaping": 1.0}, "has no shaped rewards"),
        ("smax/3m", {"max_steps": 0}, "max_steps must be an integer of at least 1, not 0"),
    ],
)
def test_a_wrong_request_is_one_sentence(task, options, said):
    with pytest.raises(InputError, match=said):
        registry.make(f"jaxmarl/{task}", **options)


def test_mixed_teams_and_ragged_bounds_are_refused():
    from jaxmarl.environments.spaces import Box as Real
    from jaxmarl.environments.spaces import Discrete as Whole

    with pytest.raises(InputError, match="mixes agents with discrete and with continuous"):
        adapter._actions("x", [Whole(3), Real(-1.0, 1.0, (2,))])
    with pytest.raises(InputError, match="bounds actions by several numbers"):
        adapter._actions("x", [Real(-1.0, 1.0, (2,)), Real(-2.0, 1.0, (2,))])
    assert adapter._actions("x", [Real(-1.0, 1.0, (2,)), Real(-1.0, 1.0, (3,))]) == (Box(3, -1.0, 1.0), (2, 3))


def test_missing_libraries_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxmarl", None)
    with pytest.raises(InputError, match=r"needs jaxmarl: pip install 'jaxmarl>="):
        registry.make("jaxmarl/hanabi")


def test_missing_brax_names_its_extra(monkeypatch):
    """JaxMARL does not bring Brax with it."""
    import jaxmarl.registration

    monkeypatch.setattr(jaxmarl.registration, "MABRAX_AVAILABLE", False)
    with pytest.raises(InputError, match=r"ant_4x2 needs brax: pip install 'jaxmarl\[mabrax\]>=0\.2'\."):
        registry.make("jaxmarl/ant_4x2")


@pytest.mark.parametrize("version", ["0.1.0", "0.0.7"])
def test_the_other_smax_of_earlier_versions_is_refused(version, monkeypatch):
    import jaxmarl

    monkeypatch.setattr(jaxmarl, "__version__", version)
    with pytest.raises(InputError, match=f"needs JaxMARL 0.2 or newer, not {version}: pip install"):
        registry.make("jaxmarl/smax/3m")


def test_importing_jaxmarl_prints_nothing_and_keeps_the_streams(capfd):
    import jaxmarl.environments

    heard = io.StringIO()
    with contextlib.redirect_stdout(heard):
        with adapter._quiet():
            importlib.reload(jaxmarl.environments)  # prints, and points sys.stdout to the process's own
        assert sys.stdout is heard
    assert heard.getvalue() == "" and capfd.readouterr() == ("", "")
    assert sys.__stdout__ is not None and sys.__stdout__.fileno() == 1
