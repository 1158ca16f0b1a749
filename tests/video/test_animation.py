"""Animations have one picture per timestep, with discs, rings, trails and returns at their places."""

import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shoal.errors import InputError
from shoal.plots.texts import result_text
from shoal.types import Scene
from shoal.video import animation, encode
from shoal.video.animation import animate, contact_sheet
from shoal.video.picture import PAPER, draw_frame, rgb
from shoal.video.timeline import Timeline

BLUE, RED = (0.0, 0.447, 0.698), (0.835, 0.369, 0.0)


def scene(t: int, extent: float = 1.2, caption: str = "") -> Scene:
    """Agent 0 goes right along y = 0.6, agent 1 up along x = -0.6; one landmark stands at (0.5, -0.5)."""
    return Scene(
        centres=np.array([[-0.9 + 0.06 * t, 0.6], [-0.6, -0.9 + 0.05 * t], [0.5, -0.5]]),
        radii=np.array([0.12, 0.12, 0.1]),
        colours=np.array([BLUE, RED, (0.3, 0.3, 0.3)]),
        hollow=np.array([False, False, True]),
        labels=("agent_0", "agent_1", "landmark_0"),
        extent=extent,
        caption=caption,
    )


def rewards(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(length, 2)).round(2)


def read(path: Path) -> tuple[list[np.ndarray], list[int]]:
    """The pictures of a GIF and how long each is shown, in milliseconds."""
    pictures, durations = [], []
    with Image.open(path) as image:
        for i in range(image.n_frames):  # pyright: ignore
            image.seek(i)
            pictures.append(np.asarray(image.convert("RGB")))
            durations.append(image.info["duration"])
    return pictures, durations


def at(picture: Image.Image, x: float, y: float, extent: float = 1.2) -> np.ndarray:
    size = picture.width
    return np.array(picture.getpixel((round(size * (1 + x / extent) / 2), round(size * (1 - y / extent) / 2))))


def far(a: np.ndarray, b: tuple[int, ...]) -> int:
    return int(np.abs(a - np.array(b)).max())


def test_the_grid_of_a_large_scene_leaves_its_ground() -> None:
    """Lines at every half would cover a scene that is measured in metres or pixels."""
    for extent in (1.2, 1000.0):
        picture = np.asarray(draw_frame(scene(0, extent), 480))
        assert (np.abs(picture.astype(int) - PAPER).max(axis=2) <= 2).mean() > 0.5, extent


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float, float]]:
    """The texts of pictures, with their left and right ends."""
    found: list[tuple[str, float, float]] = []

    class Pen(type(animation.ImageDraw.Draw(Image.new("RGB", (1, 1))))):
        def text(self, xy, text, fill, font, anchor):
            right = xy[0] + font.getlength(text) if anchor == "lm" else xy[0]
            found.append((text, right - font.getlength(text), right))

    monkeypatch.setattr(animation.ImageDraw, "Draw", Pen)
    return found


def test_small_rewards_are_whole(tmp_path: Path, drawn: list[tuple[str, float, float]]):
    paid = np.array([[1.64734e-4], [-2.39823e-4], [0.0], [1e-9]])
    animate(None, np.tile(paid, 2), tmp_path / "a.png", names=("a", "b"), scores=lambda paid: paid[:, 0])
    texts = {text for text, left, _ in drawn if left >= 0}
    assert texts >= {"0.0001647", "−0.0002398", "reward", "team return", "0.00016", "−0.00008"}
    assert len(texts) == len({text for text, _, _ in drawn}) and not any("-" in text for text in texts)
    drawn.clear()
    animate(None, np.array([[0.01, 0.01], [-0.02, -0.02], [1e3, 1e3]]), tmp_path / "a.png")
    assert {text for text, _, _ in drawn} >= {"1000", "−0.02", "0.0", "2000.0"}


def test_long_results_and_returns_are_whole(tmp_path: Path, drawn: list[tuple[str, float, float]]):
    frames = np.full((3, 60, 80, 3), 120, np.uint8)
    title, result = (
        "mappo · pettingzoo:sisl/multiwalker_v9",
        "distance 12.34, collisions 3, occupied 1.5, reached 33.3 %",
    )
    animate(frames, np.full((3, 3), -45678.9), tmp_path / "a.png", title=title, results=[result])
    places = {text: (left, right) for text, left, right in drawn}
    assert all(14 <= left < right <= 494 for left, right in places.values())
    assert title in places and result in places
    assert places["team return"][1] + 5 < min(left for text, (left, _) in places.items() if text.startswith("−"))
    animate(frames, None, tmp_path / "a.png", title="x" * 200, results=["won"])
    assert any(text.startswith("xxx") and text.endswith("…") and right <= 494 for text, _, right in drawn)


def test_squares_have_corners_and_what_is_absent_is_not_drawn():
    one = scene(5)._replace(square=np.array([True, False, False]), labels=("", "", ""))
    x, y = one.centres[0] + 0.11  # beyond the circle of the same radius
    picture = draw_frame(one, 400, [scene(4)])
    assert far(at(picture, x, y), rgb(np.array(BLUE))) < 25 and far(at(draw_frame(scene(5), 400), x, y), PAPER) < 25
    gone = one._replace(centres=np.where(np.arange(3)[:, None] == 0, np.nan, one.centres))
    assert far(at(draw_frame(gone, 400, [one]), *one.centres[0]), PAPER) < 25
    assert far(at(draw_frame(gone, 400), *one.centres[1]), rgb(np.array(RED))) < 25


def test_discs_are_filled_rings_are_not_and_up_is_up():
    picture = draw_frame(scene(5), 400)
    assert picture.size == (400, 400)
    assert far(at(picture, -0.6, 0.6), rgb(np.array(BLUE))) == 0
    assert far(at(picture, -0.6, -0.65), rgb(np.array(RED))) == 0
    assert far(at(picture, 0.5, -0.5), rgb(np.array((0.3, 0.3, 0.3)))) > 100  # the hollow middle
    assert far(at(picture, 0.59, -0.5), rgb(np.array((0.3, 0.3, 0.3)))) < 40  # its rim
    assert far(at(picture, 0.9, 0.87), PAPER) == 0


def test_the_trail_shows_where_agents_were():
    with_trail, without = (draw_frame(scene(8), 400, past) for past in ([scene(t) for t in range(8)], []))
    for t in (3, 5):
        x, y = scene(t).centres[0]
        assert far(at(without, x, y), PAPER) < 20
        assert far(at(with_trail, x, y), PAPER) > 40
    fresh, old = (far(at(with_trail, *scene(t).centres[0]), PAPER) for t in (5, 1))
    assert fresh > old > 0  # fading


def test_labels_do_not_cover_each_other():
    near = scene(0)._replace(centres=np.array([[0.0, 0.0], [0.1, 0.0], [-0.1, 0.0]]), radii=np.full(3, 0.03))
    apart = [near._replace(labels=tuple(n if i == k else "" for i, n in enumerate(near.labels))) for k in range(3)]
    blank = np.asarray(draw_frame(near._replace(labels=("", "", "")), 480)).astype(int)
    inks = [int((np.asarray(draw_frame(s, 480)).astype(int) != blank).any(2).sum()) for s in apart]
    together = int((np.asarray(draw_frame(near, 480)).astype(int) != blank).any(2).sum())
    assert min(inks) > 100 and together > 0.95 * sum(inks)


@pytest.fixture(scope="module")
def two_episodes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    path = tmp_path_factory.mktemp("gif") / "replay.gif"
    frames = [scene(t) for _ in range(2) for t in range(26)]
    start = time.process_time()  # of this process: other processes do not count
    done = animate(frames, rewards(52), path, title="Two episodes", first=[t % 26 == 0 for t in range(52)])
    assert done == path
    return path, time.process_time() - start


def test_a_gif_has_every_timestep(two_episodes: tuple[Path, float]):
    path, seconds = two_episodes
    assert seconds < 5 and path.stat().st_size < 1_000_000
    pictures, durations = read(path)
    assert len(pictures) == 52
    assert all((a != b).any() for a, b in pairwise(pictures))
    assert pictures[0].shape[1] == 480 + 28 and (pictures[0][:3] == 255).all()
    assert durations[25] == durations[51] == 1200 and set(durations[:25]) <= {120, 125, 130}


def test_the_trail_starts_anew_with_an_episode(two_episodes: tuple[Path, float]):
    pictures, _ = read(two_episodes[0])
    body = [picture[43:520, 15:490].astype(int) for picture in pictures]  # below the title, above the counter
    assert (np.abs(body[26] - body[0]).max(2) > 8).sum() == 0
    assert (np.abs(body[27] - body[1]).max(2) > 8).sum() == 0


def test_the_return_runs_per_episode_and_by_the_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[tuple[str, float]] = []
    panel = animation._panel

    def spy(body, title, clock, returns, now, caption):
        seen.append((clock, float(returns[now])))
        return panel(body, title, clock, returns, now, caption)

    monkeypatch.setattr(animation, "_panel", spy)
    frames, paid = [scene(t) for t in range(4)], np.array([[0, 0], [1, 2], [0, 0], [3, -1.0]])
    animate(frames, paid, tmp_path / "a.gif", first=[True, False, True, False])
    assert seen == [
        ("episode 1 of 2   step 0 of 1", 0.0),
        ("episode 1 of 2   step 1 of 1", 3.0),
        ("episode 2 of 2   step 0 of 1", 0.0),
        ("episode 2 of 2   step 1 of 1", 2.0),
    ]
    seen.clear()
    animate(
        frames, paid[1:], tmp_path / "b.gif", scores=lambda paid: paid.mean(-1)
    )  # one row fewer: the first frame earned nothing
    assert seen == [("step 0 of 3", 0.0), ("step 1 of 3", 1.5), ("step 2 of 3", 1.5), ("step 3 of 3", 2.5)]
    seen.clear()
    animate(None, paid, tmp_path / "c.gif", actions=np.zeros((4, 2), int))
    assert [clock for clock, _ in seen] == [f"step {t} of 4" for t in (1, 2, 3, 4)]


def test_the_title_says_how_each_episode_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    titles: list[list[str]] = []
    panel = animation._panel

    def spy(body, title, clock, returns, now, caption):
        titles.append(title)
        return panel(body, title, clock, returns, now, caption)

    monkeypatch.setattr(animation, "_panel", spy)
    frames, first = [scene(t) for t in range(4)], [True, False, True, False]
    results = [result_text({"won": 1.0, "kills": 3.0}), result_text({"won": 0.0})]
    ends = [(1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]
    said = [result_text({"won": won, "lost": lost}) for won, lost in ends]
    assert said == ["won", "lost", "draw"]
    animate(frames, None, tmp_path / "won.png", title="Team", first=first, results=results)
    assert titles == [["Team · won"], ["Team · won"], ["Team · lost"], ["Team · lost"]]
    titles.clear()
    animate(frames, None, tmp_path / "two.png", first=first, results=[result_text({"kills": 3.0, "hits": 0.5}), ""])
    assert titles == [["kills 3, hits 0.5000"]] * 2 + [[""]] * 2  # a line is kept free, so that all have one size
    with pytest.raises(InputError, match="2 episodes and 1 results"):
        animate(frames, None, tmp_path / "one.png", first=first, results=["won"])


def test_the_view_of_an_episode_does_not_jump():
    frames = [scene(0, 1.2), scene(1, 2.4), scene(2, 1.2)]
    renderer = animation._FrameRenderer(frames, 200)
    for t in range(3):
        assert far(at(renderer.draw(t, 0, 3), *frames[t].centres[0], extent=2.4), rgb(np.array(BLUE))) == 0
    assert far(at(renderer.draw(0, 0, 1), *frames[0].centres[0], extent=1.2), rgb(np.array(BLUE))) == 0


def test_captions_take_a_line_only_where_there_are_any(tmp_path: Path):
    heights = []
    for captions in (("", ""), ("", "speaker says B")):
        path = animate([scene(t, caption=c) for t, c in enumerate(captions)], None, tmp_path / "x.gif")
        heights.append(read(path)[0][1].shape[0])
    assert heights[1] > heights[0]


def test_arrays_are_frames_too(tmp_path: Path):
    frames = np.zeros((3, 4, 8, 3), np.uint8)
    frames[np.arange(3), 1, np.arange(3)] = (255, 0, 0)
    animate(frames, None, tmp_path / "grid.gif", size=320)
    pictures, _ = read(tmp_path / "grid.gif")
    assert len(pictures) == 3
    for t, picture in enumerate(pictures):
        body = picture[14 : 14 + 160, 14 : 14 + 320]
        assert body[60, 40 * t + 20, 0] > 250 and body[60, 40 * t + 20, 1] < 5
        assert body[20, 40 * t + 20].max() < 5
    as_floats = draw_frame(frames[0] / 255.0, 320)
    assert as_floats.getpixel((20, 60)) == (255, 0, 0)


def test_by_default_arrays_keep_their_width_within_limits(tmp_path: Path):
    for own, width in ((240, 480), (600, 600), (1200, 960)):
        animate(np.zeros((2, 100, own, 3), np.uint8), None, tmp_path / "wide.png")
        with Image.open(tmp_path / "wide.png") as sheet:
            assert sheet.width == 2 * (width + 28) + 12 + 28  # two pictures


def test_a_rare_colour_keeps_its_hue_in_a_gif(tmp_path: Path):
    frames = np.tile(np.random.default_rng(0).integers(80, 200, (1, 480, 480, 1), np.uint8), (2, 1, 1, 3))
    frames[:, :, :, 1] = frames[:, :, :, 1] // 2 + 90
    frames[:, 100:103, 100:120] = (148, 87, 180)
    animate(frames, None, tmp_path / "rare.gif")
    assert far(read(tmp_path / "rare.gif")[0][0][14 + 101, 14 + 110].astype(int), (148, 87, 180)) < 12


@pytest.mark.parametrize("actions", [np.arange(20).reshape(10, 2) % 5, np.linspace(-1, 1, 60).reshape(10, 2, 3)])
def test_without_frames_a_timeline_fills_from_left_to_right(tmp_path: Path, actions: np.ndarray):
    for drawn, paid in ((actions, None), (None, rewards(10)), (actions, rewards(10))):
        animate(None, paid, tmp_path / "timeline.gif", actions=drawn, names=("scout_0", "scout_1"))
        pictures, _ = read(tmp_path / "timeline.gif")
        assert len(pictures) == 10
        body = [picture[15:70].astype(int) for picture in pictures]
        right = [np.flatnonzero((np.abs(b - body[0]).max(2) > 8).any(0)).max() for b in body[1:]]
        assert right == sorted(right) and len(set(right)) == 9


def test_a_discrete_action_has_its_colour():
    timeline = Timeline(np.array([[0, 1], [1, 1]]), None, None, 300)
    picture = timeline.draw(1, 0, 2)
    colours = [[picture.getpixel((x, y)) for x in (timeline.gutter + 9, 280)] for y in (15, 55)]
    assert colours[0][0] != colours[0][1] == colours[1][0] == colours[1][1]


def test_a_timeline_of_many_agents_stays_a_picture():
    """64 agents have rows, and a line says how many others there are; GIF and Pillow have limits of the height."""
    few, many = (Timeline(np.zeros((2, n), int), np.ones((2, n)), None, 300).draw(1, 0, 2) for n in (64, 4000))
    assert few.height < many.height < few.height + 30
    row = np.asarray(many.crop((1, many.height - 62, 299, many.height - 38))).astype(int)  # above that of the rewards
    assert np.ptp(row, axis=(0, 1)).max() > 100  # a text
    own = Timeline(None, np.eye(2, 4000), tuple(map(str, range(4000))), 300).draw(0, 0, 2)
    assert own.height < 2000


def test_the_timeline_shows_actions_and_rewards(tmp_path: Path):
    def last(actions: np.ndarray, paid: np.ndarray | None) -> np.ndarray:
        animate(None, paid, tmp_path / "x.gif", actions=actions)
        return read(tmp_path / "x.gif")[0][-1]

    base = np.zeros((4, 2), int)
    other = base.copy()
    other[2, 1] = 1
    assert (last(base, None) != last(other, None)).any()
    team = np.array([[1.0, 1.0], [-1, -1], [0, 0], [2, 2]])
    assert last(base, team).shape != last(base, team * [1, 2]).shape  # one row for a shared reward


@pytest.mark.parametrize("length", [450, 470, 1111, 5000])
def test_an_episode_with_more_steps_than_columns(tmp_path: Path, length: int):
    """Of the steps in one column the most frequent action is drawn, and the largest reward."""
    actions = np.repeat([[0], [3]], (length // 2, length - length // 2), axis=0)
    paid = np.zeros((length, 1))
    paid[length // 4] = -2.0
    timeline = Timeline(actions, paid, None, 480)
    picture = np.asarray(timeline.draw(length - 1, 0, length)).astype(int)
    row = picture[15, timeline.gutter + 1 : 466]
    assert len(np.unique(row, axis=0)) == 2 and not (np.diff(row, axis=0) != 0).any(1).sum() > 1
    assert abs(np.flatnonzero((np.diff(row, axis=0) != 0).any(1))[0] - len(row) / 2) <= 2
    bar = np.flatnonzero((picture[:, timeline.gutter + 1 : 466] == (213, 94, 0)).all(2).any(0))
    assert len(bar) >= 1 and np.abs(bar - len(row) / 4).max() <= 2
    half = np.asarray(timeline.draw(length // 3, 0, length)).astype(int)[15, timeline.gutter + 1 : 466]
    filled = np.flatnonzero((half != 255).any(1))
    assert filled.min() == 0 and abs(filled.max() - len(row) / 3) <= 2
    animate(None, paid, tmp_path / "long.gif", actions=actions)
    pictures, _ = read(tmp_path / "long.gif")
    assert 100 < len(pictures) <= timeline.columns


def test_the_most_frequent_action_of_a_column_is_drawn():
    actions = np.array([[0], [5], [5], [5], [5]] * 400)
    timeline, plain = Timeline(actions, None, None, 480), Timeline(np.full((3, 1), 5), None, None, 480)
    drawn, wanted = timeline.draw(1999, 0, 2000), plain.draw(2, 0, 3)
    assert {drawn.getpixel((x, 15)) for x in range(timeline.gutter + 1, 466, 7)} == {
        wanted.getpixel((plain.gutter + 5, 15))
    }


@pytest.mark.parametrize("actions", [np.zeros((5, 2), int), np.zeros((5, 2, 3)), None])
def test_long_names_and_rewards_that_are_no_numbers_are_drawn(tmp_path: Path, actions: np.ndarray | None):
    paid = np.array([[np.nan, np.inf], [-np.inf, 1.0], [0, 0], [1, 2], [3, 4]])
    animate(None, paid, tmp_path / "x.gif", actions=actions, names=("x" * 300, "a_b"))
    assert len(read(tmp_path / "x.gif")[0]) == 5


def test_a_very_long_episode_is_subsampled(tmp_path: Path):
    shades = np.arange(26, dtype=np.uint8)[:, None, None, None] * 9
    animate(np.broadcast_to(shades, (26, 32, 32, 3)), None, tmp_path / "x.gif", size=32, most=6)
    pictures, _ = read(tmp_path / "x.gif")
    seen = [int(picture[20, 30, 0]) for picture in pictures]
    assert len(seen) == 6 and np.abs(np.array(seen) - np.arange(0, 26, 5) * 9).max() <= 9


def test_the_affordable_number_of_frames_follows_the_cost_of_one(monkeypatch: pytest.MonkeyPatch):
    clock = iter([0.0, 0.5])  # a frame takes half a second
    monkeypatch.setattr("shoal.video.animation.time.process_time", lambda: next(clock))
    assert animation.affordable_frames([scene(t) for t in range(3)], 5.0) == 10
    clock = iter([0.0, 60.0])
    assert animation.affordable_frames([scene(0)], 5.0) == 2


def test_a_sheet_shows_frames_at_equal_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    steps: list[str] = []
    captioned = animation._captioned
    monkeypatch.setattr(animation, "_captioned", lambda body, text: steps.append(text) or captioned(body, text))
    frames = [scene(t) for t in range(26)]
    contact_sheet(frames, tmp_path / "sheet.png", columns=6, title="Spread")
    assert steps == [f"step {t}" for t in (0, 5, 10, 15, 20, 25)]
    with Image.open(tmp_path / "sheet.png") as image:
        assert image.size == (2 * 14 + 6 * 240 + 5 * 12, 14 + 32 + 264 + 14)
    contact_sheet(frames[:3], tmp_path / "few.png", columns=2, rows=2, size=100)
    with Image.open(tmp_path / "few.png") as image:
        assert image.size == (2 * 14 + 212, 2 * 14 + 2 * 124 + 12)
    animate(frames, rewards(26), tmp_path / "replay.png")
    with Image.open(tmp_path / "replay.png") as image:
        assert image.width == 2 * 14 + 4 * 508 + 3 * 12


def test_mp4_goes_through_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="requires the program ffmpeg"):
        animate([scene(0)], None, tmp_path / "x.mp4")
    stand_in = tmp_path / "ffmpeg"
    stand_in.write_text('#!/bin/sh\nfor last; do :; done\n/bin/cat > "$last"\n')
    stand_in.chmod(0o755)
    images = [Image.new("RGB", (5, 4)), Image.new("RGB", (5, 4), (255, 0, 0))]
    encode.write_video(tmp_path / "x.mp4", images, [0.1, 0.3])
    data = (tmp_path / "x.mp4").read_bytes()
    assert data == bytes(4 * 4 * 3) + bytes([255, 0, 0]) * 16 * 3  # even sides; the last frame three times as long
    stand_in.write_text("#!/bin/sh\necho no such codec >&2\nexit 1\n")
    with pytest.raises(InputError, match=r"ffmpeg could not write 'x.mp4': no such codec"):
        encode.write_video(tmp_path / "x.mp4", images, [0.1, 0.3])


def test_bad_requests_are_one_sentence(tmp_path: Path):
    gif, frames = tmp_path / "x.gif", [scene(t) for t in range(4)]
    for wrong, sentence in (
        (lambda: animate(frames, None, tmp_path / "x.avi"), "not 'x.avi'"),
        (lambda: animate([], None, gif), "at least one frame"),
        (lambda: animate(None, None, gif), "requires frames, or the actions"),
        (lambda: animate(frames, rewards(7), gif), "4 frames and 7 rows"),
        (lambda: animate(frames, None, gif, first=[True, False]), "one entry for each of the 4 frames"),
        (lambda: animate([np.zeros((4, 4))], None, gif), r"not an array \(4, 4\)"),
        (lambda: animate([np.zeros((4, 4, 3)), np.zeros((4, 8, 3))], None, gif), "must have the same size"),
        (lambda: animate(None, rewards(4), gif, actions=np.zeros((5, 2), int)), "5 steps and 2 agents"),
        (lambda: animate(None, rewards(4), gif, names=("a",)), "2 agents and 1 names"),
        (lambda: contact_sheet([], tmp_path / "x.png"), "at least one frame"),
        (lambda: contact_sheet(frames, gif), "not 'x.gif'"),
    ):
        with pytest.raises(InputError, match=sentence):
            wrong()
    assert not gif.exists() and not list(tmp_path.iterdir())


def test_pictures_are_unpacked_as_they_were():
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (7, 5 + i % 2, 3), np.uint8)) for i in range(4)]
    packed = encode.Packed()
    for image in images:
        packed.append(image)
    assert len(packed) == 4 and packed.sizes == {(5, 7), (6, 7)}
    assert [image.tobytes() for image in packed] == [image.tobytes() for image in images]
    assert [image.size for image in packed[1:3]] == [(6, 7), (5, 7)]
