"""Replays: an animated GIF of episodes, with trails, a step counter and the running team return."""

import shutil
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Shaped
from PIL import Image, ImageDraw

from shoal.errors import InputError
from shoal.records.picture import EDGE, FAINT, INK, WHITE, Frame, draw, font
from shoal.records.strips import Strips
from shoal.types import Scene

MARGIN = 14
_LINE = 20
_SPARK = 34
_ACCENT = (0, 114, 178)
"""Where the return is drawn."""
_LAST_FRAME_SECONDS = 1.2
