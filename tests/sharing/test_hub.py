"""Policies go to a repository and come back; a repository is somebody else's. A local folder stands in for the Hub."""

import inspect
import json
import shutil
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import shoal as library
from shoal.errors import InputError
from shoal.sharing.hub import pull
from shoal.storage import zoo
from support.trained import untrained

hub = pytest.importorskip("huggingface_hub")
REAL = hub.HfApi
Command = Callable[..., tuple[int, str, str]]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class LocalHub:
    """The methods of ``HfApi`` that are called, with a folder for each repository; arguments are those of the real
    ones."""

    root: Path
    private: set[str]
    """The repositories that not everybody can read."""

    def __init__(self, **given: Any):
        _ = inspect.signature(REAL).bind(**given)

    def _folder(self, method: str, *given: Any, **named: Any) -> Path:
        bound = inspect.signature(getattr(REAL, method)).bind(self, *given, **named)
        return self.root / bound.arguments["repo_id"]

    def create_repo(self, *given: Any, **named: Any) -> str:
        folder = self._folder("create_repo", *given, **named)
        if named["private"] and not folder.exists():
            self.private.add(given[0])
        folder.mkdir(parents=True, exist_ok=True)
        return f"https://hub.example/{folder.parent.name}/{folder.name}"

    def upload_folder(self, *given: Any, **named: Any) -> None:
        folder = self._folder("upload_folder", *given, **named)
        for path in [path for path in folder.rglob("*") if path.is_file()]:
            if any(fnmatch(path.relative_to(folder).as_posix(), each) for each in named["delete_patterns"]):
                path.unlink()
        shutil.copytree(named["folder_path"], folder, dirs_exist_ok=True)

    def repo_info(self, *given: Any, **named: Any) -> SimpleNamespace:
        folder = self._folder("repo_info", *given, **named)
        if not folder.is_dir():
            raise hub.errors.HFValidationError("404: there is no such repository")
        files = [path for path in folder.rglob("*") if path.is_file()]
        names = [path.relative_to(folder).as_posix() for path in files]
        told = named.get("files_metadata")  # without it the Hub tells no sizes
        sizes = [path.stat().st_size if told else None for path in files]
        siblings = [SimpleNamespace(rfilename=n, size=size) for n, size in zip(names, sizes, strict=True)]
        return SimpleNamespace(sha=COMMIT, siblings=siblings, private=given[0] in self.private)

    def hf_hub_download(self, *given: Any, **named: Any) -> str:
        assert named["revision"] == COMMIT
        source, target = self._folder("hf_hub_download", *given, **named) / given[1], named["local_dir"] / given[1]
        (named["local_dir"] / ".cache" / "huggingface").mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        return str(target)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that holds a policy of the zoo, without a network; the working directory is an empty folder."""
    monkeypatch.setattr(hub, "HfApi", LocalHub)
    monkeypatch.setattr(LocalHub, "root", tmp_path / "hub", raising=False)
    monkeypatch.setattr(LocalHub, "private", set(), raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return Path(shutil.copytree(zoo.located("zoo/spread"), tmp_path / "hub" / "ann" / "spread"))


def _train(folder: str = "run", **flags: Any) -> None:
    """A finished run."""
    tiny = {"steps": 8, "num_envs": 2, "rollout_length": 4, "hidden": (4,), "eval_episodes": 0, "devices": 1}
    with untrained():
        library.train("ippo", "matrix/climbing", folder=folder, tensorboard=False, progress=False, **tiny, **flags)


def test_a_run_is_pushed_and_pulled(repository: Path, shoal: Command) -> None:
    _train()
    stale = repository.parent / "climbers" / "policy" / "99" / "index.json"
    stale.parent.mkdir(parents=True)
    stale.write_text("of an earlier push")
    code, said, _ = shoal("push", "run", "ann/climbers", "--licence", "MIT", "--episodes", "4")
    assert (code, said) == (0, "https://hub.example/ann/climbers\n") and not stale.exists()
    page = (repository.parent / "climbers" / "README.md").read_text("utf-8")
    assert page.startswith("---\nlibrary_name: shoal\nlicense: mit\n") and "shoal pull ann/climbers climbers" in page
    code, said, _ = shoal("pull", "ann/climbers", "mine")
    assert code == 0 and said.startswith("mine\n  ippo in matrix/climbing, 8 steps, ")
    assert sorted(path.name for path in Path("mine").iterdir()) == [
        "card.json", "evaluation.json", "policy", "run.json"
    ]  # fmt: skip
    assert zoo.check_files(Path("mine")).licence == "MIT"
    assert library.open_run("mine").evaluate(4).mean == library.open_run("run").evaluate(4).mean


def test_what_is_pushed_names_no_folder_of_the_user(repository: Path, shoal: Command, tmp_path: Path) -> None:
    """Paths in the configuration end up in several files; policies still belong to it."""
    _train("other")
    _train(init_from="other", opponents=str(tmp_path / "here" / "other"), side=("0",))
    assert shoal("push", "run", "ann/new", "--episodes", "2")[0] == 0
    files = {path: path.read_bytes() for path in (repository.parent / "new").rglob("*") if path.is_file()}
    assert any(b'"init_from": "other"' in data for data in files.values())
    for path, data in files.items():
        assert str(tmp_path).encode() not in data, path
    shutil.move("other", "gone")
    assert shoal("pull", "ann/new", "mine")[0] == 0
    assert library.open_run("mine").evaluate(4).mean == library.open_run("run").evaluate(4).mean


def test_private_policies_do_not_become_public(repository: Path, shoal: Command) -> None:
    """The Hub leaves the visibility of a repository that exists as it is."""
    _train()
    before = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    code, out, said = shoal("push", "run", "ann/spread", "--private", "--episodes", "2")
    assert (code, out) == (2, "") and said.startswith("shoal: ann/spread exists and is public: ")
    assert before == {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    for _ in range(2):
        assert shoal("push", "run", "ann/new", "--private", "--episodes", "2")[0] == 0
    assert LocalHub.private == {"ann/new"}


def test_a_folder_that_exists_and_a_wrong_name_are_refused(repository: Path, shoal: Command) -> None:
    Path("mine").mkdir()
    assert shoal("pull", "ann/spread", "mine")[2].startswith("shoal: mine exists already")
    assert shoal("pull", "spread", "new")[2] == "shoal: The name of a repository is USER/NAME, not 'spread'.\n"
    said = shoal("pull", "ann/nothing", "new")[2]
    assert said.startswith("shoal: ann/nothing cannot be downloaded: ") and "404" in said and said.count("\n") == 1
    assert not Path("new").exists()


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "policy/../../x", "x.py", "policy\\x", "policy", "run.json/x"])
def test_a_card_names_no_file_elsewhere(name: str, repository: Path) -> None:
    card = json.loads((repository / zoo.CARD_FILE).read_text("utf-8"))
    card["files"][name] = "0" * 64
    (repository / zoo.CARD_FILE).write_text(json.dumps(card), "utf-8")
    with pytest.raises(InputError, match="which is no file of a policy folder"):
        pull("ann/spread", "new")
    assert not Path("new").exists()


def test_policies_that_are_too_large_are_not_downloaded(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum((repository / name).stat().st_size for name in zoo.read_card(repository).files)
    monkeypatch.setattr("shoal.sharing.hub.MOST_BYTES", size - 1)
    fetched: list[str] = []
    fetch = LocalHub.hf_hub_download
    monkeypatch.setattr(LocalHub, "hf_hub_download", lambda *x, **y: [fetched.append(x[2]), fetch(*x, **y)])
    with pytest.raises(InputError, match=r"The policies in ann/spread have 0\.\d GB, more than"):
        pull("ann/spread", "new")
    assert fetched == ["card.json"] and not Path("new").exists()
    monkeypatch.setattr("shoal.sharing.hub.MOST_BYTES", size)
    assert pull("ann/spread", "new").is_dir()


FULL = "No space left on device"


@pytest.mark.parametrize("error", [OSError(28, FULL), shutil.Error([("a", "b", FULL)]), KeyboardInterrupt()], ids=repr)
def test_a_download_that_is_not_kept_leaves_no_folder(
    error: BaseException, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(source: Path, target: Path, **_: Any) -> None:
        target.mkdir(exist_ok=True)
        (target / "run.json").touch()
        raise error

    with monkeypatch.context() as patch, pytest.raises((InputError, KeyboardInterrupt)) as caught:
        patch.setattr(shutil, "copytree", stopped)
        pull("ann/spread", "deep/new")
    if isinstance(error, OSError):
        assert str(caught.value) == f"{Path('deep/new')} cannot be written: {FULL}."
    assert not Path("deep/new").exists() and pull("ann/spread", "deep/new").is_dir()


def test_a_damaged_download_is_refused(repository: Path) -> None:
    (repository / "run.json").write_text("{}")
    with pytest.raises(InputError, match=r"run\.json differs"):
        pull("ann/spread", "new")
    assert not Path("new").exists()


def test_what_a_pulled_folder_names_is_not_imported(repository: Path, shoal: Command) -> None:
    """The digests on a card are its author's own, and give no trust."""
    run = json.loads((repository / "run.json").read_text("utf-8"))
    run["config"]["environment"] = "sprung:trap"
    (repository / "run.json").write_text(json.dumps(run), "utf-8")
    zoo.write_card(repository, "shoal train", "MIT")
    Path("sprung.py").write_text("raise SystemExit('imported')")
    assert shoal("pull", "ann/spread", "new")[0] == 0
    code, _, said = shoal("evaluate", "new")
    assert code == 2 and "is not recorded as your own run" in said
