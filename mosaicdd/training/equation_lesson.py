"""The lesson of a network for one operator: solutions of a linear equation.

Every rank has all samples, and takes its share of each batch: a step's shares are then even.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from mosaicdd.networks.network import Network
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.schwarz.local_solvers.lifting import Lifting, unit_points
from mosaicdd.schwarz.local_solvers.network_solver import spectrum_range
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.training.losses import pass_loss, residual_of
from mosaicdd.training.memory import PROBES
from mosaicdd.training.objective import RankGroup
from mosaicdd.training.reports import Report
from mosaicdd.training.samples import Batches, LiftedSamples, Pass, lift_samples, squared_error
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings
from mosaicdd.unsupported import Unsupported

_SAMPLED_NODES = 64


class EquationLesson:
    """The lesson of a network on one rank: solutions of one linear equation.

    Attributes
    ----------
    network
        On the device, in the precision of the training.
    batches
        The samples of each step, of all ranks together.
    loss
        ``loss(part)``: the mean loss of a pass, on data or by the equation.
    validation, windows
        Samples that are not learned from, and windows of larger solutions, as a Schwarz iteration feeds them.
    samples_nodes
        Whether errors in the middle of a training are at some nodes only: a network that is not linear is evaluated at
        each pair of a perimeter and a node.
    """

    loss: Callable[[Pass], torch.Tensor]

    def __init__(
        self,
        network: Network,
        dataset: Dataset,
        settings: TrainingSettings,
        ranks: RankGroup | None = None,
    ):
        self.network, self._dataset, self._settings = network, dataset, settings
        self._ranks = ranks or RankGroup()
        self._like = placed(network, settings, self._ranks)
        subdomain, learned = dataset.subdomain, len(dataset.boundary) - dataset.held_out
        self._points = self._tensor(unit_points(subdomain.interior, subdomain))
        self.batches = self._teach(slice(0, learned))
        self.validation = self._lifted(
            dataset.operators(slice(learned, None)), dataset.boundary, dataset.solution
        )
        self.windows = self._lifted(
            dataset.window_operators, dataset.window_boundary, dataset.window_solution
        )
        self._nodes = torch.arange(len(self._points))
        if not network.linear:
            generator = self.batches.generator(settings.epochs * self.batches.per_epoch)
            self._nodes = torch.randperm(len(self._points), generator=generator)[:_SAMPLED_NODES]
        self.samples_nodes = len(self._nodes) < len(self._points)

    def _teach(self, learned: slice) -> Batches:
        """Take up the samples that are learned from, and return their batches."""
        dataset, settings, network = self._dataset, self._settings, self.network
        operators = dataset.operators(learned)
        self.samples = self._lifted(operators, dataset.boundary, dataset.solution)
        self._residual = residual_of(network, operators[0][0], dataset.subdomain, settings)
        self.loss = pass_loss(network, settings, self._residual)
        self._targets, self._data_points = self.samples.target, self._points
        if not settings.labels:  # the solution at perimeter nodes
            edge = unit_points(dataset.subdomain.perimeter, dataset.subdomain)
            self._targets, self._data_points = self.samples.remainder, self._tensor(edge)
        # A network that folds points, and is not linear, embeds a perimeter once for each symmetry that occurs among
        # them: those of a step come from one triangle, or wedge.
        self._pools = [torch.arange(len(self._data_points))]
        if network.symmetry is not None and not network.linear:
            element = network.symmetry.fold(self._data_points, merge=False).element.cpu()
            self._pools = [torch.nonzero(element == e)[:, 0] for e in element.unique()]
        return Batches(len(self.samples), settings.batch_size, settings.seed)

    def draw(self, step: int, micro_batch: int) -> list[Pass]:
        """Draw this rank's passes of a step: on data, then by the equation.

        Each has at most ``micro_batch`` samples, if not 0.

        Points are the same on all ranks.
        """
        settings, generator = self._settings, self.batches.generator(step)
        parts = self.batches.parts(step, self._ranks, micro_batch)
        shares = [len(part) * self._ranks.size / self.batches.size for part in parts]
        perimeters = [self.samples.remainder[part] for part in parts]
        passes = []
        # The boundary data are part of a discrete residual: without labels it says all.
        if settings.labels or settings.residual == "continuous":
            nodes = self._data_nodes(generator)
            points = self._data_points[nodes]
            values = (self._targets[part][:, nodes] for part in parts)
            passes += [
                Pass(g, share, points, target)
                for g, share, target in zip(perimeters, shares, values, strict=True)
            ]
        if self._residual is not None:
            places = self._residual.draw(generator)
            passes += [Pass(g, share, places) for g, share in zip(perimeters, shares, strict=True)]
        return passes

    def _data_nodes(self, generator: torch.Generator) -> slice | torch.Tensor:
        """Choose the data points of a step: all of them, or some of one pool."""
        count = self._settings.points
        if not 0 < count < len(self._data_points):
            return slice(None)
        pool = self._pools[int(torch.randint(len(self._pools), (), generator=generator))]
        chosen = pool[torch.randperm(len(pool), generator=generator)[:count]]
        return chosen.to(self._data_points.device)

    @classmethod
    def learned(cls, network: Network, dataset: Dataset) -> int:
        """Return the number of samples that are not held out."""
        return len(dataset.boundary) - dataset.held_out

    @classmethod
    def require(
        cls,
        name: str,
        network: Network,
        dataset: Dataset,
        settings: TrainingSettings,
        execution: ExecutionSettings,
    ) -> None:
        """Check that a network can learn from a dataset as the settings ask; `ValueError` if it cannot.

        The losses must tell the solution from other functions, and the network must be able to be it.
        """
        require_recomputing(name, network, execution)
        operators = [operator for operator, _ in dataset.operators(slice(None))]
        if len(operators) > 1:
            raise ValueError(
                f"the dataset is of {len(operators)} operators and this network learns one; train the "
                "network family, or generate data for fixed parameters"
            )
        if execution.recompute and settings.laplacian == "autograd":
            raise Unsupported(
                "double backward cannot recompute hidden layers; use laplacian taylor"
            )
        if network.symmetric_only and not operators[0].symmetric:
            raise ValueError(
                f"{dataset.pde} lacks the symmetries of the {dataset.subdomain.kind} that the network {name} has; train another"
            )
        if network.symmetry is None:
            return
        if not operators[0].symmetric:
            raise ValueError(
                f"{dataset.pde} lacks the symmetries of the {dataset.subdomain.kind} that this network has; set its setting "
                "symmetric to false"
            )
        if not settings.labels and settings.residual == "continuous":
            raise ValueError(
                "without labels a symmetric network has kinks where it folds points, which collocation "
                "points do not see; use residual multilevel, or a network that is not symmetric"
            )

    @classmethod
    def sketch(
        cls, network: Network, dataset: Dataset, settings: TrainingSettings
    ) -> tuple[Callable[[Any], torch.Tensor], list[Any], int]:
        """Return a loss, passes of eight samples, and the bytes of all samples, which every rank has."""
        few = replace(
            dataset,
            boundary=dataset.boundary[:8],
            solution=dataset.solution[:8],
            hyperparameters=dataset.hyperparameters[:8],
            window_boundary=dataset.window_boundary[:1],
            window_solution=dataset.window_solution[:1],
            parameters=dataset.parameters[:8],
            window_parameters=dataset.window_parameters[:1],
            validation=0.25,
        )
        lesson = cls(network, few, replace(settings, batch_size=max(PROBES), base_batch_size=0))
        return lesson.loss, lesson.draw(0, 0), lifted_bytes(dataset, settings)

    def squared_errors(self, *, everywhere: bool) -> tuple[list[float], list[int]]:
        """Return a rank's sums of squared errors of held-out samples and windows, and the numbers of all values."""
        nodes = torch.arange(len(self._points)) if everywhere else self._nodes
        nodes = nodes.to(self._points.device)
        kinds = self.validation, self.windows
        sums = [
            squared_error(self.network, kind, self._ranks.share(len(kind)), self._points, nodes)
            for kind in kinds
        ]
        return sums, [len(kind) * len(nodes) for kind in kinds]

    def card(self, name: str, best: Report) -> ModelCard:
        """Return the model card: network, data and errors; called by all ranks, with whole weights."""
        dataset, degree = self._dataset, self._settings.lifting_degree
        ranges = zip(dataset.hyperparameter_names, dataset.hyperparameters.T, strict=True)
        figures, names = best.figures, dataset.parameter_names
        values = dataset.parameters[0].tolist()
        errors = {"mse": figures["validation_mse"], "window_mse": figures["window_mse"]}
        left = self.validation.left_by_lifting()
        errors["relative_error"] = (errors["mse"] / left) ** 0.5 if left else 0.0
        # Around a square alone: faces have no one order of their nodes.
        operators = dataset.operators(slice(None)) if dataset.subdomain.axes == 2 else []
        remainders = [
            Lifting(operator, dataset.subdomain, degree).split(
                torch.from_numpy(dataset.boundary[samples])
            )[0]
            for operator, samples in operators
        ]
        spectrum = spectrum_range(torch.cat(remainders)) if remainders else {}
        return ModelCard(
            pde=dataset.pde,
            cells=dataset.subdomain.cells,
            size=dataset.subdomain.size,
            axes=dataset.subdomain.axes,
            network=name,
            settings=asdict(self.network.settings),
            lifting_degree=degree,
            boundary_range=[float(dataset.boundary.min()), float(dataset.boundary.max())],
            hyperparameter_ranges={key: [float(v.min()), float(v.max())] for key, v in ranges},
            spectrum=spectrum,
            parameters=dict(zip(names, values, strict=True)),
            validation=errors,
        )

    def _lifted(
        self,
        operators: list[tuple[EllipticOperator, slice]],
        boundary: np.ndarray,
        solution: np.ndarray,
    ) -> LiftedSamples:
        subdomain, degree = self._dataset.subdomain, self._settings.lifting_degree
        return lift_samples(operators, subdomain, degree, boundary, solution, self._like)

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(values).to(self._like)


def require_recomputing(name: str, network: Network, execution: ExecutionSettings) -> None:
    """Raise `Unsupported` if hidden layers are to be computed again, and the network cannot."""
    if execution.recompute and network.recompute is None:
        raise Unsupported(
            f"the network {name} cannot recompute its hidden layers (mlp, sdnet and sdnet-concat can); "
            "leave recompute away"
        )


def placed(network: Network, settings: TrainingSettings, ranks: RankGroup) -> torch.Tensor:
    """Move a network to a rank's device and a training's precision; return a tensor like its weights."""
    dtype = torch.float64 if settings.precision == "float64" else torch.float32
    network.to(ranks.device, dtype)
    return torch.empty(0, dtype=dtype, device=ranks.device)


def lifted_bytes(dataset: Dataset, settings: TrainingSettings) -> int:
    """Return the bytes of all lifted samples."""
    fields = dataset.boundary.shape[1] + len(dataset.subdomain.interior) + 1
    size = 8 if settings.precision == "float64" else 4
    return size * fields * (len(dataset.boundary) + len(dataset.window_boundary))
