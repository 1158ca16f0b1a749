"""Damage to run folders: what a crash, a full disk, a careless editor or a hostile sender leaves behind."""

import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

PWNED = "PWNED"
"""A file that no command may create: hostile configurations try to."""

HOSTILE = [
    ("os:system", {"command": f"touch {PWNED}"}),
    ("subprocess:getoutput", {"cmd": f"touch {PWNED}"}),
    ("hostile_module:make", {}),
    ("gymnasium:hostile_module:X-v0", {}),
    ("gymnasium:hostile_module:X", {}),
    ("pettingzoo:hostile_module", {}),
    ("builtins:exec", {"source": f"open({PWNED!r}, 'w')"}),
    ("pathlib:Path.touch", {"self": PWNED}),
]
"""Environments, with options, that run code when they are imported or called."""

HOSTILE_SOURCE = f"open({PWNED!r}, 'w').close()\n"
"""``hostile_module.py`` lies in the working directory."""

VALUES: list[Any] = [None, [], {}, "", "x", 0, -1, 1, 2, 1e308, 2**70, True, [1], {"a": 1}, "NaN", "Infinity", [[[]]]]
VALUES += ["mappo", "🐟", 0.5, 10**400]


HUGE = [b"9" * 400, b"9" * 5000, b"1e308", b"-1e308", b"1e999"]
"""Numbers that no run can have logged."""


def damage(folder: Path, seed: int) -> str:
    """Damage one thing in a run folder, drawn from ``seed``; says what."""
    rng = random.Random(seed)
    kinds: list[Callable[[Path, random.Random], str]] = [_manifest] * 6 + [_metrics, _steps, _steps, _other]
    return rng.choice(kinds)(folder, rng)


def _manifest(folder: Path, rng: random.Random) -> str:
    path = folder / "run.json"
    kind = rng.choice(["value", "value", "delete", "rename", "add", "hostile", "bytes", "file", "nest", "duplicate"])
    if kind == "bytes":
        return _bytes(path, rng)
    if kind == "file":
        return _file(path, rng)
    said = json.loads(path.read_text(encoding="utf-8"))
    if kind == "hostile":
        name, options = rng.choice(HOSTILE)
        said["config"] |= {"environment": name, "env": options}
        path.write_text(json.dumps(said), encoding="utf-8")
        return f"run.json names {name}"
    if kind == "nest":
        text = json.dumps(said).replace('"algorithm":', '"deep": ' + "[" * 9000 + "]" * 9000 + ', "algorithm":', 1)
        path.write_text(text, encoding="utf-8")
        return "run.json nests 9000 lists"
    where, container, key = rng.choice(list(_places(said)))
    if kind == "duplicate" and isinstance(key, str):
        text = json.dumps(said)
        path.write_text(text.replace(f'"{key}":', f'"{key}": 1, "{key}":', 1), encoding="utf-8")
        return f"run.json says {key!r} twice"
    if kind == "delete":
        del container[key]
    elif kind == "rename" and isinstance(key, str):
        container[key[:-1] or "x"] = container.pop(key)
    elif kind == "add" and isinstance(container, dict):
        container[rng.choice(["x", "learning_rat", "seed2", "__class__", "self", "1"])] = rng.choice(VALUES)
    else:
        container[key] = rng.choice(VALUES)
        where += f" = {container[key]!r}"
    path.write_text(json.dumps(said), encoding="utf-8")
    return f"run.json: {kind} {where}"


def _places(tree: Any, where: str = "") -> Any:
    """(path, container, key) of everything in a JSON tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(items):
        yield f"{where}/{key}", tree, key
        yield from _places(value, f"{where}/{key}")


def _metrics(folder: Path, rng: random.Random) -> str:
    path = folder / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    kind = rng.choice(["bytes", "file", "line", "tail", "twice", "order"])
    if kind == "bytes":
        return _bytes(path, rng)
    if kind == "file":
        return _file(path, rng)
    i = rng.randrange(len(lines))
    if kind == "line":
        huge = [re.sub(rb'("(?:step|return)": \[?)[^,\]]*', rb"\g<1>" + number, lines[i]) for number in HUGE]
        lines[i] = rng.choice(
            [*huge, b"garbage\n", b"\xff\xfe\x00\n", b"{}\n", b"[]\n", b'{"step": "x"}\n', b"null\n", b"\n"]
        )
    elif kind == "tail":
        lines = lines[:i]
    elif kind == "twice":
        lines.insert(i, lines[i])
    else:
        rng.shuffle(lines)
    path.write_bytes(b"".join(lines))
    return f"metrics.jsonl: {kind}"


def _steps(folder: Path, rng: random.Random) -> str:
    """Damage to a checkpoint or to a policy."""
    where = folder / rng.choice(["checkpoints", "policy"])
    kind = rng.choice(["bytes", "bytes", "file", "index", "all", "link", "name"])
    steps = sorted(path for path in where.iterdir() if path.is_dir())
    if kind == "all":
        shutil.rmtree(where)
        return f"{where.name} is gone"
    step = rng.choice(steps)
    if kind == "link":
        step.rename(folder / "elsewhere")
        step.symlink_to(folder / "elsewhere")
        return f"{where.name}: a step is a link"
    if kind == "name":
        (where / rng.choice(["99999999", "x", "12.x", "0.7", ".unfinished-1-1"])).mkdir(exist_ok=True)
        return f"{where.name}: a strange name"
    if kind == "index":
        return _index(step / "index.json", rng)
    files = sorted(path for path in step.rglob("*") if path.is_file())
    return (_bytes if kind == "bytes" else _file)(rng.choice(files), rng)


def _index(path: Path, rng: random.Random) -> str:
    """Change a checkpoint's index together with its digest, as somebody who knows the format would."""
    said = json.loads(path.read_text(encoding="utf-8"))
    where, container, key = rng.choice(list(_places(said)))
    if rng.random() < 0.3:
        del container[key]
    else:
        container[key] = rng.choice(VALUES)
    path.write_text(json.dumps(said), encoding="utf-8")
    (path.parent / "sha256.json").unlink()
    from shoal.system.files import file_digests

    (path.parent / "sha256.json").write_text(json.dumps(file_digests(path.parent)), encoding="utf-8")
    return f"{path.parent.parent.name}: index {where}"


def _other(folder: Path, rng: random.Random) -> str:
    kind = rng.choice(["evaluation", "empty", "tree", "readonly", "extra"])
    if kind == "evaluation":
        (folder / "evaluation.json").write_text(
            rng.choice(["", "null", "[]", "{", '{"mean": "x"}', '{"mean": 1e308, "per_seed": [1e308, 1e308]}']),
            encoding="utf-8",
        )
    elif kind == "empty":
        shutil.rmtree(folder)
        folder.mkdir()
    elif kind == "tree":
        shutil.rmtree(folder)
    elif kind == "readonly":
        for path in folder.glob("*.png"):
            path.unlink()
        (folder / "curves.png").mkdir()
    else:
        (folder / rng.choice(["sitecustomize.py", "jax.py", "gymnasium.py"])).write_text(
            HOSTILE_SOURCE, encoding="utf-8"
        )
    return f"folder: {kind}"


def _bytes(path: Path, rng: random.Random) -> str:
    """Damage to a file's content."""
    data = bytearray(path.read_bytes())
    kind = rng.choice(["cut", "flip", "zero", "empty", "binary", "long"])
    if kind == "cut":
        data = data[: rng.randrange(len(data) + 1)]
    elif kind == "flip" and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "zero":
        data = bytearray(len(data))
    elif kind == "empty":
        data.clear()
    elif kind == "binary":
        data = bytearray(rng.randbytes(64))
    else:
        data += b" " * 3_000_000 + b"x"
    path.write_bytes(bytes(data))
    return f"{path.name}: {kind}"


def _file(path: Path, rng: random.Random) -> str:
    """Something else in place of a file."""
    path.unlink()
    kind = rng.choice(["gone", "folder", "fifo", "loop", "null"])
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "null":
        path.symlink_to("/dev/zero")
    return f"{path.name}: {kind}"
