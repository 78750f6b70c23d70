"""What `effective` returns: the conductivity of a medium along its axes, and how far it is to be trusted."""

import math
from dataclasses import dataclass, field

import numpy as np

from mosaicdd.lattice.axes import times
from mosaicdd.schwarz.settings import CONVERGED

NO_PATH = "no_path"
"""The status where nothing leads from face to face: the conductivity is 0."""


@dataclass(frozen=True)
class AxisConductivity:
    """Of a medium along one axis.

    Parameters
    ----------
    conductivity
        The effective one: the mean flux for a mean slope of 1.
    error
        A bound of its error, by which it may be too large; of the equations' solution, not of the grid's. An estimate where the
        iteration has not converged.
    inflow, outflow
        What flows in where the face has the value 1, and out where it has 0, as mean fluxes: conductivities, too. In a periodic
        cell what flows from it to the next one, and through its middle.
    tortuosity
        Of a medium where all that conducts has the same conductivity: the factor ``D e / D_eff`` with ``e`` the volume fraction of all that
        conducts; infinite without a path, None in other media.
    wiener
        The harmonic and the arithmetic mean: layers across the axis and along it.
    floating
        Share of the conducting voxels that no path connects to both faces: they are left out, as nothing flows there.
    status
        As of `Solution`; ``no_path`` where nothing leads from face to face, and the conductivity is 0.
    iterations, residual
        Of conjugate gradients; the true residual, relative to the right-hand side.
    seconds
        Set-up and iterations.
    across
        Of a periodic cell, by the other axes' names, the mean fluxes along these, which the tensor has beside its diagonal; where
        both axes were solved for, right to the root of the product of their errors.
    field
        The values at the voxels' middles, of this rank's voxels; NaN at those that are left out. None unless asked
        for.
    """

    conductivity: float
    error: float
    inflow: float
    outflow: float
    tortuosity: float | None
    wiener: tuple[float, float]
    floating: float
    status: str
    iterations: int
    residual: float
    seconds: float
    across: dict[str, float] = field(default_factory=dict)
    field: np.ndarray | None = None

    @property
    def converged(self) -> bool:
        """Whether the flows agree, and the error is bounded, to the tolerance that was asked for; or there is no path."""
        return self.status in (*CONVERGED, NO_PATH)

    @property
    def balance(self) -> float:
        """How far inflow and outflow are apart, relative to the larger."""
        size = max(abs(self.inflow), abs(self.outflow))
        return abs(self.inflow - self.outflow) / size if size else 0.0

    def __str__(self) -> str:
        """Say it in one line."""
        if self.status == NO_PATH:
            return "0: no path leads from face to face"
        words = [f"{self.conductivity:.6g}"]
        if self.tortuosity is not None:
            words.append(f"tortuosity {self.tortuosity:.5g}")
        words.append(f"in and out differ by {self.balance:.0e}")
        if self.floating:
            words.append(f"{self.floating:.2%} float")
        words.append(f"{self.status} after {self.iterations} iterations")
        return ", ".join(words)


@dataclass(frozen=True)
class Effective:
    """The effective conductivity of a medium: a tensor, diagonal but of a periodic cell, or some of its axes.

    ``result["x"]`` is what is known along x.

    Parameters
    ----------
    axes
        By name, in the order of arrays: z, y, x.
    voxels
        Per axis, in the order of arrays.
    spacing
        Their sides.
    volume_fraction
        Share of the voxels that conduct.
    hashin_shtrikman
        Bounds where the medium is isotropic and has two conductivities, of which one may be 0: of any structure that has no
        preferred direction; else None.
    """

    axes: dict[str, AxisConductivity]
    voxels: tuple[int, ...]
    spacing: tuple[float, ...]
    volume_fraction: float
    hashin_shtrikman: tuple[float, float] | None

    def __getitem__(self, axis: str) -> AxisConductivity:
        """Return what is known along an axis."""
        if axis not in self.axes:
            raise KeyError(f"axis {axis!r} was not solved for, only {', '.join(self.axes)}")
        return self.axes[axis]

    @property
    def conductivity(self) -> dict[str, float]:
        """The effective conductivities, by the axes' names."""
        return {name: along.conductivity for name, along in self.axes.items()}

    @property
    def tortuosity(self) -> dict[str, float]:
        """The tortuosity factors; NaN in media that have none."""
        factors = {name: along.tortuosity for name, along in self.axes.items()}
        return {name: math.nan if t is None else t for name, t in factors.items()}

    @property
    def tensor(self) -> np.ndarray:
        """The tensor, in the order of arrays, ``(axes, axes)``; NaN along axes that were not solved for.

        A column has the mean fluxes for a mean slope of 1 along its axis; beside the diagonal it is 0 but of a periodic cell.
        """
        names = "zyx"[-len(self.voxels) :]
        tensor = np.diag([self.conductivity.get(name, math.nan) for name in names])
        for name, along in self.axes.items():
            for other, flux in along.across.items():
                tensor[names.index(other), names.index(name)] = flux
        return tensor

    @property
    def converged(self) -> bool:
        """Whether all axes have."""
        return all(along.converged for along in self.axes.values())

    def __str__(self) -> str:
        """Say it in some lines."""
        head = f"{times(self.voxels)} voxels, {self.volume_fraction:.2%} conduct"
        return "\n".join([head, *(f"{name}: {along}" for name, along in self.axes.items())])
