"""A bounded field of cells, draws without replacement on it, and pictures of it."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.environments.options import check_count
from shoal.environments.outlines import BLUE, GREEN, ORANGE, body
from shoal.errors import InputError
from shoal.types import Outline

GONE = -(1 << 20)
"""The cell of agents and prey that have left the field; beyond the view and reach of every real cell."""
MAX_SIDE = 256
"""Largest number of rows or columns, so that cells are far from :data:`GONE`."""


@dataclass(frozen=True)
class Field:
    """``rows`` × ``columns`` cells, numbered row by row with a gap of ``reach`` numbers after each row.

    The gap makes the difference of two numbers unambiguous: within ``reach`` columns of a cell of the field, ``other -
    own`` is ``rows apart · stride + columns apart`` for that offset alone. So one subtraction says who stands where.
    """

    rows: int
    columns: int
    reach: int

    @property
    def stride(self) -> int:
        """The difference between a cell and the one below."""
        return self.columns + self.reach

    @property
    def cells(self) -> np.ndarray:
        """[rows · columns], the number of every cell, row by row."""
        return np.add.outer(np.arange(self.rows) * self.stride, np.arange(self.columns)).reshape(-1)

    @property
    def moves(self) -> np.ndarray:
        """[4], what a move right, down, left or up adds."""
        return np.array([1, self.stride, -1, -self.stride], np.int32)

    def window(self, radius: int) -> np.ndarray:
        """[(2 · radius + 1)²], the offsets of a square around a cell, row by row; ``radius`` is at most ``reach``."""
        side = np.arange(-radius, radius + 1)
        return np.add.outer(side * self.stride, side).reshape(-1)

    def inside(self, cell: Int[Array, "*k"]) -> Bool[Array, "*k"]:
        """Whether it is a cell of the field, for one at most ``reach`` columns from it."""
        return (cell >= 0) & (cell < self.rows * self.stride) & (cell % self.stride < self.columns)

    def place(self, cell: Int[Array | np.ndarray, "*k"]) -> tuple[Array | np.ndarray, Array | np.ndarray]:
        """Rows and columns of cells of the field."""
        return cell // self.stride, cell % self.stride


def distinct(draws: Float[Array, " K"], among: int) -> Int[Array, " K"]:
    """K different numbers below ``among``, every sequence equally likely, from K independent draws in [0, 1).

    Draw i picks one of the ``among - i`` numbers left, by its place among them; such a sequence (a Lehmer code) is
    decoded without sorting. With K = ``among`` it is a random permutation.
    """
    index = np.arange(draws.shape[0])
    code = jnp.floor(draws * (among - index)).astype(jnp.int32)
    for i in range(len(index) - 2, -1, -1):
        code = code + ((index > i) & (code >= code[i]))
    return code


def scattered(key: PRNGKeyArray, field: Field, free: Bool[np.ndarray, " C"], count: int) -> Int[Array, " count"]:
    """Different free cells, drawn one after another, each uniformly from those not adjacent to an earlier one.

    Where none of these is left, it is drawn from the free cells that are left.

    Args:
        key: key of the draws.
        field: the field, with C cells.
        free: which of :attr:`Field.cells` may be drawn; at least ``count``.
        count: number of cells.
    """
    cells = jnp.asarray(field.cells)
    # The cell of the largest random number is uniform among those allowed, also after earlier draws.
    luck = jax.random.uniform(key, cells.shape) - 4.0 * ~free

    def draw(i: Int[Array, ""], carry: tuple[Array, Array]) -> tuple[Array, Array]:
        luck, chosen = carry
        best = jnp.argmax(luck)
        # Neighbours come after all cells that have none, and cells that are taken after these.
        near = (cells[:, None] - cells[best] == np.append(field.moves, 0)).any(1)
        lowered = jnp.where(near & (luck > 0), luck - 1.0, luck)
        return lowered.at[best].add(-2.0), chosen.at[i].set(cells[best])

    return jax.lax.fori_loop(0, count, draw, (luck, jnp.zeros(count, jnp.int32)))[1]


def check_sides(grid: int | tuple[int, int], least: int = 1) -> tuple[int, int]:
    """The rows and columns that the option ``grid`` names; an :class:`InputError` where it is out of range."""
    sides = tuple(grid) if isinstance(grid, tuple | list) else (grid, grid)
    if len(sides) != 2:
        raise InputError(f"grid must be numbers of rows and columns such as (10, 10), not {grid!r}.")
    rows, columns = (check_count("each side of grid", side, least, MAX_SIDE) for side in sides)
    return rows, columns


# A field as an :class:`Outline`: agents are numbered discs, prey squares, remaining numbers are in the caption.


def field_outline(
    field: Field,
    agents: Int[Array | np.ndarray, " N"],
    prey: Int[Array | np.ndarray, " M"],
    stags: int,
    actions: tuple[str, ...],
    view: int,
) -> Outline:
    """One unbatched timestep in numbers; cells are unit squares, and who has left the field is absent."""
    cells, n = np.concatenate([np.asarray(agents), np.asarray(prey)]), len(agents)
    bodies = [body(f"agent_{i}", "disc", 0.34, BLUE, agent=i, text=str(i)) for i in range(n)]
    bodies += [body("", "square", 0.32, ORANGE) for _ in range(stags)]
    bodies += [body("", "square", 0.2, GREEN) for _ in range(len(prey) - stags)]
    kinds = ("agent", "stag", "hare")[: 2 + (len(prey) > stags)]
    features = view_features(view, kinds, ("up", "down"))
    left = (cells == GONE).astype(int)
    caption = f"{left[n:].sum()} of {len(prey)} animals captured, {n - left[:n].sum()} of {n} agents on the field"
    return cells_outline(field, cells, bodies, [list(actions)] * n, [features] * n, caption, upwards=False)


def cells_outline(
    field: Field,
    cells: Int[np.ndarray, " K"],
    bodies: list[dict[str, Any]],
    actions: list[list[str]],
    features: list[list[str]],
    caption: str,
    upwards: bool,
) -> Outline:
    """An outline of K ``bodies`` in the middle of their ``cells``; what is ``GONE`` is absent.

    ``upwards`` says whether rows are numbered from the bottom.
    """
    row, column = (np.where(cells == GONE, np.nan, place) for place in field.place(cells))
    fixed = {"box": [0, 0, field.columns, field.rows], "cell": 1, "bodies": bodies}
    fixed |= {"actions": actions, "features": features}
    y = row + 0.5 if upwards else field.rows - row - 0.5
    return Outline("bodies", fixed, {"x": column + 0.5, "y": y}, caption)


def view_features(view: int, kinds: tuple[str, ...], rows: tuple[str, str]) -> list[str]:
    """The names of the numbers that an agent observes in a square around it.

    Args:
        view: number of cells in each direction.
        kinds: what is observed of each cell.
        rows: where lower and higher rows are, for example ``("up", "down")``.
    """
    side = range(-view, view + 1)
    return [f"{kind} {_offset(row, right, rows)}" for row in side for right in side for kind in kinds]


def _offset(row: int, right: int, rows: tuple[str, str]) -> str:
    """A cell of a view in words."""
    words = [f"{abs(d)} {ways[d > 0]}" for d, ways in ((row, rows), (right, ("left", "right"))) if d]
    return ", ".join(words) or "here"
