"""Policy folders in repositories of the Hugging Face Hub: ``shoal push`` and ``shoal pull`` (docs/zoo.md)."""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from shoal.errors import InputError, shortened, told
from shoal.runs.build import OPPONENTS
from shoal.runs.run import Run
from shoal.sharing.policies import LICENCE, keep_policies
from shoal.storage import manifest
from shoal.storage.folders import EVALUATION_FILE
from shoal.storage.zoo import CARD_FILE, check_files, described, read_card
from shoal.system.extras import install, lacking
from shoal.system.files import reason, with_home

FOLDERS = ("policy", OPPONENTS)
"""Folders of a policy folder."""
MOST_FILES = 1000
"""Largest number of files of a policy folder that is pulled."""
MOST_BYTES = 1 << 30
"""Largest size in bytes of all of them together."""


def push(run: Run, repository: str, *, private: bool = False, licence: str = LICENCE, episodes: int = 1024) -> str:
    """Upload a finished run's policies, without the rest of its training; returns the address of the repository.

    The repository is created if needed. Policies of an earlier push are replaced.

    Args:
        run: the run.
        repository: ``USER/NAME``.
        private: create the repository as a private one; one that exists has to be private.
        licence: SPDX identifier of the licence under which the policies are given to others.
        episodes: see :func:`shoal.sharing.policies.keep_policies`.

    Raises:
        InputError: the run has not finished, the library is missing, the Hub refuses the upload, or ``private`` is
            given for a repository that exists and is public.
    """
    _check_name(repository)
    api = _api()
    with tempfile.TemporaryDirectory(prefix="shoal-") as temporary:
        folder = keep_policies(run, Path(temporary) / repository.split("/")[1], licence=licence, episodes=episodes)
        (folder / "README.md").write_text(_readme(folder, repository, licence), encoding="utf-8")
        with _asking(f"{run.folder} cannot be uploaded to {repository}"):
            address = api.create_repo(repository, private=private, exist_ok=True)
            if private and not api.repo_info(repository).private:  # of one that exists the visibility stays
                raise InputError(
                    f"{repository} exists and is public: make it private on the Hub, or push to a new repository."
                )
            api.upload_folder(
                repo_id=repository,
                folder_path=folder,
                commit_message="Upload policies",
                delete_patterns=[f"{name}/*" for name in FOLDERS],
            )
    return str(address)


def pull(repository: str, folder: str | Path, *, revision: str | None = None) -> Path:
    """Download policies that :func:`push` has uploaded; returns their folder.

    Only the files on the card are downloaded, all of one commit, and compared with its digests; together they may have
    :data:`MOST_BYTES`, which is checked before they are downloaded. The folder is one from another person
    (docs/security.md).

    Args:
        repository: ``USER/NAME``.
        folder: a folder that does not exist yet.
        revision: a branch, tag or commit; None for the newest.

    Raises:
        InputError: ``folder`` exists, there is no such repository, it holds no policies, they are too large, or a file
            is damaged.
    """
    _check_name(repository)
    folder = with_home(folder)
    if folder.exists():
        raise InputError(f"{folder} exists already; choose another folder, or delete it.")
    api = _api()
    with tempfile.TemporaryDirectory(prefix="shoal-") as temporary:
        work = Path(temporary) / repository.split("/")[1]
        with _asking(f"{repository} cannot be downloaded"):
            found = api.repo_info(repository, revision=revision, files_metadata=True)
            commit, sizes = found.sha, {one.rfilename: one.size or 0 for one in found.siblings or ()}
            _check_size(repository, sizes, [CARD_FILE])
            _fetch(api, repository, CARD_FILE, commit, work)
            names = _checked_names(repository, read_card(work).files)
            _check_size(repository, sizes, names)
            for name in names:
                _fetch(api, repository, name, commit, work)
        shutil.rmtree(work / ".cache", ignore_errors=True)  # what the library keeps beside its downloads
        check_files(work)
        try:
            folder.mkdir(parents=True)
            try:
                shutil.copytree(work, folder, dirs_exist_ok=True)
            except BaseException:  # a part of the policies would keep the next try from its folder
                shutil.rmtree(folder, ignore_errors=True)
                raise
        except OSError as error:
            raise InputError(f"{folder} cannot be written: {reason(error)}.") from None
    return folder


def _fetch(api: Any, repository: str, name: str, commit: str, work: Path) -> None:
    api.hf_hub_download(repository, name, revision=commit, local_dir=work)


def _checked_names(repository: str, names: dict[str, str]) -> list[str]:
    """The names of files on a card, none of which leads elsewhere.

    Raises:
        InputError: one is none of a policy folder's files, or there are too many.
    """
    for name in names:
        parts = PurePosixPath(name).parts
        known = name in (manifest.RUN_JSON, EVALUATION_FILE) or (len(parts) > 1 and parts[0] in FOLDERS)
        if not known or "\\" in name or ":" in name or ".." in parts or str(PurePosixPath(name)) != name:
            raise InputError(f"The card of {repository} names {shortened(name)}, which is no file of a policy folder.")
    if len(names) > MOST_FILES:
        raise InputError(f"The card of {repository} names {len(names):,} files, more than {MOST_FILES:,}.")
    return sorted(names)


def _check_size(repository: str, sizes: Mapping[str, int], names: Iterable[str]) -> None:
    """Refuse more bytes than :data:`MOST_BYTES`, going by what the Hub says of each file."""
    if (size := sum(sizes.get(name, 0) for name in names)) > MOST_BYTES:
        raise InputError(f"The policies in {repository} have {size / 1e9:.1f} GB, more than {MOST_BYTES / 1e9:.1f}.")


def _check_name(repository: str) -> None:
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise InputError(f"The name of a repository is USER/NAME, not {shortened(repository)}.")


def _readme(folder: Path, repository: str, licence: str) -> str:
    """The repository's page."""
    header = f"---\nlibrary_name: shoal\nlicense: {licence.lower()}\ntags: [multi-agent-reinforcement-learning]\n---\n"
    text = described(folder).partition("\n")[2]
    name = repository.split("/")[1]
    use = f"    shoal pull {repository} {name}\n    shoal replay {name}"
    return f"{header}\n# {name}\n\nPolicies trained with Shoal:\n\n```text\n{text}\n```\n\n{use}\n"


def _api() -> Any:
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise InputError(lacking("The Hub", "huggingface_hub", error, install("hub"))) from None
    return HfApi(library_name="shoal")


@contextmanager
def _asking(what: str) -> Iterator[None]:
    """Make one sentence of whatever the library raises: errors of HTTP, of the network and of its own checks.

    Raises:
        InputError: it raised.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{what}: {told(error)}") from error
