"""What a step of training sees: lifted samples, the choice of a batch, and its forward passes.

All random choices are functions of the seed and the number of the step, and the same on every
rank: a run that is resumed, or that runs on another number of ranks, makes the same ones.

Shape letters: ``n`` samples, ``B`` subdomains of a pass, ``P`` perimeter nodes, ``Q`` points.

Data to train on, made part by part by all ranks together.

What a run that was ended has made is kept, and the next one continues from it, on any number of ranks.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mosaicdd.networks.network import Network
from mosaicdd.networks.registry import MatrixNetwork, is_family
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.parallel.machine import device_memory
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.schwarz.local_solvers.lifting import Lifting
from mosaicdd.settings import require_type
from mosaicdd.storage.atomic import require_new
from mosaicdd.storage.dataset_file import Dataset, DatasetParts, joined
from mosaicdd.torch_defaults import on_processor
from mosaicdd.training.generation import PartGenerator
from mosaicdd.training.losses import GridResidual
from mosaicdd.training.objective import RankGroup
from mosaicdd.training.settings import GenerationSettings, TrainingSettings


@on_processor()
def generate(
    path: str | os.PathLike,
    settings: GenerationSettings | None = None,
    *,
    ranks: Any = None,
    overwrite: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Dataset | None:
    """Draw and solve data to train on, and write them to a file; all ranks call this together.

    Parameters
    ----------
    settings
        What is drawn; the defaults if not given.
    ranks
        Who shares the work, the samples being the same on any number of ranks: a communicator,
        `Ranks`, or None for this process alone.
    overwrite
        Whether a file that is there is replaced.
    progress
        Called with the fraction of this rank's work that is done.

    Returns
    -------
    Dataset
        What was written, on rank 0; None on the others.

    Raises
    ------
    FileExistsError
        If the file is there and is not to be overwritten.
    ValueError
        If the equation is unknown, cannot be learned or draws no parameters of its own, or parts of other
        data lie beside the file.
    OSError
        If the file or a part of it cannot be written or read; what was made of the parts is kept.
    RuntimeError
        If multigrid misses its residual.
    """
    settings = GenerationSettings() if settings is None else settings
    require_type("settings", settings, GenerationSettings)
    with Ranks.of(ranks) as everyone:
        generation = Generation(path, settings, everyone, overwrite=overwrite)
        return generation.run(progress)


class Generation:
    """Data that are to be made by all ranks together: checked first, then run; for arguments and errors see `generate`.

    The parts lie in ``PATH.parts`` until the file is complete.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        settings: GenerationSettings,
        ranks: Ranks | None = None,
        *,
        overwrite: bool = False,
    ):
        self._path, self._settings, self._ranks = path, settings, ranks or Ranks.alone()
        # As JSON gives it back.
        identity = {n: list(v) if isinstance(v, tuple) else v for n, v in asdict(settings).items()}
        self._parts = DatasetParts(Path(path), identity)

        def check() -> None:
            _require_memory(settings)
            PartGenerator(settings)
            require_new(path, overwrite=overwrite)
            self._parts.open()

        self._ranks.on_root(check)

    def run(self, progress: Callable[[float], None] | None = None) -> Dataset | None:
        """Make what is missing of the parts, every ``size``-th on a rank, and write the file.

        Errors are raised on all ranks, and all parts are kept.
        """
        generator, parts, ranks = PartGenerator(self._settings), self._parts, self._ranks
        written: list[Dataset] = []

        def make() -> None:
            mine = range(ranks.rank, generator.parts, ranks.size)
            for done, number in enumerate(mine, start=1):
                if not parts.is_whole(number):
                    parts.write(number, generator.part(number))
                if progress:
                    progress(done / len(mine))

        def assemble() -> None:
            made = generator.dataset(**joined(parts.every(generator.parts)))
            if len(made) != self._settings.samples:
                raise RuntimeError(
                    f"{parts.folder} holds {len(made)} samples, {self._settings.samples} are to be "
                    "written; remove the folder, and they are made anew"
                )
            made.write(self._path)
            written.append(made)
            parts.remove()

        ranks.run_on_all(make)
        ranks.on_root(assemble)
        return written[0] if written else None


def _require_memory(settings: GenerationSettings) -> None:
    """Check that the dataset, which one rank writes, fits this machine's memory; else raise `ValueError`."""
    subdomain, count = settings.subdomain, settings.samples + settings.windows
    numbers = len(subdomain.perimeter) + (subdomain.cells + 1) ** subdomain.axes
    needed, there = 8 * count * numbers, device_memory(torch.device("cpu"), 1)
    if needed > there:
        raise ValueError(
            f"{settings.samples} samples and {settings.windows} windows of {subdomain.cells} cells per side take "
            f"{needed / 2**30:.1f} GiB, this machine has {there / 2**30:.1f} GiB for them: draw fewer"
        )


_CHUNK = 1024  # samples at once: of 32 cells, 8 MB in float64


@dataclass(frozen=True)
class LiftedSamples:
    """Unit remainders and the values that belong to them."""

    # remainder, target: ``(n, P)`` and ``(n, Q)``
    remainder: torch.Tensor
    target: torch.Tensor
    scale: torch.Tensor  # ``(n, 1)``: an error times the scale is one of the solution itself
    # subdomain, operators: where, and of which operators they are, each with its samples, which
    # follow one another
    subdomain: Subdomain
    operators: tuple[tuple[EllipticOperator, slice], ...]

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.remainder)

    def left_by_lifting(self) -> float:
        """Return the mean square of what a network has to add to the lifting."""
        return (self.target * self.scale).double().square().mean().item()


def lift_samples(
    operators: Sequence[tuple[EllipticOperator, slice]],
    subdomain: Subdomain,
    degree: int | None,
    boundary: np.ndarray,
    solution: np.ndarray,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> LiftedSamples:
    """Lift boundaries ``(., P)`` and the interior of solutions ``(., m + 1, m + 1)``, or with an axis more, of the whole dataset.

    Each operator has its samples; together they are all that is lifted, in order.
    """
    parts = []
    for operator, samples in operators:
        lifting = Lifting(operator, subdomain, degree)
        basis = lifting.basis_tensor(subdomain.interior)
        for start in range(samples.start, samples.stop, _CHUNK):
            chunk = slice(start, min(start + _CHUNK, samples.stop))
            g = torch.as_tensor(boundary[chunk], dtype=torch.float64)
            inner = solution[chunk, *[slice(1, -1)] * subdomain.axes].reshape(len(g), -1)
            remainder, scale, coefficients = lifting.split(g)
            target = (torch.as_tensor(inner, dtype=torch.float64) - coefficients @ basis) / scale
            parts.append([part.to(device, dtype) for part in (remainder, target, scale)])
    remainder, target, scale = (torch.cat(column) for column in zip(*parts, strict=True))
    first = operators[0][1].start
    counted = ((a, slice(s.start - first, s.stop - first)) for a, s in operators)
    return LiftedSamples(remainder, target, scale, subdomain, tuple(counted))


@dataclass(frozen=True)
class Pass:
    """One forward pass of a step."""

    g: torch.Tensor  # perimeters ``(B, P)``
    share: float  # factor of its mean loss in the mean over the ranks
    # points, target: ``(Q, 2)`` and ``(B, Q)`` for the data loss; for the PDE loss the target is
    # None. Where a family is learned there are no points, and these are operators and their
    # coordinates
    points: torch.Tensor | None = None
    target: torch.Tensor | None = None
    corner: tuple[int, ...] | None = None  # the window of a discrete residual, instead of points

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.g)

    @property
    def kind(self) -> str:
        """Which loss it has."""
        return "pde_loss" if self.target is None else "data_loss"

    def first(self, count: int) -> "Pass":
        """Return a pass over copies of the first samples of this one."""
        target = None if self.target is None else self.target[:count].clone()
        return replace(self, g=self.g[:count].clone(), target=target)


_ORDER, _POINTS = 0, 1  # the two families of random numbers


class Batches:
    """The global batches of a training, chosen by a seed; one larger than the samples becomes all of them."""

    def __init__(self, samples: int, batch_size: int, seed: int):
        self.samples = samples
        self.size = min(batch_size, samples)
        self.per_epoch = samples // self.size
        self._seed = seed
        self._epoch = -1
        self._order = torch.empty(0, dtype=torch.long)

    def indices(self, step: int) -> torch.Tensor:
        """Return the samples of a step, ``(batch_size,)``; an epoch has each at most once."""
        epoch, position = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            generator = self._generator(_ORDER, epoch)
            self._order = torch.randperm(self.samples, generator=generator)
            self._epoch = epoch
        return self._order[position * self.size :][: self.size]

    def parts(self, step: int, ranks: RankGroup, micro_batch: int) -> list[torch.Tensor]:
        """Return the samples of a rank in a step, split into passes: as many as on any other rank.

        Ranks with sharded weights gather them in every pass. Where the shares differ and passes of
        one sample are asked for, some have two: no part is empty.
        """
        least, most = self.size // ranks.size, -(-self.size // ranks.size)
        count = min(least, -(-most // micro_batch)) if micro_batch else 1
        chosen = self.indices(step)[ranks.share(self.size)]
        return [part.to(ranks.device) for part in chosen.tensor_split(count)]

    def generator(self, step: int) -> torch.Generator:
        """Return the source of the random points of a step."""
        return self._generator(_POINTS, step)

    def _generator(self, family: int, number: int) -> torch.Generator:
        state = np.random.SeedSequence([self._seed, family, number]).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))


class StepPasses:
    """Draws data points and collocation points, the same on all ranks.

    A symmetric network that is not linear embeds a perimeter once per symmetry that occurs among
    the points, so all points of a pass come from one triangle, or wedge, another in each step.

    Parameters
    ----------
    network
        Whose symmetry counts.
    points
        Nodes with known values, ``(Q, axes)``: the interior, or without labels the perimeter.
    grid_residual
        Of a discrete PDE loss; None for a continuous one.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        samples: LiftedSamples,
        points: torch.Tensor,
        settings: TrainingSettings,
        batches: Batches,
        grid_residual: GridResidual | None,
    ):
        self._samples, self._points, self._settings = samples, points, settings
        self._batches, self._grid_residual = batches, grid_residual
        self._symmetry = None if network.linear else getattr(network, "symmetry", None)
        self._pools = self._node_pools()

    def draw(self, step: int, ranks: RankGroup, micro_batch: int) -> list[Pass]:
        """Draw a rank's passes of a step, of at most so many samples if not 0: all of the data, then the PDE loss."""
        parts = self._batches.parts(step, ranks, micro_batch)
        generator = self._batches.generator(step)
        shares = [len(part) * ranks.size / self._batches.size for part in parts]
        perimeters = [self._samples.remainder[part] for part in parts]
        passes = []
        # The boundary data are part of a discrete residual: without labels it says all.
        if self._settings.labels or self._grid_residual is None:
            nodes = self._data_nodes(generator)
            points = self._points[nodes]
            known = perimeters
            if self._settings.labels:
                known = [self._samples.target[part] for part in parts]
            passes += [
                Pass(g, share, points, values[:, nodes])
                for g, share, values in zip(perimeters, shares, known, strict=True)
            ]
        if self._settings.pde_weight:
            collocation, corner = self._collocation(generator)
            passes += [
                Pass(g, share, collocation, corner=corner)
                for g, share in zip(perimeters, shares, strict=True)
            ]
        return passes

    def _node_pools(self) -> list[torch.Tensor]:
        """Return the sets of nodes from which the data points of a step are drawn."""
        if self._symmetry is None:
            return [torch.arange(len(self._points))]
        element = self._symmetry.fold(self._points, merge=False).element.cpu()
        return [torch.nonzero(element == e)[:, 0] for e in element.unique()]

    def _data_nodes(self, generator: torch.Generator) -> slice | torch.Tensor:
        """Choose the data points of a step: all of them, or some of one pool."""
        count = self._settings.points
        if not 0 < count < len(self._points):
            return slice(None)
        pool = self._pools[int(torch.randint(len(self._pools), (), generator=generator))]
        chosen = pool[torch.randperm(len(pool), generator=generator)[:count]]
        return chosen.to(self._points.device)

    def _collocation(
        self, generator: torch.Generator
    ) -> tuple[torch.Tensor | None, tuple[int, ...] | None]:
        """Choose the collocation points of a step, or the window of a discrete residual."""
        if self._grid_residual is not None:
            return None, self._grid_residual.draw(generator)
        axes = self._points.shape[1]
        points = 2 * torch.rand(self._settings.collocation, axes, generator=generator) - 1
        points = points.to(self._points)
        if self._symmetry is not None:
            canonical = self._symmetry.fold(points, merge=False).canonical
            matrices = self._symmetry.matrices
            element = int(torch.randint(len(matrices), (), generator=generator))
            points = canonical @ matrices[element].to(canonical)
        return points, None


_SAMPLED_NODES = 64


@dataclass(frozen=True)
class HeldOut:
    """Random problems, and windows of larger solutions, as a Schwarz iteration feeds them."""

    # validation, windows: the samples of both kinds
    validation: LiftedSamples
    windows: LiftedSamples
    points: torch.Tensor  # interior nodes ``(Q, 2)`` in ``[-1, 1]``
    # Indices of the nodes that are enough between the first and the last validation
    sampled: torch.Tensor

    @staticmethod
    def sampled_nodes(
        network: Network, points: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        """Choose nodes: a network that is not linear is evaluated at each pair of a perimeter and one."""
        if network.linear:
            return torch.arange(len(points), device=points.device)
        return torch.randperm(len(points), generator=generator)[:_SAMPLED_NODES].to(points.device)

    @property
    def samples_nodes(self) -> bool:
        """Whether the sampled nodes are not all."""
        return len(self.sampled) < len(self.points)

    def squared_errors(self, network: Network, ranks: RankGroup, everywhere: bool) -> list[float]:
        """Return the sums of squared errors on a rank's share of both kinds of samples.

        Divided by their number they are the validation MSE of the paper: boundary data of unit
        amplitude, errors not divided by the scale of the remainder.
        """
        nodes = self._nodes(everywhere)
        return [
            _squared_errors(network, samples, ranks.share(len(samples)), self.points, nodes)
            for samples in (self.validation, self.windows)
        ]

    def means(self, sums: list[float], everywhere: bool) -> list[float]:
        """Divide the sums over all ranks by the number of values in them."""
        count = len(self._nodes(everywhere))
        kinds = (self.validation, self.windows)
        return [total / (len(samples) * count) for total, samples in zip(sums, kinds, strict=True)]

    def _nodes(self, everywhere: bool) -> torch.Tensor:
        if everywhere:
            return torch.arange(len(self.points), device=self.points.device)
        return self.sampled


@torch.no_grad()
def _squared_errors(
    network: Network,
    samples: LiftedSamples,
    part: slice,
    points: torch.Tensor,
    nodes: torch.Tensor,
) -> float:
    """Return the sum of squared errors of some samples' solutions at some interior nodes."""
    total = 0.0
    # Activations that stay in a processor's cache; a linear network has none.
    width = getattr(network.settings, "width", 64)
    chunk = _CHUNK if network.linear else max(1, 2**20 // (len(nodes) * width))
    for operator, run in samples.operators:
        first, last = max(run.start, part.start), min(run.stop, part.stop)
        if first >= last:
            continue
        bound: Network | MatrixNetwork = network
        if is_family(network):
            bound = network.at(operator, samples.subdomain)
        prepared = bound.prepare(points[nodes])
        for start in range(first, last, chunk):
            rows = slice(start, min(start + chunk, last))
            values = bound.apply_prepared(samples.remainder[rows], prepared)
            error = (values - samples.target[rows][:, nodes]) * samples.scale[rows]
            total += error.double().square().sum().item()
    return total
