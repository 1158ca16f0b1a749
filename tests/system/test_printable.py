"""Control characters in names, messages and files never reach a terminal as they are."""

import io
import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal import cli
from shoal.cli.output import Escaping
from shoal.config.config_files import to_toml
from shoal.errors import CallbackError, CheckpointError, GameError, InputError, NonFiniteError
from shoal.plots.texts import markdown_table, markdown_text
from shoal.system import notices
from shoal.system.notices import escaped, escaped_as_unicode
from shoal.training.progress import Progress

BAD = [*map(chr, [*range(9), *range(11, 32), *range(127, 160)])]
BAD += "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029\ud800\udcff"
EVIL = "\x1b]0;title\x07\x9b31m\u202etxt.exe\r\u2066"


def harmless(text: str) -> bool:
    return not any(x in text for x in BAD)


def test_control_characters_are_escaped() -> None:
    assert all(harmless(escaped(x)) and escaped(x).startswith("\\") for x in BAD)
    assert escaped("\x1b\u202e") == r"\x1b\u202e"
    plain = "tab\tline\nÄ漢字 🐟 עברית −∞"
    assert escaped(plain) == escaped_as_unicode(plain) == plain
    assert json.loads(f'"{escaped_as_unicode(EVIL)}"') == EVIL


@pytest.mark.parametrize("kind", [InputError, CheckpointError, NonFiniteError, CallbackError])
def test_messages(kind: type[Exception]) -> None:
    assert str(kind(f"a{EVIL}b")) == f"a{escaped(EVIL)}b"


def test_a_games_message() -> None:
    assert harmless(str(GameError(EVIL, None, "", "")))


def test_notices_and_progress(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    notices.warn(EVIL)
    assert capsys.readouterr().err == f"{escaped(EVIL)}\n"
    monkeypatch.setattr(notices, "on_terminal", lambda: True)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", Escaping(sys.stderr))
        Progress(10, 1, shown=True).warn(EVIL)
    assert capsys.readouterr().err == f"\r\x1b[K{escaped(EVIL)}\n"


def test_both_streams_of_a_command(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.cli.command_line.version_text", lambda: EVIL)
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"{escaped(EVIL)}\n"
    assert cli.main([EVIL]) == 2 and cli.main(["evaluate", EVIL]) == 2
    said = capsys.readouterr()
    assert harmless(said.out + said.err) and "title" in said.err
    assert isinstance(sys.stdout, io.TextIOBase) or not isinstance(sys.stdout, Escaping)


def test_help_and_configuration(tmp_path: Path, shoal: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults that help shows, and the values that --print-config prints, which can be read again."""
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(
        'algorithm = "ippo"\nenvironment = "matrix/climbing"\n[flags]\naddress = "h\\u001b[31m\\u202e"\nsteps = 64\n'
    )
    code, out, err = shoal("train", "--config", "c.toml", "--help")
    assert code == 0 and err == "" and r"h\x1b[31m\u202e" in out.replace("\n", "") and "\u202e" not in out
    values = tomllib.loads(f"x = {to_toml(EVIL)}")
    assert harmless(to_toml(EVIL)) and values["x"] == EVIL


def test_markdown() -> None:
    evil = "<script>alert(1)</script> [x](javascript:alert(1)) 1 < 2 \x1b"
    safe = markdown_text(evil)
    assert safe == r"&lt;script>alert(1)&lt;/script> [x]\(javascript:alert(1)) 1 < 2 \x1b"
    assert "<script" not in markdown_table([{f"<script>{EVIL}": evil}])
    assert markdown_text(safe) == safe


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "&#106;avascript:alert(1)",
        "javascript&colon;alert(1)",
        "javascript\\:alert(1)",
        "< &Tab;JavaScript:alert(1)>",
        "data:text/html,x",
    ],
)
def test_markdown_has_no_links_that_run_something(address: str) -> None:
    safe = [markdown_text(link) for link in (f"[x]({address})", f"![x]({address})", f"[x]: {address}\n\n[x]")]
    assert safe == [f"[x]\\({address})", f"![x]\\({address})", f"[x]\\: {address}\n\n[x]"]
    markdown = pytest.importorskip("markdown_it").MarkdownIt("commonmark")
    markdown.validateLink = lambda _: True
    assert "href" in markdown.render(f"[x]({address})")
    assert not any(word in markdown.render(text) for text in safe for word in ("href", "src="))


def test_markdown_keeps_links_to_pages() -> None:
    text = "[a](https://x.y:80/z) [b](#c) [c](../d.toml): e:f [d](HTTP&colon;//x) [0, 1]: two [e](f/g:h?i:j)\n"
    assert markdown_text(text) == text
