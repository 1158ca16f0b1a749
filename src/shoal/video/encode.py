"""Encode pictures as an animated GIF, as an MP4 through ffmpeg, or as a contact sheet."""

import base64
import io
import shutil
import subprocess
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
from PIL import Image, ImageDraw

from shoal.errors import InputError
from shoal.system.files import replacing, write_bytes
from shoal.video.picture import INK, PAPER, WHITE, font

_COLOURS, _RARE = 128, 24
"""Number of colours of a GIF, whose frames share one palette to avoid flicker; fewer colours make a smaller file. The
second number is that of colours chosen because they differ most from the others, not by frequency."""
_STILLS = 12
_GAP, _MARGIN, _TITLE = 12, 14, 32


class Packed(Sequence[Image.Image]):
    """RGB pictures that are kept compressed: hundreds of wide frames would take gigabytes."""

    def __init__(self) -> None:
        self._kept: list[tuple[tuple[int, int], bytes]] = []

    def append(self, image: Image.Image) -> None:
        """Add a picture."""
        self._kept.append((image.size, zlib.compress(image.tobytes(), 1)))

    @property
    def sizes(self) -> set[tuple[int, int]]:
        """The sizes of all pictures."""
        return {size for size, _ in self._kept}

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, index: int) -> Image.Image: ...

    @overload
    def __getitem__(self, index: slice) -> list[Image.Image]: ...

    def __getitem__(self, index: int | slice) -> Image.Image | list[Image.Image]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        size, data = self._kept[index]
        return Image.frombytes("RGB", size, zlib.decompress(data))


def check_format(path: Path) -> None:
    """Check that ``path`` can be written, before anything is drawn.

    Raises:
        InputError: its suffix is not one of .gif, .png and .mp4, or it is .mp4 and there is no ffmpeg.
    """
    if path.suffix not in (".gif", ".png", ".mp4"):
        raise InputError(f"The name of a replay must end in .gif, .png or .mp4, not {path.name!r}.")
    if path.suffix == ".mp4" and shutil.which("ffmpeg") is None:
        raise InputError("Writing .mp4 requires the program ffmpeg, which is not installed; write a .gif instead.")


def write_video(path: Path, images: Sequence[Image.Image], seconds: Sequence[float]) -> None:
    """Write ``images``, each shown for its ``seconds``; a ``.png`` is a contact sheet of at most 12 of them.

    Raises:
        InputError: see :func:`check_format`; or ffmpeg failed.
        WriteError: the disk is full, or the folder does not exist.
    """
    check_format(path)
    if path.suffix == ".png":
        chosen = np.unique(np.linspace(0, len(images) - 1, min(_STILLS, len(images))).round().astype(int))
        write_sheet(path, [images[int(i)] for i in chosen], min(4, len(chosen)))
    elif path.suffix == ".mp4":
        _write_mp4(path, images, seconds)
    else:
        _write_gif(path, images, seconds)


def write_sheet(path: Path, images: Sequence[Image.Image], columns: int, title: str = "") -> None:
    """Write pictures as one PNG, ``columns`` per row.

    Raises:
        InputError: their sizes differ.
    """
    if len({image.size for image in images}) > 1:
        raise InputError("All frames of a contact sheet must have the same size.")
    width, height = images[0].size
    columns = min(columns, len(images))
    rows, top = -(-len(images) // columns), _MARGIN + (_TITLE if title else 0)
    sheet = Image.new(
        "RGB",
        (2 * _MARGIN + columns * (width + _GAP) - _GAP, top + rows * (height + _GAP) - _GAP + _MARGIN),
        WHITE,
    )
    if title:
        ImageDraw.Draw(sheet).text((_MARGIN, _MARGIN + 8), title, INK, font(17, bold=True), anchor="lm")
    for i, image in enumerate(images):
        sheet.paste(image, (_MARGIN + i % columns * (width + _GAP), top + i // columns * (height + _GAP)))
    _save(path, sheet, "PNG", optimize=True)


def _write_gif(path: Path, images: Sequence[Image.Image], seconds: Sequence[float]) -> None:
    samples = [images[int(i)] for i in np.unique(np.linspace(0, len(images) - 1, min(8, len(images))).round())]
    strip = Image.new("RGB", (images[0].width, sum(image.height for image in samples)))
    for i, image in enumerate(samples):
        strip.paste(image, (0, i * image.height))
    averages, rare = (
        np.asarray(strip.quantize(count, method=method).getpalette()).reshape(-1, 3)
        for count, method in ((_COLOURS, Image.Quantize.MEDIANCUT), (_RARE, Image.Quantize.MAXCOVERAGE))
    )
    # Quantised, the background would be tinted; a small shape in a colour of its own would turn grey.
    exact = np.concatenate([[WHITE, PAPER, INK], rare])
    far = np.abs(averages[:, None] - exact).max(axis=2).min(axis=1) > 10
    palette = Image.new("P", (1, 1))
    palette.putpalette(np.concatenate([exact, averages[far]]).ravel().tolist())
    plain = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    _save(
        path,
        plain[0],
        "GIF",
        save_all=True,
        append_images=plain[1:],
        duration=[round(1000 * length) for length in seconds],
        loop=0,
        optimize=False,
    )


def _save(path: Path, image: Image.Image, kind: str, **options: Any) -> None:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    write_bytes(path, buffer.getvalue())


def _write_mp4(path: Path, images: Sequence[Image.Image], seconds: Sequence[float]) -> None:
    """Pipe the frames to ffmpeg; one shown longer than the shortest is repeated. H.264 requires even sides."""
    tick = min(seconds)
    width, height = (side - side % 2 for side in images[0].size)
    command = ["ffmpeg", "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
    command += ["-r", f"{1 / tick:g}", "-i", "-", "-pix_fmt", "yuv420p"]
    data = b"".join(
        image.crop((0, 0, width, height)).tobytes() * max(1, round(length / tick))
        for image, length in zip(images, seconds, strict=True)
    )
    with replacing(path) as temporary:
        done = subprocess.run([*command, str(temporary)], input=data, capture_output=True, check=False)
        if done.returncode:
            message = " ".join(done.stderr.decode(errors="replace").split())
            raise InputError(f"ffmpeg could not write {path.name!r}: {message}")


@dataclass(frozen=True)
class Picture:
    """A picture that was written to a file; ``open`` and ``Path`` accept it in place of its path."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def _repr_html_(self) -> str | None:
        """The picture for a notebook; None for a film, of which the path is shown."""
        if self.path.suffix not in (".gif", ".png"):
            return None
        data = base64.b64encode(self.path.read_bytes()).decode()
        return f'<img alt="" style="max-width:100%" src="data:image/{self.path.suffix[1:]};base64,{data}">'
