"""Dirichlet data on the edge of the whole domain: the value type and how it is made."""

from dataclasses import dataclass

import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.expressions import Expression
from mosaicdd.problems.fields.gaussian_process import sample_closed_curve


@dataclass(frozen=True)
class Boundary:
    """Values on the four edges of a rectangle; corners stand in two edges.

    Parameters
    ----------
    bottom, top
        ``(nx + 1,)``, left to right.
    left, right
        ``(ny + 1,)``, bottom to top.

    Raises
    ------
    ValueError
        If opposite edges differ in length, a value is not finite, or two edges disagree in their
        common corner.
    """

    bottom: np.ndarray
    top: np.ndarray
    left: np.ndarray
    right: np.ndarray

    EDGES = ("bottom", "top", "left", "right")
    # Two edges and where each of them has their common corner.
    CORNERS = (
        ("bottom", 0, "left", 0),
        ("bottom", -1, "right", 0),
        ("top", 0, "left", -1),
        ("top", -1, "right", -1),
    )

    def __post_init__(self) -> None:
        for name in self.EDGES:
            edge = np.asarray(getattr(self, name), dtype=float)
            object.__setattr__(self, name, edge)
            if edge.ndim != 1 or len(edge) < 2:
                raise ValueError(
                    f"boundary edge {name} must be one row of values, got {edge.shape}"
                )
            bad = np.flatnonzero(~np.isfinite(edge))
            if len(bad):
                raise ValueError(
                    f"boundary edge {name} has {len(bad)} of {len(edge)} values that are not "
                    f"finite, the first at node {bad[0]}"
                )
        for one, other in (("bottom", "top"), ("left", "right")):
            a, b = len(getattr(self, one)), len(getattr(self, other))
            if a != b:
                raise ValueError(f"boundary edges {one} ({a} nodes) and {other} ({b}) differ")
        self._check_corners()

    def _check_corners(self) -> None:
        scale = max(np.abs(getattr(self, name)).max() for name in self.EDGES)
        for one, i, other, j in self.CORNERS:
            a, b = getattr(self, one)[i], getattr(self, other)[j]
            if abs(a - b) > 1e-12 * scale:
                raise ValueError(
                    f"boundary edges {one} and {other} must be equal in their common corner, "
                    f"got {a:.17g} and {b:.17g}"
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells per axis, ``(ny, nx)``."""
        return len(self.left) - 1, len(self.bottom) - 1

    def edge(self, axis: int, end: int) -> np.ndarray:
        """Return the edge at the low (``end = 0``) or high (-1) end of an axis, (y, x)."""
        return ((self.bottom, self.top), (self.left, self.right))[axis][end]

    def every(self, apart: int) -> "Boundary":
        """Return the values at every so many nodes, which must divide the cells of the edges."""
        return Boundary(*(getattr(self, name)[::apart] for name in self.EDGES))

    def impose(self, field: np.ndarray) -> np.ndarray:
        """Write the values to the edge of ``field``, ``(ny + 1, nx + 1)``, and return it."""
        field[0], field[-1], field[:, 0], field[:, -1] = (
            self.bottom,
            self.top,
            self.left,
            self.right,
        )
        return field

    def spanned(self, rows: slice, columns: slice) -> np.ndarray:
        """Return a smooth surface over some nodes that has these values on its edges, see `at`."""
        return self.at(
            np.arange(rows.start, rows.stop)[:, None], np.arange(columns.start, columns.stop)
        )

    def at(self, y: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return a smooth surface that has these values on its edges (Coons, 1967), at places in cells."""
        ny, nx = self.shape
        bottom, top = (np.interp(x, np.arange(nx + 1), edge) for edge in (self.bottom, self.top))
        left, right = (np.interp(y, np.arange(ny + 1), edge) for edge in (self.left, self.right))
        y, x = y / ny, x / nx
        low = (1 - x) * self.bottom[0] + x * self.bottom[-1]
        high = (1 - x) * self.top[0] + x * self.top[-1]
        along, across = (1 - y) * bottom + y * top, (1 - x) * left + x * right
        return along + across - (1 - y) * low - y * high

    def require_shape(self, grid: Grid) -> None:
        """Check that the values belong to ``grid``.

        Raises
        ------
        ValueError
            If they do not, with both sizes.
        """
        if self.shape != grid.shape:
            (ny, nx), (want_y, want_x) = self.shape, grid.shape
            raise ValueError(
                f"the boundary data are for {nx}x{ny} cells (edges of {nx + 1} and {ny + 1} "
                f"nodes), the problem has {want_x}x{want_y} (edges of {want_x + 1} and "
                f"{want_y + 1} nodes)"
            )

    @classmethod
    def of_field(cls, field: np.ndarray) -> "Boundary":
        """Take the edge of a field, ``(ny + 1, nx + 1)``."""
        return cls(bottom=field[0], top=field[-1], left=field[:, 0], right=field[:, -1])

    @classmethod
    def of_perimeter(cls, values: np.ndarray, grid: Grid) -> "Boundary":
        """Unroll ``(2 (ny + nx),)`` values, counter-clockwise from the lower-left corner."""
        ny, nx = grid.shape
        closed = np.append(values, values[0])
        return cls(
            bottom=closed[: nx + 1],
            right=closed[nx : nx + ny + 1],
            top=closed[nx + ny : 2 * nx + ny + 1][::-1],
            left=closed[2 * nx + ny :][::-1],
        )

    @classmethod
    def of_expression(cls, text: str | Expression, grid: Grid) -> "Boundary":
        """Evaluate an expression in ``x`` and ``y``, or its text, on the edge.

        Raises
        ------
        ValueError
            If the expression is not allowed or not finite on the edge.
        """
        expression = Expression(text) if isinstance(text, str) else text
        y, x = (np.linspace(0.0, s, n) for s, n in zip(grid.size, grid.nodes, strict=True))
        return cls(
            bottom=expression(y=0.0, x=x),
            top=expression(y=y[-1], x=x),
            left=expression(y=y, x=0.0),
            right=expression(y=y, x=x[-1]),
        )

    @classmethod
    def of_gaussian_process(
        cls,
        grid: Grid,
        *,
        seed: int = 0,
        length: float | None = None,
        amplitude: float = 1.0,
        noise: float = 0.0,
    ) -> "Boundary":
        """Sample a Gaussian process along the closed edge.

        Parameters
        ----------
        length
            Length scale in units of domain length; by default 1/16 of the perimeter.
        """
        ny, nx = grid.shape
        curve_length = 2 * (ny + nx) * grid.spacing
        values = sample_closed_curve(
            np.random.default_rng(seed),
            2 * (ny + nx),
            curve_length,
            curve_length / 16 if length is None else length,
            amplitude,
            noise,
        )
        return cls.of_perimeter(values, grid)
