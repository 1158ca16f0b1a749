"""Teams with networks of the user's own are trained, resumed to the bit, deployed, and opened with permission only."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import shoal as library
from shoal.errors import InputError
from shoal.security import user_modules
from shoal.storage import step_folders

FLAGS: dict[str, Any] = {
    "num_envs": 2,
    "rollout_length": 4,
    "steps": 16,
    "epochs": 1,
    "minibatches": 1,
    "chunk_length": 4,
    "eval_episodes": 0,
    "tensorboard": False,
    "checkpoint_seconds": 0.0,
    "devices": 1,
    "progress": False,
    "keep": 100,
}
TRAINED = {
    "shared and recurrent": {"network": "own_nets:flax", "critic_network": "own_nets:flax", "recurrent": 4},
    "independent, apart": {"network": "own_nets:linear", "critic_network": "mlp", "sharing": "independent"},
}


@pytest.fixture(autouse=True)
def evil_is_not_imported() -> Iterator[None]:
    yield
    sys.modules.pop("evil", None)


@pytest.mark.parametrize("case", TRAINED)
def test_a_team_trains_resumes_and_acts(case: str, tmp_path: Path) -> None:
    environment = "toys:drift" if "recurrent" in case else "toys:busy"
    whole = library.train("mappo", environment, folder=tmp_path / "whole", **TRAINED[case], **FLAGS)
    rows = [json.loads(line) for line in (whole.folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) == 2 and all(np.isfinite(np.asarray(row["actor_grad_norm"], float)).all() for row in rows)

    half = tmp_path / "half"
    shutil.copytree(whole.folder, half)
    (newest, _, path), *_ = step_folders.committed_steps(half / "checkpoints")
    assert newest == 2
    shutil.rmtree(path)
    shutil.rmtree(half / "policy")
    assert not library.resume(half, trust=True, progress=False).untouched
    one, other = (library.load(folder, trust=True)._learner.policy for folder in (whole.folder, half))
    jax.tree.map(np.testing.assert_array_equal, one, other)

    team = library.load(whole.folder)
    n, dims = team.spec.num_agents, team.spec.obs_dims
    for _ in range(2):
        action = team.act([np.ones(dim) for dim in dims])
        assert len(action) == n and np.isfinite(action).all()


TRAP = "from pathlib import Path\nPath(__file__).with_name('pwned').touch()\ndef net(*given): ...\n"


@pytest.mark.parametrize("option", ["network", "critic_network", "opponents"])
def test_a_strangers_network_is_not_imported(option: str, tmp_path: Path, shoal: Callable, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text(TRAP, encoding="utf-8")
    run = stored(tmp_path / "run", **{option: "evil:net"})
    for call in (library.open_run, library.resume, library.load):
        with pytest.raises(InputError, match=r"its (network|opponents) would import the module 'evil': .*trust=True"):
            call(run)
    for command in ("evaluate RUN", "train --resume RUN", "curves RUN"):
        code, out, err = shoal(*command.replace("RUN", str(run)).split())
        assert (code, out) == (2, "") and "--trust" in err and err.count("\n") == 1
    assert not (tmp_path / "pwned").exists() and "evil" not in sys.modules
    said = r"'evil:net' returned None|the name of its module"
    if option == "critic_network":  # acting needs no critic
        said = "has no trained policy yet"
    with user_modules.found_in(str(tmp_path)), pytest.raises(InputError, match=said):
        library.load(run, trust=True)
    assert (tmp_path / "pwned").exists() == (option == "network")
    sys.modules.pop("evil", None)


@pytest.mark.parametrize(
    "typed", [(), ("mappo", "mpe/simple_spread"), ("ippo", "mpe/simple_spread"), ("mappo+ippo", "mpe/simple_tag")]
)
@pytest.mark.parametrize("option", ["network", "critic_network", "opponents"])
def test_a_strangers_network_in_a_configuration_is_not_imported(
    option: str, typed: tuple[str, ...], tmp_path: Path, shoal: Callable, monkeypatch: Any
) -> None:
    """Naming the algorithm does not say that one trusts what else the file names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text(TRAP, encoding="utf-8")
    run = stored(tmp_path / "run", **{option: "evil:net"})
    code, out, err = shoal("train", *typed, "--config", run, "--folder", tmp_path / "new", "--steps", "8")
    assert not (tmp_path / "pwned").exists() and "evil" not in sys.modules
    assert (code, out) == (2, "") and "'evil'" in err and "--trust" in err and err.count("\n") == 1


def test_a_network_that_is_typed_replaces_a_strangers(tmp_path: Path) -> None:
    from shoal.config.resolve import configured

    run = stored(tmp_path / "run", network="evil:net")
    found = configured("mappo", "mpe/simple_spread", flags={"network": "mlp"}, config=run)
    assert found.values.config.network.network == "mlp"


def stored(folder: Path, **options: Any) -> Path:
    """A folder of a run in a built-in environment, with these options."""
    from shoal import algorithms
    from shoal.environments import registry
    from shoal.options.flags import override
    from shoal.storage import manifest
    from shoal.training.settings import Settings
    from shoal.trust.run_file import Described

    config, spec = algorithms.get("mappo").Config(), registry.make("mpe/simple_spread").spec
    settings = override(Settings(steps=1.0), options)
    described = Described("mappo", "mpe/simple_spread", {}, True, settings, override(config, options), spec)
    folder.mkdir()
    manifest.write_run_json(folder, described.as_json())
    (folder / "metrics.jsonl").write_text('{"step": 1, "return": [1.0]}\n', encoding="utf-8")
    return folder


def test_a_folder_whose_network_was_exchanged_is_a_strangers(tmp_path: Path) -> None:
    from shoal.runs import open as opening

    folder = stored(tmp_path / "run", network="own_nets:flax")
    opening.keep_run_json(library.open_run(folder, trust=True))
    assert library.open_run(folder).config.network.network == "own_nets:flax"
    text = (folder / "run.json").read_text(encoding="utf-8")
    (folder / "run.json").write_text(text.replace("own_nets:flax", "evil:flax"), encoding="utf-8")
    with pytest.raises(InputError, match="its network would import the module 'evil'"):
        library.open_run(folder)


@pytest.mark.parametrize(
    ("algorithm", "flags", "said"),
    [
        ("mat", {"network": "own_nets:flax"}, "MAT is a network over agents, so it cannot have the network"),
        ("mat", {"critic_network": "mlp"}, "MAT is one network for actors and critic: leave out critic_network"),
        ("mat_dec", {"critic_hidden": (8,)}, "MAT-Dec's critic is a transformer: leave out critic_hidden"),
        ("lica", {"critic_network": "mlp"}, "lica's critic mixes the agents' actions.*: leave out critic_network"),
        ("mappo", {"critic_network": "own_nets:flax", "value_norm": "popart"}, "popart supports only Shoal's networks"),
        ("mappo", {"network": "own_nets:nothing"}, "The module 'own_nets' has no attribute 'nothing'"),
        ("qmix", {"network": "own_nets:narrow", "mixer_input": "concat"}, "'own_nets:narrow' gives"),
        ("mappo", {"cell": "lstm"}, "cell 'lstm' needs a recurrent network"),
    ],
)
def test_what_cannot_be_is_refused_before_training(algorithm: str, flags: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        library.train(algorithm, "toys:coordination", folder=tmp_path / "run", steps=8, progress=False, **flags)
    assert not (tmp_path / "run").exists()
