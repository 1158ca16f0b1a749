"""The pictures of the documentation's front page, from a trained run: an episode as an animation, and the run's report.

    python benchmarks/pictures.py RUN docs/images

The report is drawn by Chromium with Playwright (the extra ``browser``); ``SHOAL_CHROMIUM`` may name the program. Writes
``battle.gif``, ``report.png`` and ``report-phone.png``.
"""

import os
import shutil
import sys
from pathlib import Path

import jax
from PIL import Image
from playwright.sync_api import sync_playwright

import shoal
from shoal.reporting.replays import recorded_episodes
from shoal.video.animation import animate

WIDTH = 560
"""Of the animation, in pixels."""
COLOURS = 256
"""Of the pictures of the report."""
SIZES = {"report": (1200, 1440, 0.75), "report-phone": (390, 844, 1.0)}
"""Width and height of the window, and pixels of the picture in one of the page's."""


def battle(run: shoal.Run, out: Path) -> None:
    """The first recorded episode of the run's first seed."""
    (episode,) = recorded_episodes(run, [run.settings.seed], episodes=1)[run.settings.seed]
    env, states = run.env, jax.device_get(episode.states)
    assert isinstance(env, shoal.Environment) and env.render is not None
    fitted = getattr(env.render, "fitted", None)
    render = env.render if fitted is None else fitted(states)
    animate([render(state) for state in states], episode.rewards, out, scores=env.spec.scores, size=WIDTH)


def report(page: Path, out: Path, width: int, height: int, scale: float) -> None:
    """The top of the page, with its replay in the middle of the episode."""
    chromium = os.environ.get("SHOAL_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": width, "height": height}, device_scale_factor=scale)
        shown = context.new_page()
        shown.goto(page.resolve().as_uri())
        slider = shown.locator(".sp-slider").first
        slider.evaluate("(x) => { x.value = Math.round(x.max / 2); x.dispatchEvent(new Event('input')); }")
        shown.wait_for_timeout(500)
        shown.screenshot(path=out)
        browser.close()
    with Image.open(out) as picture:
        picture.convert("RGB").quantize(COLOURS).save(out, optimize=True)


def main() -> None:
    folder, out = map(Path, sys.argv[1:])
    run = shoal.open_run(folder)
    battle(run, out / "battle.gif")
    page = shoal.report(run)
    for name, size in SIZES.items():
        report(page, out / f"{name}.png", *size)


if __name__ == "__main__":
    main()
