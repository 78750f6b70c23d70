"""Generation of squares: problems of a nonlinear equation, solved by Newton's method.

Boundary data are a Gaussian process along the perimeter with white noise and an offset, or a plane where slopes
count, all of random sizes; so is the source, whose size is measured by what it does to the linear equation. Each
square has random
numbers of its own, seeded by (seed, index), so it does not depend on how many others are drawn.
"""

from typing import Any

import numpy as np
import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.nonlinear.square_newton import BATCH, SquareNewton
from mosaicdd.problems.equations import any_equation
from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.fields.gaussian_process import (
    log_uniform,
    sample_closed_curve,
    sample_sloped_square,
)
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.storage.samples import SquareDataset
from mosaicdd.training.settings import SquareSettings

_PART = 256  # squares: what an ended run makes again, at most, on each rank
# Logarithmic ranges; sizes are parts of the largest value that the equation is learned for.
_LENGTHS, _SIZES, _OFFSETS = (0.03, 1.0), (0.003, 0.5), (0.01, 1.0)
_NOISE = (1e-3, 0.1)  # of the size
_SOURCE_LENGTHS, _SOURCE_SIZES = (0.06, 1.0), (0.003, 0.6)
_WITHOUT = 0.25  # share of the squares that have no source
# The same where slopes count: sizes are parts of the square's side times the steepest slope.
_STEEP_SIZES, _STEEP_WITHOUT = (3e-4, 0.025), 0.5


def learnable_equation(name: str) -> NonlinearEquation:
    """Return a nonlinear equation that says what a network needs to know, of -lap u + c u; else `ValueError`."""
    pde = any_equation(name)
    if not isinstance(pde, NonlinearEquation):
        raise ValueError(f"squares are of nonlinear equations, {pde.name} is linear")  # noqa: TRY004
    if pde.linear is None or (pde.largest is None) == (pde.steepest is None):
        raise ValueError(
            f"{pde.name} does not say how data for a network are drawn: it needs linear, and largest or "
            "steepest"
        )
    if pde.parameters and pde.draw is None:
        raise ValueError(f"{pde.name} does not say how its parameters are drawn: it needs draw")
    parameters = pde.draw(np.random.default_rng(0)) if pde.draw else {}
    operator = pde.linear(**parameters)
    if operator != EllipticOperator(c=operator.c):
        raise ValueError(
            f"{pde.name}: networks are for equations whose linear part is -lap u + c u, this has {operator}"
        )
    return pde


class SquareGenerator:
    """Draws and solves squares part by part, in any order; errors are those of `learnable_equation`."""

    def __init__(self, settings: SquareSettings):
        self.settings = settings
        self.pde = pde = learnable_equation(settings.pde)
        square = settings.subdomain
        self._newton = SquareNewton(
            pde.operator({}), square.cells, square.spacing, torch.device("cpu")
        )
        self.parts = -(-settings.samples // _PART)

    def part(self, number: int) -> dict[str, np.ndarray]:
        """Return the arrays of a part by the names that they have in a `SquareDataset`."""
        indices = range(number * _PART, min((number + 1) * _PART, self.settings.samples))
        drawn = [self._draw(np.random.default_rng([self.settings.seed, i])) for i in indices]
        parameters, boundary, source, size = map(np.stack, zip(*drawn, strict=True))
        first = 0 if self.settings.labels else self.settings.samples - self.settings.held_out
        unsolved = min(max(first - indices.start, 0), len(indices))
        source, solution = self._solved(parameters, boundary, source, size, unsolved)
        return {
            "parameters": parameters,
            "boundary": boundary.astype("f4"),
            "source": source,
            "solution": solution,
        }

    def dataset(self, **arrays: np.ndarray) -> SquareDataset:
        """Return the dataset of the arrays of all parts."""
        settings = self.settings
        return SquareDataset(
            pde=self.pde.name,
            subdomain=settings.subdomain,
            parameter_names=tuple(self.pde.parameters),
            validation=settings.validation,
            seed=settings.seed,
            **arrays,
        )

    def _draw(self, rng: np.random.Generator) -> tuple[Any, ...]:
        """Draw parameters, boundary data, the shape of a source and its size."""
        drawn = self.pde.complete(self.pde.draw(rng) if self.pde.draw else {})
        parameters = np.array([float(drawn[name]) for name in self.pde.parameters])
        square = self.settings.subdomain
        if self.pde.steepest is None:
            largest, sizes, without = float(self.pde.largest or 1.0), _SOURCE_SIZES, _WITHOUT
            g = self._curve(rng, largest)
        else:
            largest, sizes, without = self.pde.steepest * square.size, _STEEP_SIZES, _STEEP_WITHOUT
            g = sample_sloped_square(rng, square.cells, square.size, self.pde.steepest)
        f = _smooth_field(rng, square, 2 * square.size * log_uniform(rng, _SOURCE_LENGTHS))
        f += rng.normal() * (rng.random() < 0.5)
        effect = largest * log_uniform(rng, sizes) * (rng.random() >= without)
        return parameters, g, f, effect

    def _curve(self, rng: np.random.Generator, largest: float) -> np.ndarray:
        """Draw boundary data whose values count."""
        square = self.settings.subdomain
        size = largest * log_uniform(rng, _SIZES)
        g = sample_closed_curve(
            rng,
            nodes=4 * square.cells,
            curve_length=4 * square.size,
            length_scale=2 * square.size * log_uniform(rng, _LENGTHS),
            amplitude=size,
            noise=size * log_uniform(rng, _NOISE),
        )
        g *= min(1.0, 0.95 * largest / np.abs(g).max())
        return g + rng.uniform(-1, 1) * (largest - np.abs(g).max()) * log_uniform(rng, _OFFSETS)

    def _solved(
        self,
        parameters: np.ndarray,
        boundary: np.ndarray,
        source: np.ndarray,
        size: np.ndarray,
        unsolved: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return sources of the sizes that were drawn, and solutions of all but the first few."""
        m = self.settings.subdomain.cells
        values = torch.from_numpy(parameters)
        f = torch.from_numpy(source)
        u = torch.zeros(len(boundary), m + 1, m + 1, dtype=torch.float64)
        reaction = linear_reaction(self.pde, parameters)
        self._newton.linear(u, f[:, 1:-1, 1:-1], reaction)
        f *= (torch.from_numpy(size) / u.abs().amax(dim=(1, 2)))[:, None, None]
        f = f.float().double()
        place(torch.from_numpy(boundary.astype("f4")).double(), u)
        self._newton.linear(u, f[:, 1:-1, 1:-1], reaction)
        for start in range(unsolved, len(u), BATCH):
            portion = slice(start, start + BATCH)
            fields = {
                name: values[portion, i, None, None] for i, name in enumerate(self.pde.parameters)
            }
            if self._newton.solve(u[portion], f[portion, 1:-1, 1:-1], fields).any():
                raise RuntimeError(f"Newton's method fails for a square of {self.pde.name}")
        return f.float().numpy(), u[unsolved:].float().numpy()


def linear_reaction(pde: NonlinearEquation, parameters: np.ndarray) -> torch.Tensor:
    """Return the linear reaction for rows of parameters, ``(n,)``."""
    if pde.linear is None:
        raise TypeError(f"{pde.name} has no linear part")
    names = tuple(pde.parameters)
    reactions = [pde.linear(**dict(zip(names, row, strict=True))).c for row in parameters.tolist()]
    return torch.tensor(reactions, dtype=torch.float64)


def place(g: torch.Tensor, u: torch.Tensor) -> None:
    """Write perimeters ``(B, 4m)`` to the edges of squares ``(B, m + 1, m + 1)``."""
    bottom, right, top, left = g.chunk(4, dim=1)
    u[:, 0, :-1], u[:, :-1, -1] = bottom, right
    u[:, -1, 1:], u[:, 1:, 0] = top.flip(1), left.flip(1)


def _smooth_field(rng: np.random.Generator, square: Subdomain, length: float) -> np.ndarray:
    """Draw a Gaussian process on the nodes of a square, of about unit size."""
    nodes = 2 * square.cells  # periodic; a part of it is not
    waves = 2 * np.pi * np.fft.fftfreq(nodes, square.spacing)
    spectrum = np.exp(-0.25 * length**2 * (waves[:, None] ** 2 + waves**2))
    values = np.fft.ifft2(np.fft.fft2(rng.standard_normal((nodes, nodes))) * spectrum).real
    values *= nodes / np.sqrt(np.square(spectrum).sum())
    return values[: square.cells + 1, : square.cells + 1]
