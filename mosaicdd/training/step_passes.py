"""The forward passes of a step: which perimeters at which points (Algorithm 1 of the paper).

Shape letters: ``B`` subdomains of a pass, ``P`` perimeter nodes, ``Q`` points.
"""

import torch

from mosaicdd.training.batches import Batches
from mosaicdd.training.grid_residual import GridResidual
from mosaicdd.training.objective import Pass
from mosaicdd.training.rank_group import RankGroup
from mosaicdd.training.samples import LiftedSamples
from mosaicdd.training.settings import TrainingSettings


class StepPasses:
    """Draws data points and collocation points, the same on all ranks.

    A symmetric network that is not linear embeds a perimeter once per symmetry that occurs among
    the points, so all points of a pass come from one triangle, another in each step.

    Parameters
    ----------
    network
        Whose symmetry counts.
    points
        Nodes with known values, ``(Q, 2)``: the interior, or without labels the perimeter.
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
        self._samples = samples
        self._points = points
        self._settings = settings
        self._batches = batches
        self._grid_residual = grid_residual
        self._symmetry = None if network.linear else getattr(network, "symmetry", None)
        self._pools = self._node_pools()

    def draw(self, step: int, ranks: RankGroup, micro_batch: int) -> list[Pass]:
        """Draw the passes of a step on one rank: all of the data, then all of the PDE loss.

        Parameters
        ----------
        micro_batch
            Samples per pass, at most; 0 sets no limit.
        """
        chosen = self._batches.indices(step)[ranks.share(self._batches.size)]
        generator = self._batches.generator(step)
        count = self._count(ranks.size, micro_batch)
        parts = [part.to(self._points.device) for part in chosen.tensor_split(count)]
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
            points, corner = self._collocation(generator)
            passes += [
                Pass(g, share, points, corner=corner)
                for g, share in zip(perimeters, shares, strict=True)
            ]
        return passes

    def _count(self, ranks: int, micro_batch: int) -> int:
        """Return into how many parts a rank's samples are split: as many as on any other rank.

        Ranks with sharded weights gather them in every pass. Where the shares differ and passes of
        one sample are asked for, some have two: no part is empty.
        """
        least, most = self._batches.size // ranks, -(-self._batches.size // ranks)
        return min(least, -(-most // micro_batch)) if micro_batch else 1

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
    ) -> tuple[torch.Tensor | None, tuple[int, int] | None]:
        """Choose the collocation points of a step, or the window of a discrete residual."""
        if self._grid_residual is not None:
            return None, self._grid_residual.draw(generator)
        points = 2 * torch.rand(self._settings.collocation, 2, generator=generator) - 1
        points = points.to(self._points)
        if self._symmetry is not None:
            canonical = self._symmetry.fold(points, merge=False).canonical
            element = int(torch.randint(8, (), generator=generator))
            points = canonical @ self._symmetry.matrices[element].to(canonical)
        return points, None
