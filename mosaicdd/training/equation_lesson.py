"""The lesson of a network for one operator: solutions of a linear equation.

Every rank has all samples, and takes its share of each batch: a step's shares are then even.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from mosaicdd.networks.network import Network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.schwarz.local_solvers.lifting import Lifting, unit_points
from mosaicdd.schwarz.local_solvers.network_solver import SpectrumRange
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.training.losses import GridResidual, UnitOperator, data_loss, pde_residual
from mosaicdd.training.memory import PROBES
from mosaicdd.training.objective import RankGroup
from mosaicdd.training.reports import Report
from mosaicdd.training.samples import (
    Batches,
    HeldOut,
    LiftedSamples,
    Pass,
    StepPasses,
    lift_samples,
)
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings
from mosaicdd.unsupported import Unsupported


class EquationLosses:
    """Returns the mean loss of a pass; a discrete PDE loss has a ``grid_residual``."""

    def __init__(
        self,
        network: Network,
        operator: EllipticOperator,
        subdomain: Subdomain,
        settings: TrainingSettings,
    ):
        self._network, self._settings = network, settings
        self.grid_residual: GridResidual | None = None
        self._operator: UnitOperator | None = None
        if not settings.pde_weight:
            return
        if settings.residual == "continuous":
            self._operator = UnitOperator.of(operator, subdomain)
        else:
            # A linear network is evaluated on all nodes anyway.
            self.grid_residual = GridResidual(
                operator,
                subdomain,
                0 if network.linear else settings.collocation,
                settings.residual == "multilevel",
                next(network.parameters()).detach().new_empty(0),
            )

    def __call__(self, part: Pass) -> torch.Tensor:
        """Return the loss of a pass with targets on data, of one without by the equation."""
        if part.target is None:
            return self._settings.pde_weight * self._pde_loss(part)
        if part.points is None:
            raise TypeError("a pass of the data loss needs points")
        bf16 = self._settings.precision == "bf16"
        with torch.autocast(part.g.device.type, dtype=torch.bfloat16, enabled=bf16):
            return data_loss(self._network, part.g, part.points, part.target)

    def _pde_loss(self, part: Pass) -> torch.Tensor:
        if self.grid_residual is not None and part.corner is not None:
            return self.grid_residual.loss(self._network, part.g, part.corner)
        if self._operator is not None and part.points is not None:
            laplacian = self._settings.laplacian
            residual = pde_residual(self._network, self._operator, part.g, part.points, laplacian)
            return residual.square().mean()
        raise TypeError("a pass of the PDE loss needs points, or a window of a discrete residual")


class EquationLesson:
    """A network, solutions of one linear equation, and what of them it is to learn; on one rank.

    How it is trained is the same for all (`Trainer`): gradients, ranks, devices, sharding, the schedule and checkpoints.

    Attributes
    ----------
    network
        On the device, in the precision of the training.
    batches
        The samples of each step, of all ranks together.
    passes
        ``passes.draw(step, ranks, micro_batch)`` returns the forward passes of a step on one rank.
    held_out
        Samples that are not learned from, and windows of larger solutions.
    samples_nodes
        Whether errors in the middle of a training are at some nodes only.
    """

    passes: Any

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
        subdomain = dataset.subdomain
        self._points = self._tensor(unit_points(subdomain.interior, subdomain))
        self.batches = self._taught()
        held_out = slice(len(dataset.boundary) - dataset.held_out, len(dataset.boundary))
        samples = dataset.boundary, dataset.solution
        windows = dataset.window_boundary, dataset.window_solution
        steps = settings.epochs * self.batches.per_epoch
        sampled = HeldOut.sampled_nodes(network, self._points, self.batches.generator(steps))
        self.held_out = HeldOut(
            self._lifted(dataset.operators(held_out), subdomain, *samples),
            self._lifted(dataset.window_operators, subdomain, *windows),
            self._points,
            sampled,
        )
        self.samples_nodes = self.held_out.samples_nodes

    def _taught(self) -> Batches:
        """Take up what is learned, and return the batches of it."""
        dataset, settings, network = self._dataset, self._settings, self.network
        operators = dataset.operators(slice(0, len(dataset.boundary) - dataset.held_out))
        samples = dataset.boundary, dataset.solution
        self.samples = self._lifted(operators, dataset.subdomain, *samples)
        batches = Batches(len(self.samples), settings.batch_size, settings.seed)
        self._losses = EquationLosses(network, operators[0][0], dataset.subdomain, settings)
        edge = unit_points(dataset.subdomain.perimeter, dataset.subdomain)
        known = self._points if settings.labels else self._tensor(edge)
        grid_residual = self._losses.grid_residual
        self.passes = StepPasses(network, self.samples, known, settings, batches, grid_residual)
        return batches

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
        if getattr(network, "symmetric_only", False) and not operators[0].symmetric:
            raise ValueError(
                f"{dataset.pde} lacks the symmetries of the {dataset.subdomain.kind} that the network {name} has; train another"
            )
        if getattr(network, "symmetry", None) is None:
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
        return lesson.loss, lesson.probe(), lifted_bytes(dataset, settings)

    def loss(self, part: Pass) -> torch.Tensor:
        """Return the mean loss of a pass, on data or by the equation."""
        return self._losses(part)

    def probe(self) -> list[Pass]:
        """Return the first passes of one process, to measure what they keep."""
        return self.passes.draw(0, RankGroup(device=self._ranks.device), 0)

    def error_sums(self, *, everywhere: bool) -> list[float]:
        """Return the sums of squared errors on a rank's share of held-out samples and windows."""
        return self.held_out.squared_errors(self.network, self._ranks, everywhere)

    def errors(self, sums: list[float], *, everywhere: bool) -> list[float]:
        """Return the mean squared errors."""
        return self.held_out.means(sums, everywhere)

    def card(self, name: str, best: Report) -> ModelCard:
        """Write down what the network is, was trained on, and reaches; called by all ranks, with whole weights."""
        dataset, degree = self._dataset, self._settings.lifting_degree
        ranges = zip(dataset.hyperparameter_names, dataset.hyperparameters.T, strict=True)
        figures, names = best.figures, dataset.parameter_names
        values = dataset.parameters[0].tolist()
        errors = {"mse": figures["validation_mse"], "window_mse": figures["window_mse"]}
        left = self.held_out.validation.left_by_lifting()
        errors["relative_error"] = (errors["mse"] / left) ** 0.5 if left else 0.0
        # Around a square alone: faces have no one order of their nodes.
        operators = dataset.operators(slice(None)) if dataset.subdomain.axes == 2 else []
        remainders = [
            Lifting(operator, dataset.subdomain, degree).split(
                torch.from_numpy(dataset.boundary[samples])
            )[0]
            for operator, samples in operators
        ]
        spectrum = asdict(SpectrumRange.of_remainders(torch.cat(remainders))) if remainders else {}
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
        subdomain: Subdomain,
        boundary: np.ndarray,
        solution: np.ndarray,
    ) -> LiftedSamples:
        degree, like = self._settings.lifting_degree, self._like
        return lift_samples(
            operators, subdomain, degree, boundary, solution, like.dtype, like.device
        )

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(values).to(self._like)


def require_recomputing(name: str, network: Network, execution: ExecutionSettings) -> None:
    """Raise `Unsupported` if hidden layers are to be computed again, and the network cannot."""
    if execution.recompute and not hasattr(network, "recompute"):
        raise Unsupported(
            f"the network {name} cannot recompute its hidden layers (mlp, sdnet and sdnet-concat can); "
            "leave recompute away"
        )


def placed(network: Network, settings: TrainingSettings, ranks: RankGroup) -> torch.Tensor:
    """Move a network to the device of a rank, in the precision of a training; return a tensor like its weights."""
    dtype = torch.float64 if settings.precision == "float64" else torch.float32
    network.to(ranks.device, dtype)
    return torch.empty(0, dtype=dtype, device=ranks.device)


def lifted_bytes(dataset: Dataset, settings: TrainingSettings) -> int:
    """Return the bytes of all lifted samples."""
    fields = dataset.boundary.shape[1] + len(dataset.subdomain.interior) + 1
    size = 8 if settings.precision == "float64" else 4
    return size * fields * (len(dataset.boundary) + len(dataset.window_boundary))
