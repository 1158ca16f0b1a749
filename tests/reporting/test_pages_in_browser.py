"""The pages in a real browser: charts are drawn and answer, nothing of a hostile folder runs, phones can show them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_run_report import hostile
from test_study_report import study

import shoal as library
from shoal.plots.charts import learning_curves, seeds_line
from shoal.reporting.charts import Drawn, chart_element, lines_data
from shoal.reporting.page import Html, Page, Section, html_table, joined_html, page_bytes
from support.browser import Browser, until
from support.parsed_html import EVIL, SCRIPTS
from support.run_folders import run

WIDE = "document.documentElement.scrollWidth <= innerWidth"
UNSAID = """[...document.querySelectorAll(".scroll")].filter((x) => {
  const said = getComputedStyle(x.querySelector("caption span"), "::after").content.includes("→");
  return said !== (x.scrollWidth > x.clientWidth + 1);
}).map((x) => x.getAttribute("aria-label"))"""
"""Tables of which a part is outside the screen and that do not say so, or the reverse."""
NARROW = """[...document.querySelectorAll("main table:not(.bars) :is(td, th)")]
  .filter((x) => x.textContent.length > 8 && x.checkVisibility() && x.getBoundingClientRect().width < 45)
  .map((x) => x.textContent)"""
"""Cells that are too narrow for their text."""
BROKEN = """[...document.querySelectorAll(".commands span")]
  .filter((x) => x.getClientRects().length > 1).map((x) => x.textContent)"""
"""Flags that a line ends within."""
HAS = """([place, wanted]) => {
  const canvas = place.querySelector("canvas"), copy = document.createElement("canvas");
  copy.width = canvas.width;
  copy.height = canvas.height;
  const paint = copy.getContext("2d", { willReadFrequently: true });
  paint.drawImage(canvas, 0, 0);
  const data = paint.getImageData(0, 0, canvas.width, canvas.height).data;
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] > 150 && wanted.every((x, k) => Math.abs(x - data[i + k]) < 12)) return true;
  }
  return false;
}"""
"""Whether a chart has pixels of about a colour."""
BLUE, VERMILION, SKY = [0, 114, 178], [213, 94, 0], [86, 180, 233]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of a run, of a hostile one, and of a study."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shoal.storage.manifest.product_rate", lambda: 1e9)
        one = library.report(run(folder / "one", (1.0, 2.0, 4.0)), replays=False)
        bad = library.report(hostile(folder / "bad"), replays=False)
        return {"run": one, "bad": bad, "study": library.report(study(folder)[0], runs=folder, replays=False)}


def ready(page: Any) -> Any:
    """The first chart, once it is drawn."""
    place = page.locator(".chart[data-ready=true]").first
    place.wait_for(state="attached")
    return place


def has(place: Any, colour: list[int]) -> bool:
    return place.page.evaluate(HAS, [place.element_handle(), colour])


def loses(place: Any, colour: list[int]) -> None:
    """Wait until the chart has no such colour: it is painted after the event."""
    until(place.page, f"(given) => !({HAS})(given)", [place.element_handle(), colour])


def test_charts_are_drawn_and_answer(browser: Browser, pages: dict[str, Path]) -> None:
    def do(page: Any) -> None:
        place = ready(page)
        training, greedy = place.locator(".key").all()
        assert training.inner_text() == "training" and greedy.get_attribute("aria-pressed") == "true"
        assert has(place, BLUE) and has(place, VERMILION)
        beside = "(place) => [place.previousElementSibling, ...place.children].map((x) => x.getBoundingClientRect())"
        title, tools, plot, *_ = place.evaluate(beside)
        assert tools["right"] == plot["right"] and title["left"] == plot["left"], "tools stand beside the title"
        assert tools["top"] < title["bottom"] <= plot["top"]

        greedy.focus()
        page.keyboard.press("Space")
        assert greedy.get_attribute("aria-pressed") == "false"
        loses(place, VERMILION)
        page.keyboard.press("Space")

        place.locator(".plot").focus()
        for _ in range(4):
            page.keyboard.press("ArrowRight")
        assert place.get_attribute("data-at") == "192"
        assert training.locator(".reading").inner_text() == "1.333"
        assert greedy.locator(".reading").inner_text() == "2.333"
        assert place.get_by_role("status").text_content() == "step 192: training 1.333, greedy evaluations 2.333"

        alphas = """(value) => {
          const plot = ShoalCharts.charts[0].plot(), frame = plot.over.getBoundingClientRect();
          return [frame.right - 2, frame.top + plot.valToPos(value, "y"),
            ["training", "greedy evaluations"].map((name) => plot.series.find((each) => each.label === name).alpha)];
        }"""
        assert page.evaluate(alphas, 0)[2] == [1, 1], "keys point at no line"
        for value, wanted in ((4.0, [1, 1]), (2.333, [0.35, 1])):  # an interval's end, and the line itself
            found = None
            for _ in range(100):  # a busy machine draws, and then moves the pointer's place, later
                x, y, _ = page.evaluate(alphas, value)
                page.mouse.move(x, y)
                found = page.evaluate(alphas, value)[2]
                if found == wanted:
                    break
                page.wait_for_timeout(50)
            assert found == wanted

        labels = "(ticks) => ShoalCharts.charts[0].plot().axes[1].values(null, ticks)"
        for ticks, wanted in (
            ([123450, 123455, 123460], ["123.45k", "123.455k", "123.46k"]),
            ([1234000, 1234200, 1234400], ["1.234M", "1.2342M", "1.2344M"]),
            ([-0.25, 2e-17, 0.25], ["−0.25", "0", "0.25"]),
            ([-1e17, 0, 1.5e17], ["−1e17", "0", "1.5e17"]),
        ):
            assert page.evaluate(labels, ticks) == wanted

        seeds = place.get_by_role("button", name="Single seeds")
        seeds.click()
        shown = (
            "ShoalCharts.charts[0].plot().series.filter((each) => each.show && each.label.startsWith('seed')).length"
        )
        assert seeds.get_attribute("aria-pressed") == "true" and page.evaluate(shown) == 6
        page.evaluate("ShoalCharts.charts[0].plot().setScale('x', { min: 100, max: 150 })")
        page.get_by_role("button", name="Whole range").first.click()
        assert page.evaluate("ShoalCharts.charts[0].plot().scales.x.min") == 48

    browser.open(pages["run"], do)


def test_the_theme_is_the_system_s_until_another_is_chosen(browser: Browser, pages: dict[str, Path]) -> None:
    def do(page: Any) -> None:
        place = ready(page)
        button, ground = page.locator("#theme"), "getComputedStyle(document.body).backgroundColor"
        assert button.get_attribute("aria-pressed") == "true" and page.evaluate(ground) == "rgb(20, 23, 27)"
        assert has(place, SKY) and not has(place, BLUE)
        button.click()
        assert page.evaluate(ground) == "rgb(255, 255, 255)"
        loses(place, SKY)
        assert has(place, BLUE)
        page.reload()
        ready(page)
        assert page.evaluate(ground) == "rgb(255, 255, 255)", "the choice is kept"

    browser.open(pages["run"], do, scheme="dark")


def test_the_first_column_stays_beside_a_table_that_scrolls(browser: Browser, pages: dict[str, Path]) -> None:
    def do(page: Any) -> None:
        ready(page)
        where = "(x) => [x.querySelector('tbody th').getBoundingClientRect().left, x.getBoundingClientRect().left]"
        table = page.locator("#runs .scroll")
        assert table.evaluate("(x) => { x.scrollLeft = 80; return x.scrollLeft; }") == 80
        name, left = table.evaluate(where)
        assert name == left

    browser.open(pages["study"], do, width=360, height=740)


def test_each_of_many_lines_with_bands_has_a_plot_of_its_own(browser: Browser, tmp_path: Path) -> None:
    steps = np.arange(1.0, 5.0)
    lines = [seeds_line(f"line {i}", steps, i + np.random.default_rng(i).random((4, 3))) for i in range(7)]
    data = lines_data(learning_curves(lines, "return", {"zero": 0.0}))
    body = chart_element(0, Drawn(learning_curves(lines, "return"), "Many", ""))
    document = Page("Many lines", Html(""), [Section("curves", "Curves", body)], [data])
    (tmp_path / "many.html").write_bytes(page_bytes(document, None))

    def do(page: Any) -> None:
        ready(page)
        plots = page.evaluate("ShoalCharts.charts.map(({ plot }) => [plot().scales.y.min, plot().scales.y.max])")
        assert len(plots) == 7 and len({tuple(ends) for ends in plots}) == 1, "they share one axis"
        assert plots[0][0] <= 0.0 and plots[0][1] > 6.0
        assert [key.inner_text() for key in page.locator(".key").all()] == [f"line {i}" for i in range(7)]
        page.locator(".plot").first.focus()
        page.keyboard.press("ArrowRight")
        until(page, "() => [...document.querySelectorAll('.reading')].every((each) => each.textContent)")
        page.get_by_role("button", name="In one plot").click()
        until(page, "() => ShoalCharts.charts.length === 8 && ShoalCharts.charts[7].place.dataset.ready")
        assert page.locator(".key:visible").count() == 7
        page.evaluate("ShoalCharts.charts[7].plot().setScale('x', { min: 2, max: 3 })")
        for name in ("References", "Logarithmic"):
            page.locator(".whole").get_by_role("button", name=name).click()
            until(page, "() => ShoalCharts.charts[7].plot().scales.x.max === 3")
            assert page.locator(".whole").get_by_role("button", name="Whole range").is_visible()

    browser.open(tmp_path / "many.html", do)


def test_a_line_that_has_ended_has_no_value(browser: Browser, tmp_path: Path) -> None:
    """Between two of its points a line has that of the one before."""
    short, long = np.array([1.0, 3.0]), np.arange(1.0, 6.0)
    panel = learning_curves([seeds_line("short", short, short[:, None]), seeds_line("long", long, long[:, None])], "a")
    body = chart_element(0, Drawn(panel, "Two", ""))
    document = Page("Two", Html(""), [Section("curves", "Curves", body)], [lines_data(panel)])
    (tmp_path / "two.html").write_bytes(page_bytes(document, None))

    def do(page: Any) -> list[str | None]:
        said = ready(page).get_by_role("status")
        page.locator(".plot").focus()
        found = []
        for _ in long:
            page.keyboard.press("ArrowRight")
            found.append(said.text_content())
        return found

    assert browser.open(tmp_path / "two.html", do) == [
        "step 1: short 1, long 1",
        "step 2: short 1, long 2",
        "step 3: short 3, long 3",
        "step 4: long 4",
        "step 5: long 5",
    ]


def test_rare_values_and_long_names_are_shown(browser: Browser, tmp_path: Path) -> None:
    values = np.array([[0.25], [np.nan], [0.75], [np.nan], [0.5]])
    panel = learning_curves([seeds_line("training", np.arange(5.0), values)], "won", {"doing nothing": 0.0})
    rows = [{"run": "a_run_" * 40, "score": "1.5"}, {"run": "b", "score": "2.5"}]
    body = joined_html(chart_element(0, Drawn(panel, "A title of an unusual kind", "")), html_table(rows, "Scores"))
    document = Page("Rare", Html(""), [Section("curves", "Curves", body)], [lines_data(panel)])
    (tmp_path / "rare.html").write_bytes(page_bytes(document, None))

    def do(page: Any) -> None:
        place = ready(page)
        assert has(place, BLUE), "values between unknown ones are dots"
        page.evaluate("""() => {
          window.said = [];
          const write = CanvasRenderingContext2D.prototype.fillText;
          CanvasRenderingContext2D.prototype.fillText = function (...given) {
            window.said.push(given[0]);
            write.apply(this, given);
          };
          ShoalCharts.charts[0].repaint();
        }""")
        until(page, "() => window.said.includes('doing nothing 0 %')")
        assert not page.locator(".scroll").evaluate("(x) => x.scrollWidth > x.clientWidth"), "the numbers are in sight"

    browser.open(tmp_path / "rare.html", do)


@pytest.mark.parametrize("name", ["run", "bad", "study"])
def test_a_phone_shows_it_without_sideways_scrolling(browser: Browser, pages: dict[str, Path], name: str) -> None:
    def do(page: Any) -> None:
        ready(page)
        for summary in page.locator("summary").all():
            summary.click()
        until(page, "() => ShoalCharts.charts.every((each) => each.place.dataset.ready)")
        until(page, f"() => {UNSAID}.length === 0")
        assert page.evaluate(WIDE) and page.evaluate(NARROW) == page.evaluate(BROKEN) == []
        page.set_viewport_size({"width": 800, "height": 600})
        until(page, "() => ShoalCharts.charts[0].plot().width > 360")
        assert page.evaluate(WIDE)

    browser.open(pages[name], do, width=360, height=740)


def test_nothing_of_a_hostile_folder_runs(browser: Browser, pages: dict[str, Path]) -> None:
    def do(page: Any) -> None:
        ready(page)
        assert page.evaluate("typeof window.pwned") == "undefined"
        assert page.evaluate("document.scripts.length") == SCRIPTS + 1 and page.locator("img").count() == 0
        for text in EVIL:
            assert page.get_by_text(text).count() > 0
        keys = {key.text_content() for key in page.locator(".key").all()}
        assert EVIL[0] in keys

    browser.open(pages["bad"], do)


def test_the_content_security_policy_blocks_other_scripts(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    """It is the second line of defence: a script that came through unescaped would not run."""
    came = (
        "<script>window.pwned=1</script><img src=x onerror=window.pwned=1><iframe src='data:text/html,x'></iframe><main"
    )
    text = pages["run"].read_text("utf-8").replace("<main", came, 1)
    (tmp_path / "bad.html").write_text(text, encoding="utf-8")
    found = []
    with pytest.raises(AssertionError, match="Content Security Policy") as error:
        browser.open(tmp_path / "bad.html", lambda page: found.append(page.evaluate("typeof window.pwned")))
    assert found == ["undefined"]
    for refused in ("script-src 'sha256-", "img-src data:", "default-src 'none'"):
        assert refused in str(error.value)


def test_tables_can_be_sorted_and_the_page_has_its_landmarks(browser: Browser, pages: dict[str, Path]) -> None:
    def do(page: Any) -> None:
        ready(page)
        table = page.locator("#runs table")
        column = "(table) => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent)"
        table.get_by_role("button", name="algorithm").click()
        assert table.evaluate(column) == ["mappo"] * 4 + ["qmix"] * 4
        table.get_by_role("button", name="algorithm").click()
        assert table.evaluate(column) == ["qmix"] * 4 + ["mappo"] * 4
        assert table.locator("th[aria-sort=descending]").count() == 1
        times = ["41.2 s", "2 min 13 s", "55 min 10 s", "1 h 05 min", "3 h 05 min"]
        fill = (
            "(table, times) => times.forEach((time, i) => { table.tBodies[0].rows[i].lastChild.textContent = time; })"
        )
        table.evaluate(fill, times[::-1])
        table.get_by_role("button", name="training").click()
        last = "(table) => [...table.tBodies[0].rows].map((row) => row.lastChild.textContent)"
        assert [time for time in table.evaluate(last) if time in times] == times
        for role in ("banner", "navigation", "main", "contentinfo"):
            assert page.get_by_role(role).count() == 1
        page.keyboard.press("Tab")
        page.evaluate("document.activeElement.blur(); document.body.focus()")
        assert page.locator("a.skip").get_attribute("href") == "#contents"
        for link in page.locator("nav a").all():
            assert page.locator(f"section{link.get_attribute('href')}").count() == 1

    browser.open(pages["study"], do)
