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
from mosaicdd.local_solvers.networks.correction import CorrectionNetwork
from mosaicdd.local_solvers.networks.unrolled import UnrolledNetwork
from mosaicdd.local_solvers.nonlinear.nonlinear import split
from mosaicdd.local_solvers.nonlinear.square_newton import BATCH, Fields, SquareNewton
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


_BATCH = 2048  # squares that are solved at once: 18 MB of 32 cells


class SquareSamples:
    """Of some squares, all of them solved or none; on the processor, in float32.

    Attributes
    ----------
    g, w
        Perimeters, and what the network sees of the source's effect, ``(n, P)`` and ``(n, K)``.
    sigma
        The linear reaction, lengths in sides of the square, ``(n, 1)``.
    linear
        The linear equation's solutions on the centre lines, ``(n, Q)``.
    labels, values
        Corrections and solutions there, if they are solved, ``(n, Q)``; else without rows.
    """

    def __init__(self, squares: SquareDataset, network: CorrectionNetwork | UnrolledNetwork):
        pde = learnable_equation(squares.pde)
        m, h = squares.subdomain.cells, squares.subdomain.spacing
        newton = SquareNewton(pde.operator({}), m, h, torch.device("cpu"))
        reaction = linear_reaction(pde, squares.parameters)
        at, count = network.outputs.T, len(reaction)
        sight = torch.from_numpy(network.sight)
        self.g = torch.from_numpy(squares.boundary).float().clone()  # the lesson changes it
        self.w = torch.zeros(count, sight.shape[1])
        linear = torch.zeros(count, at.shape[1], dtype=torch.float64)
        for start in range(0, count, _BATCH):
            part = slice(start, start + _BATCH)
            f = torch.from_numpy(squares.source[part]).double()[:, 1:-1, 1:-1]
            u = torch.zeros(len(f), m + 1, m + 1, dtype=torch.float64)
            newton.linear(u, f, reaction[part])
            self.w[part] = (u[:, 1:-1, 1:-1].flatten(1) @ sight).float()
            place(torch.from_numpy(squares.boundary[part]).double(), u)
            newton.linear(u, f, reaction[part])
            linear[part] = u[:, *at]
        self.values = torch.from_numpy(squares.solution[:, *at])
        self.labels = (self.values - linear[squares.unsolved :]).float()
        self.linear = linear.float()
        self.sigma = (reaction * squares.subdomain.size**2).float()[:, None]


_ELEMENTS = 128  # whose vectors stay in the cache
_TOLERANCE = 1e-5  # of the last step inside of elements; the error is a tenth of that


class EquationStep:
    r"""The steps for the squares of a dataset, at the nodes of centre lines ``(Q, 2)``: what a network learns without labels.

    Inside of the four elements between a square's perimeter and its centre lines the equation is solved, so what is left
    of it, $r = F(u) - f$, is left on these lines. One step $\delta = -J^{-1} r$, by the derivative's means over the square,
    leads from there to about the solution. The mean square of $\delta$ is the loss: in units of the solution, whatever the
    grid, and zero for the solution alone. No square is solved for it. With labels, it is what the linear equation's
    solutions lack.
    """

    def __init__(
        self,
        squares: SquareDataset,
        pde: NonlinearEquation,
        outputs: np.ndarray,
        device: torch.device | str = "cpu",
    ):
        square, device = squares.subdomain, torch.device(device)
        operator, m = pde.operator({}), square.cells
        self._names, self._outputs = squares.parameter_names, outputs.T
        self._square = SquareNewton(operator, m, square.spacing, device)
        self._element = SquareNewton(operator, m // 2, square.spacing, device)
        self._g, self._f, self._parameters = (
            torch.from_numpy(values).to(device)
            for values in (squares.boundary, squares.source, squares.parameters)
        )
        self._reaction = linear_reaction(pde, squares.parameters).to(device)
        # Centre lines hold the centre twice: the row, then the column.
        self._lines = torch.from_numpy(np.unique(square.centre_lines, axis=0, return_index=True)[1])

    @torch.no_grad()
    def __call__(self, chosen: torch.Tensor, lines: torch.Tensor) -> torch.Tensor:
        """Return the steps ``(B, Q)`` from values on the centre lines, for squares by their numbers."""
        g, f = self._g[chosen].double(), self._f[chosen].double()
        m, s = self._square.cells, self._element.cells
        u = g.new_zeros(len(g), m + 1, m + 1)
        place(g, u)
        u[:, *self._outputs] = lines.double()
        elements, forces = (field.unfold(1, s + 1, s).unfold(2, s + 1, s) for field in (u, f))
        values = elements.reshape(-1, s + 1, s + 1)
        self._fill(values, forces.reshape(values.shape), chosen.repeat_interleave(4))
        elements[..., 1:-1, 1:-1] = values.view(elements.shape)[..., 1:-1, 1:-1]
        fields = self._fields(chosen)
        r = self._square.residual(u, f[:, 1:-1, 1:-1], fields).float()
        steps = torch.cat(self._square.centre_lines(r, self._square.means(u, fields)), dim=1)
        return -steps[:, self._lines]

    def _fill(self, u: torch.Tensor, f: torch.Tensor, whose: torch.Tensor) -> None:
        """Solve inside of elements, of squares by their numbers."""
        for part in split(len(u), _ELEMENTS):
            force, fields = f[part, 1:-1, 1:-1], self._fields(whose[part])
            self._element.linear(u[part], force, self._reaction[whose[part]])
            means = self._element.means(u[part], fields)
            self._element.relax(u[part], force, fields, means, _TOLERANCE)

    def _fields(self, chosen: torch.Tensor) -> Fields:
        values = self._parameters[chosen].double()
        return {name: values[:, i, None, None] for i, name in enumerate(self._names)}
