"""A bounded field of cells, and draws without replacement on it."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from shoal.environments.options import check_count
from shoal.errors import InputError

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
