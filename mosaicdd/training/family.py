"""Regression on operators: what the network for a family of them is trained on.

The ``4 m`` problems that a dataset holds for each operator determine it: solutions ``U`` for boundary
data ``G`` are ``U = G A^T``. The operators, each turned to its canonical image, are weighted by the
covariance of the remainders that a network is given, so that the Frobenius norm of an operator's error
is the root mean square error of solutions. In that norm the modes of the family are its principal
components, and the perceptron learns the coordinates of the operators in them: a mean squared error
of coordinates is one of solutions, at all nodes and for all boundary data at once.

Shape letters: ``n`` operators, ``P = 4 m`` perimeter nodes, ``N`` interior nodes, ``D`` width, ``K``
modes.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from mosaicdd.networks.registry import (
    SAME,
    FamilyNetwork,
    canonical,
    compressed,
    coordinates,
    images,
    interior_images,
    invariants,
)
from mosaicdd.problems.equations import equation
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.schwarz.local_solvers.lifting import Lifting
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.training.equation_lesson import (
    EquationLesson,
    lifted_bytes,
    placed,
    require_recomputing,
)
from mosaicdd.training.memory import PROBES
from mosaicdd.training.objective import RankGroup
from mosaicdd.training.reports import Report
from mosaicdd.training.samples import Batches, Pass
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings
from mosaicdd.unsupported import Unsupported

_NEAR = 0.4  # distance of images, in the perceptron's inputs, below which both are learned
# Variance of white noise added to unit remainders, for the directions that the lifting takes out: it
# takes out others where a stencil never reads the corners.
_NOISE = 1e-3
_RANGE_DRAWS = 4096
_NEAR_ZERO = 1e-3  # of the largest draw: a range that ends there ends at 0
_COLUMNS = 2**14  # of operators that are taken to float64 at a time


class FamilyLesson(EquationLesson):
    """The regression on operators of a network that makes them from the equation's parameters."""

    network: FamilyNetwork

    def _teach(self, learned: slice) -> Batches:
        """Put the modes of the operators into the network; their coordinates are learned."""
        settings, dataset = self._settings, self._dataset
        self.operators = fit_family(self.network, dataset, learned, settings.lifting_degree)
        self.loss = functools.partial(_coordinates_loss, self.network)
        return Batches(len(self.operators[0]), settings.batch_size, settings.seed)

    def draw(self, step: int, micro_batch: int) -> list[Pass]:
        """Draw the passes of a step, over this rank's share of a batch of operators."""
        p, z = self.operators
        # The sum over K coordinates: the squared error at all nodes together. Their mean would be
        # lost, for the last modes, in the optimiser's guard against divisions by zero.
        share = z.shape[1] * self._ranks.size / self.batches.size
        parts = self.batches.parts(step, self._ranks, micro_batch)
        return [Pass(p[part], len(part) * share, target=z[part]) for part in parts]

    @classmethod
    def require(
        cls,
        name: str,
        network: Any,
        dataset: Dataset,
        settings: TrainingSettings,
        execution: ExecutionSettings,
    ) -> None:
        """Check that no setting is given that means nothing here, and that the dataset has operators enough."""
        if not settings.labels:
            raise ValueError(f"the network {name} learns from solutions alone: leave labels on")
        values, usual = asdict(settings), asdict(TrainingSettings())
        reasons = {
            key: "it learns from solutions alone, at all nodes and for all data at once"
            for key in ("collocation", "laplacian", "pde_weight", "points", "residual")
            if values[key] != usual[key]
        }
        if settings.precision == "bf16":
            reasons["precision"] = "it trains in float32, float64, tf32"
        for setting, reason in reasons.items():
            raise Unsupported(
                f"the network {name} has no use for {setting}={values[setting]}: {reason}; leave it out"
            )
        require_recomputing(name, network, execution)
        require_operators(network, dataset)

    @classmethod
    def learned(cls, network: Any, dataset: Dataset) -> int:
        """Return the number of operators that are not held out."""
        return super().learned(network, dataset) // dataset.boundary.shape[1]

    @classmethod
    def sketch(
        cls, network: Any, dataset: Dataset, settings: TrainingSettings
    ) -> tuple[Callable[[Any], torch.Tensor], list[Any], int]:
        """Return a pass over operators that are zero: few samples have none."""
        like = placed(network, settings, RankGroup())
        p, z = like.new_zeros(max(PROBES), 5), like.new_zeros(max(PROBES), network.settings.modes)

        loss = functools.partial(_coordinates_loss, network)
        return loss, [Pass(p, 1.0, target=z)], lifted_bytes(dataset, settings)

    def card(self, name: str, best: Report) -> ModelCard:
        """Write down which parameters it is for, too."""
        card = super().card(name, best)
        return replace(card, parameters={}, ranges=family_ranges(self._dataset))


def _coordinates_loss(network: FamilyNetwork, part: Any) -> torch.Tensor:
    """Return the mean squared error of coordinates."""
    return torch.nn.functional.mse_loss(network(part.g), part.target)


def fit_family(
    network: FamilyNetwork, dataset: Dataset, part: slice, lifting_degree: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Put the modes of a part's operators into a network.

    Returns the network's inputs, the canonical operators ``(n, 5)``, and its targets, their coordinates ``(n, K)``.
    """
    runs = _determined(dataset, part)
    views = [_views(coordinates(operator, dataset.subdomain.size)) for operator, _ in runs]
    root = _covariance_root(network, dataset, runs, views, lifting_degree)
    operators = _weighted_operators(network, dataset, runs, views, root)  # (n, N, P)
    z = _set_modes(network, operators, np.linalg.inv(root))
    p = torch.as_tensor(np.array([p for view in views for _, p in view]))
    network.amplitudes.copy_(torch.as_tensor(np.sqrt((z**2).mean(axis=0))))
    ends = torch.stack([compressed(p).amin(dim=0), compressed(p).amax(dim=0)])
    network.centre.copy_(ends.mean(dim=0))
    reach = (ends[1] - ends[0]) / 2
    network.reach.copy_(torch.where(reach > 0, reach, 1.0))
    like = network.centre
    return p.to(like), torch.as_tensor(z).to(like)


def require_operators(network: FamilyNetwork, dataset: Dataset) -> None:
    """Raise `ValueError` unless a dataset has more operators, of ``4 m`` samples each, than the network modes.

    The message has the number of samples that would do.
    """
    if len(dataset.operators(slice(None))) == 1:
        raise ValueError(
            "the dataset is of one operator and a network for a family learns many; generate data "
            "without fixed parameters, of an equation that says how they are drawn, or train another "
            "network, such as linear"
        )
    modes, each = network.settings.modes, dataset.boundary.shape[1]
    operators = len(_determined(dataset, slice(0, len(dataset.boundary) - dataset.held_out)))
    if operators > modes:
        return
    samples = math.ceil(((modes + 1) * each + 1) / (1 - dataset.validation))
    lower = f", or set modes={operators - 1}" if operators > 1 else ""
    raise ValueError(
        f"{modes} modes need {modes + 1} operators of {each} samples each to train on, the dataset's "
        f"{len(dataset.boundary)} samples hold {operators}; generate at least {samples}{lower}"
    )


def family_ranges(dataset: Dataset) -> dict[str, list[float]]:
    """Return between which values what limits a dataset's family was drawn, to two digits."""
    pde, rng = equation(dataset.pde), np.random.default_rng(dataset.seed)
    draws = [invariants(pde.at(**pde.drawn(rng)), dataset.subdomain) for _ in range(_RANGE_DRAWS)]
    ranges = {}
    for name in draws[0]:
        ends = [end(draw[name] for draw in draws) for end in (min, max)]
        zero = _NEAR_ZERO * max(map(abs, ends))
        ranges[name] = [0.0 if abs(end) <= zero else float(f"{end:.2g}") for end in ends]
    return ranges


def _determined(dataset: Dataset, part: slice) -> list[tuple[EllipticOperator, slice]]:
    """Return the operators of some samples that have ``4 m`` of them or more."""
    each = dataset.boundary.shape[1]
    return [run for run in dataset.operators(part) if run[1].stop - run[1].start >= each]


def _views(p: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Return the images of an operator that are learned, with their symmetries.

    The canonical one, first, and those near it, so that no regression ends where the images meet.
    """
    first = canonical(p)
    views = [first]
    here = _compressed(first[1])
    for element, image in enumerate(images(p)):
        near = np.linalg.norm(_compressed(image) - here) <= _NEAR
        if near and all(np.abs(image - other).max() > SAME for _, other in views):
            views.append((element, image))
    return views


def _compressed(p: np.ndarray) -> np.ndarray:
    return compressed(torch.as_tensor(p)).numpy()


def _covariance_root(
    network: FamilyNetwork,
    dataset: Dataset,
    runs: list[tuple[EllipticOperator, slice]],
    views: list[list[tuple[int, np.ndarray]]],
    lifting_degree: int | None,
) -> np.ndarray:
    """Return a root ``(P, P)`` of the covariance of unit remainders, turned as their operators."""
    m = dataset.subdomain.cells
    perimeter = network.square.images.cpu().numpy()
    covariance = _NOISE * np.eye(4 * m)
    for (operator, samples), ((element, _), *_) in zip(runs, views, strict=True):
        lifting = Lifting(operator, dataset.subdomain, lifting_degree)
        remainder = lifting.split(torch.from_numpy(dataset.boundary[samples]))[0].numpy()
        turned = np.empty_like(remainder)
        turned[:, perimeter[element]] = remainder
        covariance += turned.T @ turned / (len(turned) * len(runs))
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(values) @ vectors.T


def _weighted_operators(
    network: FamilyNetwork,
    dataset: Dataset,
    runs: list[tuple[EllipticOperator, slice]],
    views: list[list[tuple[int, np.ndarray]]],
    root: np.ndarray,
) -> np.ndarray:
    """Return the operators of all views times a root of the covariance, ``(n, N, P)``."""
    m = dataset.subdomain.cells
    nodes = interior_images(network.square, m).numpy()
    perimeter = network.square.images.cpu().numpy()
    operators = np.empty((sum(map(len, views)), (m - 1) ** 2, 4 * m), dtype=np.float32)
    out = iter(operators)
    for (_, samples), view in zip(runs, views, strict=True):
        inside = dataset.solution[samples, 1:-1, 1:-1].reshape(-1, (m - 1) ** 2)
        rows = np.linalg.lstsq(dataset.boundary[samples], inside, rcond=None)[0].T  # (N, P)
        for element, _ in view:
            turned = np.empty_like(rows)
            turned[np.ix_(nodes[element], perimeter[element])] = rows
            next(out)[:] = turned @ root
    return operators


def _set_modes(network: FamilyNetwork, weighted: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """Set trunk and branches by the principal components of weighted operators ``(n, N, P)``.

    Those are overwritten by their deviations from the mean; ``inverse (P, P)`` undoes the weights.
    Returned are the coordinates of the operators, ``(n, K)``.
    """
    count, shape = len(weighted), weighted.shape[1:]
    mean = weighted.mean(axis=0)
    weighted -= mean
    deviation = weighted.reshape(count, -1)
    gram = sum(
        part @ part.T
        for part in (
            deviation[:, start : start + _COLUMNS].astype(float)
            for start in range(0, deviation.shape[1], _COLUMNS)
        )
    )
    values, vectors = np.linalg.eigh(gram)
    order = np.argsort(values)[::-1][: network.settings.modes]
    modes = deviation.T @ vectors[:, order].astype(np.float32)  # (N P, K)
    # Orthonormal to rounding, also where the last of them are rounding.
    modes = np.linalg.qr(modes)[0].T
    z = deviation @ modes.T
    modes = np.concatenate([mean[None], modes.reshape(-1, *shape)])  # (1 + K, N, P)
    # The trunk spans what the modes span at the nodes, each as far as it occurs.
    scales = np.concatenate([[1.0], np.sqrt((z**2).mean(axis=0))])
    outer = sum(s**2 * (mode @ mode.T).astype(float) for s, mode in zip(scales, modes, strict=True))
    trunk = np.linalg.eigh(outer)[1][:, ::-1][:, : network.trunk.shape[1]].astype(np.float32)
    network.trunk.copy_(torch.as_tensor(trunk.copy()))
    branches = np.einsum("nd,knp->kdp", trunk, modes, optimize=True) @ inverse
    network.branches.copy_(torch.as_tensor(branches))
    return z
