"""A linear elliptic operator with constant coefficients, continuous and discrete.

``A u = -div(T grad u) + b . grad u + c u``, where ``T`` is the symmetric positive definite tensor
``[[axx, axy], [axy, ayy]]`` and ``b = (bx, by)``. An equation gives one for the values of its
parameters; everything behind that (local solvers, coarse space, references, residuals, the PDE loss)
knows nothing more of the equation than this.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from mosaicdd.axes import at


@dataclass(frozen=True)
class EllipticOperator:
    """``A u = -div(T grad u) + b . grad u + c u``.

    Parameters
    ----------
    ayy, axx, axy
        The diffusion tensor; positive definite.
    by, bx
        Velocity, in units of diffusion per domain length.
    c
        Reaction, in units of diffusion per squared domain length; negative ones (waves) make ``A``
        indefinite on large subdomains.

    Raises
    ------
    ValueError
        If a coefficient is not finite, or the tensor is not positive definite.
    """

    linear: ClassVar[Literal[True]] = True
    constant: ClassVar[Literal[True]] = True  # its coefficients are numbers, and no fields

    ayy: float = 1.0
    axx: float = 1.0
    axy: float = 0.0
    by: float = 0.0
    bx: float = 0.0
    c: float = 0.0

    def __post_init__(self) -> None:
        for name, number in vars(self).copy().items():
            object.__setattr__(self, name, value := float(number))
            if not math.isfinite(value):
                raise ValueError(f"the coefficient {name} must be finite, got {value}")
        if not (
            self.axx > 0
            and self.ayy > 0
            and abs(self.axy) < math.sqrt(self.axx) * math.sqrt(self.ayy)
        ):
            raise ValueError(
                "the diffusion tensor must be positive definite (axx > 0, ayy > 0, axy^2 < axx ayy), "
                f"got axx {self.axx:g}, ayy {self.ayy:g}, axy {self.axy:g}"
            )
        if min(self.axx, self.ayy) < sys.float_info.min:
            raise ValueError(
                f"diffusion must be at least {sys.float_info.min:.3g}, below which float64 loses digits, got "
                f"axx {self.axx:g}, ayy {self.ayy:g}; divide all coefficients and sources by one number"
            )

    @property
    def self_adjoint(self) -> bool:
        """Whether ``A`` equals its transpose: no velocity."""
        return self.by == self.bx == 0.0

    @property
    def couples_corners(self) -> bool:
        """Whether nodes are coupled across cells: there is a mixed derivative."""
        return self.axy != 0.0

    @property
    def reflective(self) -> bool:
        """Whether reflections in both axes leave ``A`` as it is, so that sines are eigenvectors."""
        return self.self_adjoint and self.axy == 0.0

    @property
    def symmetric(self) -> bool:
        """Whether the eight symmetries of the square leave ``A`` as it is."""
        return self.reflective and self.ayy == self.axx

    @property
    def scale_free(self) -> bool:
        """Whether ``A u = 0`` says the same at any spacing: second derivatives only."""
        return self.self_adjoint and self.c == 0.0

    def stretched(self, aspect: Sequence[float]) -> "EllipticOperator":
        """Return the operator that says the same in cells as if these were squares of the same area.

        ``aspect``: the sides of a cell, (y, x), in units of the side of that square.
        """
        y, x = aspect
        return EllipticOperator(
            self.ayy / y**2, self.axx / x**2, self.axy / (x * y), self.by / y, self.bx / x, self.c
        )

    def stencil(self, spacing: float, axes: int = 2) -> np.ndarray:
        """Return the weights ``(3, 3)`` of the discrete operator times ``spacing**2``, axes (y, x).

        In space ``(3, 3, 3)`` of an operator that is the same along all axes; of another a `ValueError`. Central differences
        of second order; velocities by exponential fitting (Allen, Southwell 1955; Il'in 1969), which is of second order
        where cells are small, upwind where they are not, and free of wiggles at any cell Peclet number.
        """
        if axes != 2 and not self.symmetric:
            raise ValueError(f"an operator that differs by axis is one of 2 axes, not of {axes}")
        weights, along = np.zeros((3,) * axes), [(self.ayy, self.by), (self.axx, self.bx)]
        for axis, (a, b) in enumerate(along if axes == 2 else along[:1] * axes):
            peclet = b * spacing / (2 * a)
            # z coth z = 1 + z^2 / 3 - ..: below 1e-4 the second term is rounding.
            fitted = a * (peclet / math.tanh(peclet) if abs(peclet) > 1e-4 else 1 + peclet**2 / 3)
            line = np.array([-fitted, 2 * fitted, -fitted]) + b * spacing / 2 * np.array([-1, 0, 1])
            weights[at(axis, axes, slice(None), 1)] += line
        weights[(1,) * axes] += self.c * spacing**2
        if axes == 2:
            weights[::2, ::2] += self.axy / 2 * np.array([[-1, 1], [1, -1]])
        return weights

    def exact_polynomials(self, degree: int, *points: np.ndarray) -> np.ndarray:
        """Return polynomials with ``A u = 0`` at points ``(Q,)`` by axis, of an operator that is scale free.

        1 and the real and imaginary parts of ``(x + mu y)**k``, ``k = 1..degree``, with the root ``mu``
        of ``axx + 2 axy mu + ayy mu**2``; harmonic polynomials where ``mu = i``. Up to degree 3 they
        solve the discrete equation, too. In space the harmonic polynomials of each degree.

        Returns
        -------
        ndarray
            ``(Q, 2 degree + 1)``, in space ``(Q, (degree + 1)**2)``.
        """
        if len(points) != 2:
            return _solid_harmonics(degree, *points)
        y, x = points
        mu = (-self.axy + 1j * math.sqrt(self.axx * self.ayy - self.axy**2)) / self.ayy
        z = (np.asarray(x) + mu * np.asarray(y)) / max(1.0, abs(mu))
        columns = [np.ones(z.shape)]
        for k in range(1, degree + 1):
            columns += [(z**k).real, (z**k).imag]
        return np.stack(columns, axis=-1)


def _solid_harmonics(degree: int, *points: np.ndarray) -> np.ndarray:
    """Return harmonic polynomials of three coordinates, those of degree ``k`` after those below, ``(Q, (degree + 1)**2)``.

    ``(z + i x cos t + i y sin t)**k`` is harmonic for every ``t``, and so are its Fourier coefficients in ``t``
    (Whittaker 1903).
    """
    z, y, x = (np.asarray(along)[..., None] for along in points)
    columns = [np.ones(z.shape)]
    for k in range(1, degree + 1):
        t = np.pi * np.arange(2 * k + 2) / (k + 1)
        waves = np.fft.fft((z + 1j * (x * np.cos(t) + y * np.sin(t))) ** k, norm="forward")
        columns += [waves[..., : k + 1].real, waves[..., 1 : k + 1].imag]
    return np.concatenate(columns, axis=-1)
