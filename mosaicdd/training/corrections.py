"""Training of a network of corrections on squares of a nonlinear equation.

The labels are what the linear equation's solutions lack on the centre lines. The loss is their mean square over
that of the data, so that small data are worth as much as large ones.
"""

import os
from dataclasses import asdict

import numpy as np
import torch

from mosaicdd.local_solvers.networks.correction import (
    CORRECTION,
    ROUGHNESS,
    SOURCE,
    CorrectionNetwork,
    CorrectionSettings,
    correct,
    roughness,
)
from mosaicdd.local_solvers.square_newton import SquareNewton
from mosaicdd.problems.equations import any_equation
from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.storage.square_file import SquareDataset, read_squares
from mosaicdd.training.serial import Lesson, SerialReport
from mosaicdd.training.squares import linear_reaction, place, require_learnable

_BATCH = 2048  # squares of a pass without gradients
_RANGE = 0.999  # quantile of the training data's roughness that the model is for


class CorrectionSamples:
    """What a network of corrections sees of squares, and what it is to say.

    Attributes
    ----------
    inputs, sigma
        ``(n, P + K)`` and ``(n, 1)``, see `CorrectionNetwork`.
    labels, values
        Corrections and solutions on the centre lines, ``(n, Q)``.
    """

    def __init__(self, squares: SquareDataset, network: CorrectionNetwork):
        pde = any_equation(squares.pde)
        if not isinstance(pde, NonlinearEquation):
            raise ValueError(f"squares are of nonlinear equations, {pde.name} is linear")  # noqa: TRY004
        require_learnable(pde)
        m, h = squares.subdomain.cells, squares.subdomain.spacing
        newton = SquareNewton(pde.operator({}), m, h, torch.device("cpu"))
        reaction = linear_reaction(pde, squares.parameters)
        columns: list[list[torch.Tensor]] = [[], [], []]
        for start in range(0, len(reaction), _BATCH):
            some = slice(start, start + _BATCH)
            g = torch.from_numpy(squares.boundary[some]).double()
            f = torch.from_numpy(squares.source[some]).double()[:, 1:-1, 1:-1]
            w = torch.zeros(len(g), m + 1, m + 1, dtype=torch.float64)
            newton.linear(w, f, reaction[some])
            inputs = torch.cat([g, w[:, *network.points.T]], dim=1)
            place(g, w)
            newton.linear(w, f, reaction[some])
            at = network.outputs.T
            values = torch.from_numpy(squares.solution[some][:, *at]).double()
            for column, one in zip(columns, (inputs, values - w[:, *at], values), strict=True):
                column.append(one.float())
        self.inputs, self.labels, self.values = (torch.cat(column) for column in columns)
        self.sigma = (reaction * squares.subdomain.size**2).float()[:, None]
        self.size = self.inputs.square().mean(dim=1, keepdim=True).sqrt()
        # Errors of all subdomains add up the further, the less reaction there is to damp them.
        self.weight = (1.25 + self.sigma) / (0.1 + self.sigma) / self.size


class CorrectionLesson(Lesson):
    """Corrections of the linear equation; errors are root mean squares over that of the solutions."""

    name, settings_type, plain = CORRECTION, CorrectionSettings, "linear"
    network: CorrectionNetwork

    def __init__(self, data: SquareDataset, how: CorrectionSettings):
        self._squares, self._how = data, how
        self.network = CorrectionNetwork(data.subdomain.cells, how)
        self._samples = CorrectionSamples(data, self.network)
        self.learned = len(data.boundary) - data.held_out

    @classmethod
    def read(cls, data: str | os.PathLike | SquareDataset) -> SquareDataset:
        """Return a dataset of squares."""
        return data if isinstance(data, SquareDataset) else read_squares(data)

    def loss(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return the weighted mean square of what is wrong in some squares."""
        samples = self._samples
        found = self.network(samples.inputs[chosen], samples.sigma[chosen])
        return ((found - samples.labels[chosen]) * samples.weight[chosen]).square().mean()

    def errors(self) -> tuple[float, float]:
        """Return the relative errors of the network, and of the linear equation's solutions."""
        size = self._samples.values[self.learned :].square().mean().sqrt()
        lacking = self._samples.labels[self.learned :]
        wrong = self._wrong()
        error, plain = (float(one.square().mean().sqrt() / size) for one in (wrong, lacking))
        return error, plain

    @torch.no_grad()
    def _wrong(self) -> torch.Tensor:
        """Return what is wrong in the held-out squares, ``(n, Q)``."""
        samples, compiled = self._samples, self.network.matrices()
        every = torch.arange(self.learned, len(samples.sigma)).split(_BATCH)
        found = [correct(samples.inputs[part], samples.sigma[part], compiled) for part in every]
        return torch.cat(found) - samples.labels[self.learned :]

    def card(self, best: SerialReport, training: dict) -> ModelCard:
        """Write down what the network is, was trained on, and reaches."""
        squares, samples = self._squares, self._samples
        wrong = self._wrong()
        shares = wrong.square().mean(dim=1).sqrt() / samples.size[self.learned :, 0]
        learned = slice(0, self.learned)
        g, w = samples.inputs[learned].split(
            [4 * squares.subdomain.cells, len(self.network.points)], 1
        )
        largest = float(g.abs().max())
        ends = zip(squares.parameters.min(axis=0), squares.parameters.max(axis=0), strict=True)
        ranges = {
            name: [float(f"{least:.2g}"), float(f"{most:.2g}")]
            for name, (least, most) in zip(squares.parameter_names, ends, strict=True)
        }
        rough = roughness(g) / samples.size[learned, 0]
        return ModelCard(
            pde=squares.pde,
            cells=squares.subdomain.cells,
            size=squares.subdomain.size,
            network=CORRECTION,
            settings=asdict(self._how),
            lifting_degree=None,
            boundary_range=[-largest, largest],
            ranges=ranges
            | {
                SOURCE: [0.0, float(w.abs().max())],
                ROUGHNESS: [0.0, float(np.quantile(rough.numpy(), _RANGE))],
            },
            validation={
                "error": best.error,
                "median": float(shares.median()),
                "largest": float(wrong.abs().max()),
                "linear": best.plain,
            },
            training=training,
            dataset_hash=squares.content_hash,
        )
