"""Lessons of networks of corrections: squares of a nonlinear equation.

The labels are what the linear equation's solutions lack on the centre lines. The loss is the mean square of what is wrong
over that of the data, so that small data are worth as much as large ones. Without labels, what is wrong is what the
equation would change, as `EquationStep` says it.
"""

from abc import abstractmethod
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.local_solvers.networks.correction import (
    ROUGHNESS,
    SOURCE,
    CorrectionNetwork,
    roughness,
)
from mosaicdd.local_solvers.networks.unrolled import (
    PLANE,
    SLOPE,
    UnrolledNetwork,
    remainder_size,
    sloped,
)
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.storage.samples import SquareDataset
from mosaicdd.training.reports import Report
from mosaicdd.training.row_lesson import OwnRows, RowLesson, RowPass
from mosaicdd.training.squares import EquationStep, SquareSamples, learnable_equation

_BATCH = 2048  # squares of a pass without gradients
_ANEW = 8  # of so many squares in a batch, the step by the equation is taken anew for one
_RANGE = 0.999  # quantile of the training data's roughness that the model is for


@dataclass(frozen=True)
class SquareInputs:
    """What a network of corrections is given of squares, on its device."""

    inputs: tuple[torch.Tensor, ...]  # what it is called with, rows for all squares
    # size, weight: of their data, and of their errors in the loss, ``(n, 1)``
    size: torch.Tensor
    weight: torch.Tensor

    def to(self, like: torch.Tensor) -> "SquareInputs":
        """Return them in the precision and on the device of a tensor."""
        inputs = tuple(values.to(like) for values in self.inputs)
        return SquareInputs(inputs, self.size.to(like), self.weight.to(like))


class SquareLesson(RowLesson):
    """Corrections of the linear equation; errors are root mean squares over that of the solutions.

    ``unit`` is that of values, as the network has them.
    """

    dataset_type = SquareDataset
    network: Any
    unit = 1.0

    def take(self, rows: OwnRows) -> int:
        """Solve the linear equation in the squares."""
        self._rows = rows
        parts = (rows.learned, rows.held_out)
        self.samples, self.held_out = (
            self.in_units(SquareSamples(part, self.network)) for part in parts
        )
        self._learned, self._others = (
            self.inputs(samples).to(self.like) for samples in (self.samples, self.held_out)
        )
        self._labels, self._lacking = (
            samples.labels.to(self.like) for samples in (self.samples, self.held_out)
        )
        self.prepares = not self.settings.labels
        if self.prepares:
            pde, device = learnable_equation(rows.whole.pde), self.ranks.device
            self._step = EquationStep(rows.learned, pde, self.network.outputs, device)
            self._linear = self.samples.linear.to(self.like)
            # Of squares that have not been seen yet there is nothing to learn.
            self._labels = torch.full_like(self._linear, torch.nan)
        return len(rows.learned)

    def in_units(self, samples: SquareSamples) -> SquareSamples:
        """Return samples in the units of the network."""
        return samples

    @abstractmethod
    def inputs(self, samples: SquareSamples) -> SquareInputs:
        """Return what the network is given."""

    @classmethod
    def build(cls, name: str, values: dict, dataset: SquareDataset) -> Any:
        """Return the network, of an equation that can be learned."""
        learnable_equation(dataset.pde)
        return super().build(name, values, dataset)

    @classmethod
    def require(
        cls, name: str, network: Any, dataset: SquareDataset, settings: Any, execution: Any
    ) -> None:
        """Check that what is to be learned from is solved."""
        super().require(name, network, dataset, settings, execution)
        if settings.labels and dataset.unsolved:
            raise ValueError(
                f"{dataset.unsolved} of {len(dataset)} squares have no solution: train without labels, or "
                "generate them with labels"
            )

    def tensors(self) -> list[torch.Tensor]:
        """Return the inputs, and what is learned."""
        learned = self._learned
        return [*learned.inputs, learned.size, learned.weight, self._labels]

    def loss(self, part: RowPass) -> torch.Tensor:
        """Return the weighted mean square of what is wrong in some squares."""
        corrections = self._corrections(part.rows)
        aims = self._labels[part.rows].nan_to_num(nan=0.0)
        return ((corrections - aims) * self._learned.weight[part.rows]).square().mean()

    def _corrections(self, rows: torch.Tensor) -> torch.Tensor:
        return self.network(*(values[rows] for values in self._learned.inputs))

    @torch.no_grad()
    def prepare(self, passes: list[RowPass]) -> None:
        """Note what the equation leads to, for some of the squares anew, from the network's corrections.

        Of squares that are seen for the first time, and where it leads nowhere, from the linear solution.
        """
        rows = torch.cat([part.rows for part in passes])
        places = torch.cat([part.places for part in passes])
        first = self._labels[rows].isnan().any(dim=1) & (places >= 0)
        anew = first | (places % _ANEW == 0)
        rows, first = rows[anew], first[anew]
        begin = torch.where(first[:, None], 0.0, self._corrections(rows))
        lines = self._linear[rows] + begin
        led = begin + self._step(rows, self.unit * lines).to(self.like) / self.unit
        sound = led.isfinite().all(dim=1)
        self._labels[rows[sound]] = led[sound]

    def error_sums(self, *, everywhere: bool) -> list[float]:
        """Return the sums of squares of what is wrong, of what the linear equation lacks, and of solutions."""
        values = (self._wrong(), self._lacking, self.held_out.values)
        return [float(value.double().square().sum()) for value in values]

    def errors(self, sums: list[float], *, everywhere: bool) -> list[float]:
        """Return the relative errors of the network, and of the linear equation's solutions."""
        wrong, lacking, size = sums
        return [(wrong / size) ** 0.5, (lacking / size) ** 0.5]

    @torch.no_grad()
    def _wrong(self) -> torch.Tensor:
        """Return what is wrong in this rank's held-out squares, ``(n, Q)``."""
        parts = zip(*(values.split(_BATCH) for values in self._others.inputs), strict=True)
        return torch.cat([self.network(*inputs) for inputs in parts]) - self._lacking

    @abstractmethod
    def ranges(self) -> dict[str, torch.Tensor]:
        """Return what a model is limited to, by name, besides parameters, in each square that was learned."""

    def card(self, name: str, best: Report) -> ModelCard:
        """Write down what the network is, was trained on, and reaches."""
        squares, joined = self._rows.whole, self.ranks.joined
        wrong = self._wrong()
        shares = joined(wrong.square().mean(dim=1).sqrt() / self._others.size[:, 0])
        parameters = np.concatenate([self._rows.learned.parameters, self._rows.held_out.parameters])
        ends = _ends(joined(torch.from_numpy(parameters)).double())
        largest = float(joined(self.samples.g.abs().amax(dim=1)).max())
        limits = {
            limit: float(np.quantile(joined(values).numpy(), _RANGE if limit == ROUGHNESS else 1.0))
            for limit, values in self.ranges().items()
        }
        return ModelCard(
            pde=squares.pde,
            cells=squares.subdomain.cells,
            size=squares.subdomain.size,
            network=name,
            settings=asdict(self.network.settings),
            lifting_degree=None,
            boundary_range=[-largest, largest],
            ranges=dict(zip(squares.parameter_names, ends, strict=True))
            | {limit: [0.0, most] for limit, most in limits.items()},
            validation={
                "error": best.figures["error"],
                "median": float(shares.median()),
                "largest": float(joined(wrong.abs().amax(dim=1)).max()),
                "linear": best.figures["plain"],
            },
        )

    def state(self) -> dict[str, torch.Tensor]:
        """Return what the equation has led to so far."""
        return {"labels": self.ranks.joined(self._labels)} if self.prepares else {}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Take up this rank's rows of it."""
        if self.prepares:
            first = self.batches.first(self.ranks)
            self._labels.copy_(state["labels"][first : first + len(self._labels)])


def _ends(values: torch.Tensor) -> list[list[float]]:
    """Return the least and the largest of each column, to two digits."""
    columns = zip(values.amin(dim=0).tolist(), values.amax(dim=0).tolist(), strict=True)
    return [[float(f"{least:.2g}"), float(f"{most:.2g}")] for least, most in columns]


class CorrectionLesson(SquareLesson):
    """Of `CorrectionNetwork`."""

    kind = CorrectionNetwork

    def inputs(self, samples: SquareSamples) -> SquareInputs:
        """Return perimeters and effects of sources, side by side, and the linear reaction."""
        x = torch.cat([samples.g, samples.w], 1)
        size = x.square().mean(dim=1, keepdim=True).sqrt()
        # Errors of all subdomains add up the further, the less reaction there is to damp them.
        weight = (1.25 + samples.sigma) / (0.1 + samples.sigma) / size
        return SquareInputs((x, samples.sigma), size, weight)

    def ranges(self) -> dict[str, torch.Tensor]:
        """Return the source's effect and the roughness."""
        rough = roughness(self.samples.g) / self._learned.size[:, 0].cpu()
        return {SOURCE: self.samples.w.abs().amax(dim=1), ROUGHNESS: rough}


class UnrolledLesson(SquareLesson):
    """Of `UnrolledNetwork`, in whose units values are."""

    kind = UnrolledNetwork

    @classmethod
    def build(cls, name: str, values: dict, dataset: SquareDataset) -> UnrolledNetwork:
        """Return a network that begins with harmonic functions."""
        network = super().build(name, values, dataset)
        network.begin(ExactSolver(EllipticOperator(), dataset.subdomain).matrix)
        return network

    def in_units(self, samples: SquareSamples) -> SquareSamples:
        """Return samples in sides of the square, and perimeters without their means."""
        self.unit = self._rows.whole.subdomain.size
        for values in (samples.g, samples.w, samples.linear, samples.labels, samples.values):
            values /= self.unit
        samples.g -= samples.g.mean(dim=1, keepdim=True)
        return samples

    def inputs(self, samples: SquareSamples) -> SquareInputs:
        """Return perimeters and the gradients that sources make."""
        slopes, planes = self._slopes(samples)
        size = remainder_size(samples.g - slopes @ planes, samples.w)
        return SquareInputs((samples.g, samples.w), size, 1.0 / size)

    def _slopes(self, samples: SquareSamples) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the slopes of the planes through perimeters, and from slopes to perimeters."""
        matrices = self.network.matrices()
        fit, planes = (matrix.detach().to(samples.g) for matrix in (matrices.fit, matrices.planes))
        return samples.g @ fit, planes

    def ranges(self) -> dict[str, torch.Tensor]:
        """Return slopes, the roughness and the source's effect."""
        along, plane, rough = sloped(self.samples.g, self._slopes(self.samples)[0])
        effect = self.samples.w.abs().amax(dim=1)
        return {SLOPE: along, PLANE: plane, ROUGHNESS: rough, SOURCE: effect}
