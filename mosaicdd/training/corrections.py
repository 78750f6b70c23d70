"""Training of networks of corrections on squares of a nonlinear equation.

The labels are what the linear equation's solutions lack on the centre lines. The loss is the mean square of what is wrong
over that of the data, so that small data are worth as much as large ones. Without labels, what is wrong is what the
equation would change, as `equation_step` says it.
"""

import os
from dataclasses import asdict

import numpy as np
import torch

from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.local_solvers.networks.correction import (
    CORRECTION,
    ROUGHNESS,
    SOURCE,
    CorrectionNetwork,
    CorrectionSettings,
    roughness,
)
from mosaicdd.local_solvers.networks.unrolled import (
    PLANE,
    SLOPE,
    UNROLLED,
    UnrolledNetwork,
    UnrolledSettings,
    remainder_size,
    sloped,
    unrolled_network,
)
from mosaicdd.local_solvers.nonlinear.square_newton import SquareNewton
from mosaicdd.problems.equations import any_equation
from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.storage.square_file import SquareDataset, read_squares
from mosaicdd.training.equation_step import EquationStep
from mosaicdd.training.serial import Lesson, SerialReport
from mosaicdd.training.squares import linear_reaction, place, require_learnable

_BATCH = 2048  # squares of a pass without gradients
_ANEW = 8  # of so many squares in a batch, the step by the equation is taken anew for one
_RANGE = 0.999  # quantile of the training data's roughness that the model is for


class SquareSamples:
    """What a network of corrections is given of squares, and what it is to say.

    Attributes
    ----------
    g, w
        Perimeters, and what the network sees of the source's effect, ``(n, P)`` and ``(n, K)``.
    sigma
        The linear reaction, lengths in sides of the square, ``(n, 1)``.
    linear
        The linear equation's solutions on the centre lines, ``(n, Q)``.
    labels, values
        Corrections and solutions there, of those that are solved, ``(., Q)``.
    """

    def __init__(self, squares: SquareDataset, network: CorrectionNetwork | UnrolledNetwork):
        pde = _equation_of(squares)
        m, h = squares.subdomain.cells, squares.subdomain.spacing
        newton = SquareNewton(pde.operator({}), m, h, torch.device("cpu"))
        reaction = linear_reaction(pde, squares.parameters)
        sight = torch.from_numpy(network.sight)
        columns: list[list[torch.Tensor]] = [[], [], []]
        at = network.outputs.T
        for start in range(0, len(reaction), _BATCH):
            some = slice(start, start + _BATCH)
            g = torch.from_numpy(squares.boundary[some]).double()
            f = torch.from_numpy(squares.source[some]).double()[:, 1:-1, 1:-1]
            w = torch.zeros(len(g), m + 1, m + 1, dtype=torch.float64)
            newton.linear(w, f, reaction[some])
            seen = w[:, 1:-1, 1:-1].flatten(1) @ sight
            place(g, w)
            newton.linear(w, f, reaction[some])
            for column, one in zip(columns, (g.float(), seen.float(), w[:, *at]), strict=True):
                column.append(one)
        self.g, self.w, linear = (torch.cat(column) for column in columns)
        self.values = torch.from_numpy(squares.solution[:, *at])
        self.labels = (self.values - linear[squares.unsolved :]).float()
        self.linear = linear.float()
        self.sigma = (reaction * squares.subdomain.size**2).float()[:, None]


class SquareLesson(Lesson):
    """Corrections of the linear equation; errors are root mean squares over that of the solutions.

    Attributes
    ----------
    given
        What the network is called with, rows for all squares.
    size
        Of their data, ``(n, 1)``.
    weight
        Of their errors in the loss, ``(n, 1)``.
    unit
        Of values, as the network has them.
    """

    plain = "linear"
    network: CorrectionNetwork | UnrolledNetwork
    given: tuple[torch.Tensor, ...]
    size: torch.Tensor
    weight: torch.Tensor
    unit = 1.0

    def __init__(self, data: SquareDataset, network: CorrectionNetwork | UnrolledNetwork):
        self.squares, self.network = data, network
        self.samples = SquareSamples(data, network)
        self.learned = len(data.boundary) - data.held_out
        self._held_out = slice(-data.held_out, None)
        self._step: EquationStep | None = None
        self._aims = torch.empty(0)

    @classmethod
    def require(cls, data: SquareDataset, *, labels: bool) -> None:
        """Check that what is to be learned from is solved."""
        if labels and data.unsolved:
            raise ValueError(
                f"{data.unsolved} of {len(data.boundary)} squares have no solution: train without labels, or "
                "generate them with labels"
            )

    @classmethod
    def read(cls, data: str | os.PathLike | SquareDataset) -> SquareDataset:
        """Return a dataset of squares."""
        return data if isinstance(data, SquareDataset) else read_squares(data)

    def forget_labels(self) -> None:
        """Learn from the equation alone from now on."""
        self._step = EquationStep(self.squares, _equation_of(self.squares), self.network.outputs)
        self._aims = torch.full_like(self.samples.linear, torch.nan)

    def loss(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return the weighted mean square of what is wrong in some squares."""
        found = self.network(*(one[chosen] for one in self.given))
        if self._step is None:
            aims = self.samples.labels[chosen]
        else:
            aims = self._led_to(chosen, found.detach(), self._step)
        return ((found - aims) * self.weight[chosen]).square().mean()

    def _led_to(
        self, chosen: torch.Tensor, found: torch.Tensor, step: EquationStep
    ) -> torch.Tensor:
        """Return the corrections that the equation leads to, of some taken anew from those of the network.

        Of squares that are seen for the first time, and where it leads nowhere, from the linear solution.
        """
        first = self._aims[chosen].isnan().any(dim=1)
        anew = first.clone()
        anew[::_ANEW] = True
        which, begin = chosen[anew], torch.where(first[:, None], 0.0, found)[anew]
        lines = self.samples.linear[which] + begin
        led = begin + step(which, self.unit * lines) / self.unit
        sound = led.isfinite().all(dim=1)
        self._aims[which[sound]] = led[sound]
        return self._aims[chosen].nan_to_num(nan=0.0)

    def errors(self) -> tuple[float, float]:
        """Return the relative errors of the network, and of the linear equation's solutions."""
        size = self.samples.values[self._held_out].square().mean().sqrt()
        lacking = self.samples.labels[self._held_out]
        wrong = self._wrong()
        error, plain = (float(one.square().mean().sqrt() / size) for one in (wrong, lacking))
        return error, plain

    @torch.no_grad()
    def _wrong(self) -> torch.Tensor:
        """Return what is wrong in the held-out squares, ``(n, Q)``."""
        every = torch.arange(self.learned, len(self.size)).split(_BATCH)
        found = [self.network(*(one[part] for one in self.given)) for part in every]
        return torch.cat(found) - self.samples.labels[self._held_out]

    def ranges(self, learned: slice) -> dict[str, list[float]]:
        """Return what a model is limited to, by name, besides parameters: from what it has learned of."""
        raise NotImplementedError

    def card(self, best: SerialReport, training: dict) -> ModelCard:
        """Write down what the network is, was trained on, and reaches."""
        squares, learned = self.squares, slice(0, self.learned)
        wrong = self._wrong()
        shares = wrong.square().mean(dim=1).sqrt() / self.size[self.learned :, 0]
        largest = float(self.samples.g[learned].abs().max())
        ends = zip(squares.parameters.min(axis=0), squares.parameters.max(axis=0), strict=True)
        ranges = {
            name: [float(f"{least:.2g}"), float(f"{most:.2g}")]
            for name, (least, most) in zip(squares.parameter_names, ends, strict=True)
        }
        return ModelCard(
            pde=squares.pde,
            cells=squares.subdomain.cells,
            size=squares.subdomain.size,
            network=self.name,
            settings=asdict(self.network.settings),
            lifting_degree=None,
            boundary_range=[-largest, largest],
            ranges=ranges | self.ranges(learned),
            validation={
                "error": best.error,
                "median": float(shares.median()),
                "largest": float(wrong.abs().max()),
                "linear": best.plain,
            },
            training=training,
            dataset_hash=squares.content_hash,
        )


class CorrectionLesson(SquareLesson):
    """Of `CorrectionNetwork`."""

    name, settings_type = CORRECTION, CorrectionSettings

    def __init__(self, data: SquareDataset, how: CorrectionSettings):
        super().__init__(data, CorrectionNetwork(data.subdomain.cells, how))
        samples = self.samples
        x = torch.cat([samples.g, samples.w], 1)
        self.given = x, samples.sigma
        self.size = x.square().mean(dim=1, keepdim=True).sqrt()
        # Errors of all subdomains add up the further, the less reaction there is to damp them.
        self.weight = (1.25 + samples.sigma) / (0.1 + samples.sigma) / self.size

    def ranges(self, learned: slice) -> dict[str, list[float]]:
        """Return bounds of the source's effect and of the roughness."""
        rough = roughness(self.samples.g[learned]) / self.size[learned, 0]
        return {
            SOURCE: [0.0, float(self.samples.w[learned].abs().max())],
            ROUGHNESS: [0.0, float(np.quantile(rough.numpy(), _RANGE))],
        }


class UnrolledLesson(SquareLesson):
    """Of `UnrolledNetwork`, in whose units values are."""

    name, settings_type = UNROLLED, UnrolledSettings
    network: UnrolledNetwork

    def __init__(self, data: SquareDataset, how: UnrolledSettings):
        network = unrolled_network(data.pde, data.subdomain.cells, how)
        network.begin(ExactSolver(EllipticOperator(), data.subdomain).matrix)
        super().__init__(data, network)
        samples, self.unit = self.samples, data.subdomain.size
        for values in (samples.g, samples.w, samples.linear, samples.labels, samples.values):
            values /= self.unit
        samples.g -= samples.g.mean(dim=1, keepdim=True)
        self.given = samples.g, samples.w
        self._planes = network.matrices().fit, network.matrices().planes
        slopes = samples.g @ self._planes[0]
        self.size = remainder_size(samples.g - slopes @ self._planes[1], samples.w)
        self.weight = 1.0 / self.size

    def ranges(self, learned: slice) -> dict[str, list[float]]:
        """Return bounds of slopes, of the roughness and of the source's effect."""
        g, w = self.samples.g[learned], self.samples.w[learned]
        along, plane, rough = sloped(g, g @ self._planes[0])
        return {
            SLOPE: [0.0, float(along.max())],
            PLANE: [0.0, float(plane.max())],
            ROUGHNESS: [0.0, float(np.quantile(rough.numpy(), _RANGE))],
            SOURCE: [0.0, float(w.abs().max())],
        }


def _equation_of(squares: SquareDataset) -> NonlinearEquation:
    """Return the equation of squares, if networks can learn it."""
    pde = any_equation(squares.pde)
    if not isinstance(pde, NonlinearEquation):
        raise ValueError(f"squares are of nonlinear equations, {pde.name} is linear")  # noqa: TRY004
    require_learnable(pde)
    return pde
