"""Training of networks of corrections on squares of a nonlinear equation.

The labels are what the linear equation's solutions lack on the centre lines. The loss is their mean square over
that of the data, so that small data are worth as much as large ones.
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
from mosaicdd.local_solvers.square_newton import SquareNewton
from mosaicdd.problems.elliptic import EllipticOperator
from mosaicdd.problems.equations import any_equation
from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.storage.square_file import SquareDataset, read_squares
from mosaicdd.training.serial import Lesson, SerialReport
from mosaicdd.training.squares import linear_reaction, place, require_learnable

_BATCH = 2048  # squares of a pass without gradients
_RANGE = 0.999  # quantile of the training data's roughness that the model is for


class SquareSamples:
    """What a network of corrections is given of squares, and what it is to say.

    Attributes
    ----------
    g, w
        Perimeters, and what the network sees of the source's effect, ``(n, P)`` and ``(n, K)``.
    sigma
        The linear reaction, lengths in sides of the square, ``(n, 1)``.
    labels, values
        Corrections and solutions on the centre lines, ``(n, Q)``.
    """

    def __init__(self, squares: SquareDataset, network: CorrectionNetwork | UnrolledNetwork):
        pde = any_equation(squares.pde)
        if not isinstance(pde, NonlinearEquation):
            raise ValueError(f"squares are of nonlinear equations, {pde.name} is linear")  # noqa: TRY004
        require_learnable(pde)
        m, h = squares.subdomain.cells, squares.subdomain.spacing
        newton = SquareNewton(pde.operator({}), m, h, torch.device("cpu"))
        reaction = linear_reaction(pde, squares.parameters)
        sight = torch.from_numpy(network.sight)
        columns: list[list[torch.Tensor]] = [[], [], [], []]
        for start in range(0, len(reaction), _BATCH):
            some = slice(start, start + _BATCH)
            g = torch.from_numpy(squares.boundary[some]).double()
            f = torch.from_numpy(squares.source[some]).double()[:, 1:-1, 1:-1]
            w = torch.zeros(len(g), m + 1, m + 1, dtype=torch.float64)
            newton.linear(w, f, reaction[some])
            seen = w[:, 1:-1, 1:-1].flatten(1) @ sight
            place(g, w)
            newton.linear(w, f, reaction[some])
            at = network.outputs.T
            values = torch.from_numpy(squares.solution[some][:, *at]).double()
            found = g, seen, values - w[:, *at], values
            for column, one in zip(columns, found, strict=True):
                column.append(one.float())
        self.g, self.w, self.labels, self.values = (torch.cat(column) for column in columns)
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
    """

    plain = "linear"
    network: CorrectionNetwork | UnrolledNetwork
    given: tuple[torch.Tensor, ...]
    size: torch.Tensor
    weight: torch.Tensor

    def __init__(self, data: SquareDataset, network: CorrectionNetwork | UnrolledNetwork):
        self.squares, self.network = data, network
        self.samples = SquareSamples(data, network)
        self.learned = len(data.boundary) - data.held_out

    @classmethod
    def read(cls, data: str | os.PathLike | SquareDataset) -> SquareDataset:
        """Return a dataset of squares."""
        return data if isinstance(data, SquareDataset) else read_squares(data)

    def loss(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return the weighted mean square of what is wrong in some squares."""
        found = self.network(*(one[chosen] for one in self.given))
        return ((found - self.samples.labels[chosen]) * self.weight[chosen]).square().mean()

    def errors(self) -> tuple[float, float]:
        """Return the relative errors of the network, and of the linear equation's solutions."""
        size = self.samples.values[self.learned :].square().mean().sqrt()
        lacking = self.samples.labels[self.learned :]
        wrong = self._wrong()
        error, plain = (float(one.square().mean().sqrt() / size) for one in (wrong, lacking))
        return error, plain

    @torch.no_grad()
    def _wrong(self) -> torch.Tensor:
        """Return what is wrong in the held-out squares, ``(n, Q)``."""
        every = torch.arange(self.learned, len(self.size)).split(_BATCH)
        found = [self.network(*(one[part] for one in self.given)) for part in every]
        return torch.cat(found) - self.samples.labels[self.learned :]

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
        samples, size = self.samples, data.subdomain.size
        for values in (samples.g, samples.w, samples.labels, samples.values):
            values /= size
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
