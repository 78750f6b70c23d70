"""What people ask of a solution, in memory or in a file: methods that both have."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mosaicdd.quantities.quantities import Ask, points_along
from mosaicdd.quantities.sums import Region


class Quantified:
    """Quantities of a solution; of several problems lists, or arrays with a leading axis.

    On several ranks all of them call these methods together, and have the same numbers; arrays are of the part that
    each has. Lengths are domain lengths. A flow is in units of ``a u`` (in space times a length).
    """

    def _asked(self, ask: Ask) -> Any:
        """Return what is asked of the fields; all ranks together."""
        raise NotImplementedError

    def at(self, points: Any) -> Any:
        """Return the values at points."""
        raise NotImplementedError

    @property
    def _spacing(self) -> float:
        """The least side of a cell."""
        raise NotImplementedError

    def _handed(self, array: np.ndarray) -> Any:
        """Return an array ``(n, ...)`` as the user has his own: of one problem without that axis."""
        return array[0] if len(array) == 1 else array

    def _number(self, values: Sequence[Any] | np.ndarray) -> Any:
        if isinstance(values, np.ndarray):
            return float(values[0]) if len(values) == 1 else values
        return values[0] if len(values) == 1 else list(values)

    def flux(self) -> tuple[Any, ...]:
        """Return what flows across each grid edge, per length (in space: area) of a whole face.

        That of the discretisation itself: what enters the control volume of a node less what leaves it, times the
        faces' lengths, the spacing, is what the volume consumes less what is made there, to the residual. So sums times
        the spacing are flows. Along sides and outlines, where a volume has a part of a face only, it is that part's flow.

        Returns
        -------
        tuple of arrays
            Per axis of the array, ``(ny, nx + 1)`` and ``(ny + 1, nx)``, from each node to the next; zero across
            edges that the domain has nothing of. On several ranks of the edges that begin at nodes of `local`.

        Raises
        ------
        Unsupported
            If the equation is not linear, has a velocity, a mixed derivative or time, describes waves, or the
            solution is of a window.
        """
        return tuple(self._handed(flux) for flux in self._asked(lambda q: q.flux()))

    def gradient(self) -> tuple[Any, ...]:
        """Return the derivatives along the axes of the array, (y, x), at the nodes of `local`, ``u`` per length.

        Of second order; of first where an outline is so near that there are not three nodes. NaN outside.
        """
        return tuple(self._handed(slope) for slope in self._asked(lambda q: q.gradient()))

    def flow(self, name: str, part: tuple[float, float] | None = None) -> Any:
        """Return what flows out through a side or an outline; negative if it flows in.

        It is the integral of ``-a du/dn``, ``n`` outward. Where a flux is given it is that; where a value is given,
        what is left over in the control volumes there, which is of second order on sides, of first on the outline
        of a shape. With a velocity it is that of diffusion.

        Parameters
        ----------
        name
            ``left``, ``right``, ``bottom``, ``top``, a part as ``left[0:0.5]``; ``outline``, ``outer``,
            ``hole1``, ..; what is held inside, by its name.
        part
            From one coordinate to another along a side; by default all of it.

        Raises
        ------
        ValueError
            If the domain has no such side.
        Unsupported
            As `flux`, but for the velocity.
        """
        return self._number(self._asked(lambda q: q.flow(name, part)))

    def balance(self) -> Any:
        """Return the `Balance`: what flows out through each side and outline, what is made and consumed, and what is left over.

        Raises
        ------
        Unsupported
            As `flow`.
        """
        return self._number(self._asked(lambda q: q.balance()))

    def energy(self) -> Any:
        """Return half the integral of ``a |grad u|^2 + c u^2``, in units of ``a u^2`` (in space times a length).

        Raises
        ------
        Unsupported
            As `flux`.
        """
        return self._number(self._asked(lambda q: q.energy()))

    def integral(self, region: Region = None) -> Any:
        """Return the integral of the solution, ``u`` times an area (in space a volume), of second order in the spacing.

        Parameters
        ----------
        region
            A box, ``{"x": (x0, x1), "y": (y0, y1)}``, an axis that is not named whole; or a mask of cells or nodes;
            by default all of the domain.

        Raises
        ------
        ValueError
            If it is no region of the domain, or empty.
        """
        return self._number(self._asked(lambda q: q.integral(region)))

    def mean(self, region: Region = None) -> Any:
        """Return the mean of the solution over a region, as `integral` has it."""
        return self._number(self._asked(lambda q: q.mean(region)))

    def max(self) -> Any:
        """Return an `Extreme`: the largest value at a node, and the coordinates (x, y) of the first such node."""
        return self._number(self._asked(lambda q: q.extremes(largest=True)))

    def min(self) -> Any:
        """Return an `Extreme`: the smallest value at a node, and the coordinates (x, y) of the first such node."""
        return self._number(self._asked(lambda q: q.extremes(largest=False)))

    def along(self, line: Any, count: int | None = None) -> tuple[np.ndarray, Any]:
        """Return the values along a line, as `at` has them.

        Parameters
        ----------
        line
            Its ends, or all corners, ``(k, 2)``, (x, y), in units of domain length.
        count
            Of points; by default about one per cell.

        Returns
        -------
        distances : ndarray
            Along the line, ``(q,)``.
        values : array
            ``(q,)``; of several problems ``(n, q)``.

        Raises
        ------
        ValueError
            If it is no line, or leaves the domain.
        """
        points, distances = points_along(line, self._spacing, count)
        return distances, self.at(points)
