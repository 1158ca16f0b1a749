"""The player in a browser: what it draws, what it says of its state, and that it can be driven."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.reporting import replays as module
from shoal.reporting.replays import pack, replays
from support.browser import Browser
from support.unplayed_episodes import bare, battle, made_of, painted, pushing, talking

ASSETS = Path(module.__file__).parent / "assets"
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
INJECTED = '<img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>'
DARK = ":root{--ink:#eee;--faint:#aaa;--paper:#111;--panel:#222;--line:#444;--accent:#56b4e9}"

Page = Callable[[dict[str, Any]], Path]


@pytest.fixture
def page(tmp_path: Path) -> Page:
    """(document) -> a page with the player."""

    def write(document: dict[str, Any]) -> Path:
        data = json.dumps(document).replace("<", "\\u003c")
        scripts = "".join(f"<script>{path.read_text('utf-8')}</script>" for path in sorted(ASSETS.glob("player*.js")))
        style = (ASSETS / "player.css").read_text("utf-8")
        path = tmp_path / "page.html"
        path.write_text(
            f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Test</title>
            <meta http-equiv="Content-Security-Policy" content="{POLICY}">
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <style>@media (prefers-color-scheme: dark) {{{DARK}}} body {{background: var(--paper)}} {style}</style>
            <div id="player"></div><script type="application/json" id="data">{data}</script>{scripts}
            <script>const data = JSON.parse(document.getElementById("data").textContent);
            ShoalPlayer.mount(document.getElementById("player"), data);</script></html>""",
            "utf-8",
        )
        return path

    return write


def document_of(patch: pytest.MonkeyPatch, *cases: tuple[str, Any, Any]) -> dict[str, Any]:
    """Of (label, run, episode), one after the other."""
    found = None
    for label, run, episode in cases:
        made_of(patch, [episode, episode])
        one = replays([(label, run)], seeds=[0])
        assert one is not None
        if found is None:
            found = one
            continue
        for seed in one["runs"][0]["seeds"]:
            for each in seed["episodes"]:
                each["fixed"] = None if each["fixed"] is None else each["fixed"] + len(found["fixed"])
        found["fixed"] += one["fixed"]
        found["runs"] += one["runs"]
    assert found is not None
    return found


def state(page: Any) -> dict[str, str]:
    page.wait_for_selector("[data-ready=true]")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.evaluate("() => ({...document.querySelector('.sp-root').dataset})")


def until(page: Any, **data: object) -> None:
    """Wait until the container has this data; an action may take a frame to be seen."""
    wanted = "".join(f"[data-{name}='{value}']" for name, value in data.items())
    page.wait_for_selector(f".sp-root{wanted}")


def draw_step_1(page: Any, watch: str) -> None:
    """Draw the second timestep, with the canvases' functions replaced by ``watch``, a function in JavaScript."""
    state(page)
    page.evaluate(watch)
    page.locator(".sp-canvas").first.focus()
    page.keyboard.press("ArrowRight")
    until(page, step=1)
    state(page)


PIXELS = """(selector) => {
    const canvas = document.querySelector(selector);
    const copy = new OffscreenCanvas(canvas.width, canvas.height);
    const pen = copy.getContext("2d", { willReadFrequently: true });
    pen.drawImage(canvas, 0, 0);
    const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
    const found = [];
    for (let i = 0; i < data.length; i += 4) found.push((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
    return [...new Set(found)];
}"""


STYLE = "({ style }) => ({ left: parseFloat(style.left), width: parseFloat(style.width) })"
"""Of a part of a bar, in per cent."""


def colours(page: Any, selector: str) -> list[int]:
    """The different colours of a canvas, that of its upper left corner first."""
    return page.evaluate(PIXELS, selector)


def test_it_is_driven_by_mouse_and_keys(
    browser: Browser, page: Page, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = talking(tmp_path, 1), talking(tmp_path, 2)
    assert first[1].decisions is not None
    first[1].decisions["obs"][0, 1, 3] = 1e9  # the feature is stored as float32
    document = document_of(monkeypatch, ("one", *first), (INJECTED, *second))

    def drive(page: Any) -> None:
        expected = {"step": "0", "agent": "0", "episode": "0", "playing": "false", "run": "0", "beside": "1"}
        assert expected.items() <= state(page).items()
        page.get_by_label("One step forward").click()
        until(page, step=1)
        page.locator(".sp-canvas").first.focus()
        for key, step in (("ArrowRight", 2), ("ArrowLeft", 1), ("End", 8), ("Home", 0)):
            page.keyboard.press(key)
            until(page, step=step)
        page.keyboard.press("n")
        until(page, agent=1)
        page.keyboard.press("]")
        state(page)
        assert page.get_by_label("Speed").input_value() == "2"
        for _ in range(3):
            page.keyboard.press("[")
        page.keyboard.press(" ")
        until(page, playing="true", step=1)
        assert page.get_by_label("Speed").input_value() == "0.25"
        assert page.get_by_label("Pause").get_attribute("title") == "Pause (space)"
        page.get_by_label("Pause").click()
        until(page, playing="false")
        now = state(page)
        page.wait_for_timeout(150)
        assert state(page)["step"] == now["step"]
        page.get_by_label("Step", exact=True).fill("5")
        until(page, step=5)
        assert page.locator(".sp-clock").inner_text() == "step 5 of 8"

        # The panel shows the numbers of the step.
        page.get_by_label("Agent", exact=True).select_option("0")
        told, action = first[1].decisions, int(first[1].actions[5, 0])
        assert told is not None
        until(page, agent=0)
        state(page)
        taken = page.locator(".sp-section .sp-row.sp-taken")
        words = f"{('stay', 'left', 'right', 'down', 'up')[action % 5]}, say {'ABCDEFGHIJ'[action // 5]}"
        assert taken.locator(".sp-name").inner_text() == f"▸ {words}"
        share = float(taken.locator(".sp-value").inner_text().removesuffix(" %"))
        assert abs(share - 100 * told["probabilities"][5, 0, action]) < 0.06
        whole = "(x) => { x.textContent = '100.0 %'; return x.scrollWidth <= x.clientWidth; }"
        assert taken.locator(".sp-value").evaluate(whole), "it has room for a certain action"
        features = page.locator(".sp-obs .sp-value").all_inner_texts()
        assert len(features) == 21
        assert abs(float(features[3].replace("−", "-")) - told["obs"][5, 0, 3]) < 0.006
        assert page.locator(".sp-said li").all_inner_texts() == ["agent_0: C", "agent_1: F"]
        assert page.locator(".sp-heat").is_visible() and len(colours(page, ".sp-heat")) > 5

        # A click chooses the agent that is there.
        canvas = page.locator(".sp-canvas").nth(1)
        frame = canvas.bounding_box()
        low, high = (edge([fixed["box"] for fixed in document["fixed"]], 0) for edge in (np.min, np.max))
        left, bottom, right, top = *low[:2], *high[2:]
        scale = min(frame["width"] / (right - left), frame["height"] / (top - bottom))
        x, y = second[1].states[5].pos[1]
        across = (frame["width"] - scale * (right - left)) / 2 + (x - left) * scale
        down = (frame["height"] - scale * (top - bottom)) / 2 + (top - y) * scale
        canvas.click(position={"x": float(across), "y": float(down)})
        until(page, agent=1)
        state(page)
        told = second[1].decisions
        assert (
            abs(float(page.locator(".sp-obs .sp-value").nth(3).inner_text().replace("−", "-")) - told["obs"][5, 1, 3])
            < 0.006
        )
        page.get_by_label("Episode").select_option("1")
        until(page, episode=1)
        page.get_by_label("Second policy", exact=True).select_option("-1")
        until(page, beside=-1)
        assert page.locator(".sp-canvas:visible").count() == 1
        assert page.get_by_label("Policy", exact=True).locator("option").all_inner_texts() == ["one", INJECTED]
        assert page.evaluate("window.hacked") is None
        assert page.evaluate("ShoalPlayer.state().step") == 5

        trails = page.get_by_label("trails")
        trails.focus()
        page.keyboard.press(" ")
        assert state(page)["playing"] == "false" and not trails.is_checked()

    browser.open(page(document), drive)


def test_every_kind_of_scene_is_drawn(
    browser: Browser, page: Page, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cases = {kind: make(tmp_path) for kind, make in (("units", battle), ("pictures", painted), ("none", bare))}
    cases["bodies"] = talking(tmp_path, 1)
    cases["continuous"] = pushing(tmp_path)
    document = document_of(monkeypatch, *((kind, *case) for kind, case in cases.items()))
    document["notes"] = [INJECTED]

    def look(page: Any) -> None:
        seen = {}
        state(page)
        page.get_by_label("Second policy", exact=True).select_option("-1")
        for run, kind in enumerate(cases):
            page.get_by_label("Policy", exact=True).select_option(str(run))
            until(page, run=run)
            page.locator(".sp-canvas").first.focus()
            page.keyboard.press("Home")
            until(page, step=0)
            page.keyboard.press("ArrowRight")
            until(page, step=1)
            state(page)
            seen[kind] = len(colours(page, ".sp-canvas"))
            assert page.get_by_label("trails").is_visible() == (kind not in ("pictures", "none")), kind
            if kind == "units":
                assert "allies 3 of 3 · enemies 3 of 3" in page.locator(".sp-result").first.inner_text()
                page.keyboard.press("End")
                until(page, step=2)
                state(page)
                words = page.locator(".sp-result").first.inner_text()
                assert "won" in words and "enemies 2 of 3" in words
            if kind == "continuous":
                rows = page.locator(".sp-real")
                assert rows.locator(".sp-name").all_inner_texts() == ["message A", "message B", "message C"]
                _, episode = cases[kind]
                assert episode.decisions is not None
                actions, mean = episode.actions[1, 0], episode.decisions["mean"][1, 0]
                for k, row in enumerate(rows.all()):
                    assert float(row.locator(".sp-value").inner_text()) == pytest.approx(actions[k], abs=6e-4)
                    mark, bar = (row.locator(part).evaluate(STYLE) for part in (".sp-mark", ".sp-fill"))
                    assert mark["left"] == pytest.approx(100 * actions[k], abs=0.1)
                    assert bar["left"] == pytest.approx(100 * max(mean[k] - 0.2, 0.0), abs=0.1)
                    assert bar["left"] + bar["width"] == pytest.approx(100 * min(mean[k] + 0.2, 1.0), abs=0.2)
                words = page.locator(".sp-label").all_inner_texts()
                assert any("reward of the agent, −1.5905 to −1.5812" in text for text in words), words
        assert all(count > 3 for count in seen.values()), seen
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert INJECTED in page.locator(".sp-notes").inner_text()

    browser.open(page(document), look)
    browser.open(page(document), look, width=360, height=700, scheme="dark")


def test_colours_of_actions_are_numbered_and_not_said_to_differ_where_they_are_many(
    browser: Browser, page: Page, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run, episode = bare(tmp_path)
    document = document_of(monkeypatch, ("one", run, episode), ("many", run, episode))
    document["runs"][1]["space"]["n"] = 17

    def look(page: Any) -> None:
        draw_step_1(
            page,
            """() => {
            window.said = [];
            const write = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (...given) {
                window.said.push(given[0]);
                write.apply(this, given);
            };
        }""",
        )
        said = page.evaluate("window.said")
        assert {"actions over time, one colour per action", "actions over time"} <= set(said)
        assert {str(action) for action in episode.actions[: len(episode.rewards), 0].ravel()} <= set(said)

    browser.open(page(document), look)


RECTANGLES = """() => {
    window.drawn = { "sp-canvas": [], "sp-heat": [] };
    const fill = CanvasRenderingContext2D.prototype.fillRect;
    CanvasRenderingContext2D.prototype.fillRect = function (...given) {
        window.drawn[this.canvas.className]?.push(given);
        fill.apply(this, given);
    };
}"""


@pytest.mark.parametrize("agents", [3, 60, 130])
def test_the_rows_and_columns_of_many_agents_are_all_shown(browser: Browser, page: Page, agents: int) -> None:
    """The actions of each agent within its own row, and the attention to all agents within the canvas."""
    steps, attends = 2, agents < 100
    arrays = {"rewards": np.zeros((steps, agents)), "actions": np.zeros((steps, agents, 1), int)}
    arrays |= {"attention": np.full((steps, agents, agents), 1 / agents)} if attends else {}
    episode = {"kind": "none", "fixed": None, "length": steps, "steps": None, "score": 0.0, "packed": pack(arrays)}
    each = range(agents)
    run = {"label": "one", "agents": [f"agent_{i}" for i in each], "dims": [2] * agents, "obs_dims": [0] * agents}
    run |= {"space": {"kind": "discrete", "n": 2}, "score": "sum", "scored": [*each]}
    document = {"format": 1, "fixed": [], "runs": [run | {"seeds": [{"seed": 0, "episodes": [episode]}]}]}

    def look(page: Any) -> tuple[list[list[float]], list[list[float]], float]:
        draw_step_1(page, RECTANGLES)
        found = page.evaluate("window.drawn")
        return found["sp-canvas"], found["sp-heat"], page.locator(".sp-heat").evaluate("(x) => x.clientWidth")

    rows, cells, width = browser.open(page(document), look)
    tops = [top for _, top, _, _ in rows[: steps * agents : steps]]
    apart = np.diff(tops)
    height = rows[0][3]
    assert apart == pytest.approx(apart[0]) and 0.6 * apart[0] < height < apart[0]
    assert not attends or (len(cells) > agents**2 and max(left + wide for left, _, wide, _ in cells) <= width)


def test_the_grid_of_a_large_scene_has_few_lines(browser: Browser, page: Page) -> None:
    body = {"agent": 0, "radius": 10.0, "shape": "disc", "colour": "#0072b2", "text": ""}
    fixed = {"box": [-1000, -1000, 1000, 1000], "cell": 0, "bodies": [body]}
    still = {f"scene/{axis}": np.zeros((3, 1)) for axis in ("x", "y")}
    arrays = {"rewards": np.zeros((2, 1)), "actions": np.zeros((2, 1, 1), int), **still}
    episode = {"kind": "bodies", "fixed": 0, "length": 2, "steps": None, "score": 0.0, "packed": pack(arrays)}
    run = {"label": "one", "agents": ["agent_0"], "dims": [2], "obs_dims": [0], "score": "sum", "scored": [0]}
    run |= {"space": {"kind": "discrete", "n": 2}, "seeds": [{"seed": 0, "episodes": [episode]}]}

    def look(page: Any) -> int:
        draw_step_1(
            page,
            """() => {
            window.lines = 0;
            const draw = CanvasRenderingContext2D.prototype.lineTo;
            CanvasRenderingContext2D.prototype.lineTo = function (...given) {
                window.lines += this.canvas.className === "sp-canvas";
                draw.apply(this, given);
            };
        }""",
        )
        return page.evaluate("window.lines")

    assert 40 < browser.open(page({"format": 1, "fixed": [fixed], "runs": [run]}), look) < 1000


def test_colours_follow_the_scheme_while_it_is_open(
    browser: Browser, page: Page, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    document = document_of(monkeypatch, ("one", *talking(tmp_path, 1)))

    def change(page: Any) -> None:
        state(page)
        light = colours(page, ".sp-canvas")[0]
        page.emulate_media(color_scheme="dark")
        state(page)
        dark = colours(page, ".sp-canvas")[0]
        assert light > 0xEEEEEE > 0x333333 > dark

    browser.open(page(document), change)


def test_a_file_that_is_no_replay_is_reported(browser: Browser, page: Page) -> None:
    def read(page: Any) -> str:
        return page.locator(".sp-root").inner_text()

    assert browser.open(page({"format": 1, "runs": [], "notes": ["Nothing fits."]}), read) == "Nothing fits."
    assert browser.open(page({}), read) == "This page has no replays."


def test_damaged_numbers_of_a_replay_are_reported(
    browser: Browser, page: Page, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    document = document_of(monkeypatch, ("one", *talking(tmp_path, 1)))
    document["runs"][0]["seeds"][0]["episodes"][0]["packed"]["index"]["rewards"]["at"] = 10**9

    def read(page: Any) -> str:
        page.wait_for_selector("[data-ready=failed]")
        return page.locator(".sp-notes").inner_text()

    assert browser.open(page(document), read) == "The data of this replay are damaged."
