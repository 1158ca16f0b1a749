"""A picture in a file, which notebooks show."""

import base64
from dataclasses import dataclass
from pathlib import Path


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
