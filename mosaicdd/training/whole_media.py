"""Lesson of a network of conductances on whole media, each of which ranks may share: through the solve over all of it.

The loss is that of `conductances`, with the media themselves in the place of small squares. Ranks that share a medium read
their parts of its coefficient, margins included, and nothing is sent of it; what the network makes of these margins two ranks
make each for itself. What they send each other is that of the solves, and two sums for the loss.

Every rank of a group has the whole loss, and its gradient's part by its own edges, as many times as there are ranks in
the group, as the mean over all ranks asks.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from mosaicdd.lattice.axes import times, within
from mosaicdd.local_solvers.networks.conductances import ConductanceNetwork
from mosaicdd.local_solvers.upscaling import MARGIN, RATIO
from mosaicdd.storage.samples import MediaDataset
from mosaicdd.training.coarse_solve import BESIDE, OwnNodes, SharedSolve, SummedUp
from mosaicdd.training.conductances import (
    ConductanceLesson,
    coarse_conductances,
    patch_squares,
)
from mosaicdd.training.memory import PROBES
from mosaicdd.training.rank_group import RankGroup
from mosaicdd.training.row_lesson import OwnRows, RowPass
from mosaicdd.training.settings import TrainingSettings

_PIECE = 64  # cells of the medium by which memory is measured
_LEAST = 1e-30  # of mean squares that are divided by


class WholeMediaLesson(ConductanceLesson):
    """Of `ConductanceNetwork`, by media that are domains."""

    @classmethod
    def part(cls, dataset: MediaDataset, ranks: RankGroup) -> OwnRows:
        """Read this rank's part of the media of its group.

        `ValueError` if the ranks do not divide them, or into parts that are too small.
        """
        cells = dataset.cells // RATIO
        for axis, count in enumerate(ranks.mesh.dims):
            if cells % count or (count > 1 and cells // count < BESIDE):
                raise ValueError(
                    f"dims {times(ranks.mesh.dims)}: {count} ranks along {'yx'[axis]} do not divide media of "
                    f"{dataset.cells} cells into parts of a multiple of {RATIO}, {RATIO * BESIDE} at least; use "
                    "other dims or media"
                )
        return OwnRows.of(dataset, ranks.replicas, *OwnNodes(ranks.mesh, cells).wide)

    def take(self, rows: OwnRows) -> int:
        """Take up parts of media, solutions and sources."""
        self._nodes = OwnNodes(self.mesh, rows.whole.cells // RATIO)
        return super().take(rows)

    @classmethod
    def sketch(
        cls, network: Any, dataset: MediaDataset, settings: TrainingSettings, ranks: int
    ) -> tuple[Callable[[Any], torch.Tensor], list[Any], int]:
        """Return a pass over copies of a piece of a medium, and the bytes of a share of all media."""
        cells = min(dataset.cells, _PIECE)
        piece = dataset.rows(slice(1), *(2 * [slice(0, cells // RATIO + 1)]))
        lesson = cls(network, OwnRows(piece, piece, piece), settings)
        rows = torch.zeros(max(PROBES), dtype=torch.long)
        share = (dataset.cells / cells) ** 2 / ranks
        each = sum(math.prod(getattr(dataset, name).shape[1:]) for name in dataset.arrays)
        size = each * lesson.like.element_size() * len(dataset) / ranks
        return lesson.loss, [RowPass(rows, 1.0, rows, pieces=share)], round(size)

    def probe(self) -> list[RowPass]:
        """Return a pass over one medium: no pass has more, as each would be solved by itself."""
        (few,) = super().probe()
        return [replace(few, rows=few.rows[:1], places=few.places[:1])]

    def loss(self, part: RowPass) -> torch.Tensor:
        """Return the mean logarithm of the relative errors in some media."""
        if part.share:
            return super().loss(part)
        # As many passes as other ranks make, by the weights and without a solve.
        corner = self._learned[0][:1, : 2 * MARGIN * RATIO + 1, : 2 * MARGIN * RATIO + 1]
        values, _ = coarse_conductances(self.network, corner)
        return 0.0 * sum((part.sum() for part in values), torch.zeros(()).to(self.like)).double()

    def relative_errors(
        self, network: ConductanceNetwork | None, *media: torch.Tensor
    ) -> torch.Tensor:
        """Return the relative errors in some media, ``(B, q)``; NaN where one is not solved."""
        each = zip(*media, strict=True)
        return torch.stack([self._errors_in(network, *medium) for medium in each])

    def _errors_in(
        self,
        network: ConductanceNetwork | None,
        logarithm: torch.Tensor,
        *fields: torch.Tensor,
    ) -> torch.Tensor:
        """Return the relative errors in one medium, ``(q,)``."""
        values, _ = coarse_conductances(network, logarithm[None])
        truth, source = (values.double().cpu() for values in fields)
        k = [part.double().cpu().exp() for part in values]
        u = SharedSolve.apply(self._nodes, truth, source, *k)
        own, count = within(self._nodes.own, self._nodes.wide), self._nodes.unknowns
        truth, u = (values[:, *own] for values in (truth, u))
        (mean,) = SummedUp.apply(self.mesh, truth.sum(dim=(1, 2))[None]) / count
        size = truth - mean[:, None, None]
        squares = torch.stack([part.square().sum(dim=(1, 2)) for part in (u - truth, size)])
        wrong, size = SummedUp.apply(self.mesh, squares) / count
        return (wrong / size.clamp(min=_LEAST)).sqrt()

    def mean_squares(self) -> torch.Tensor:
        """Return the squared roughness of each of the group's held-out media."""
        nodes = self._nodes
        rows, columns = (
            slice(RATIO * part.start, RATIO * part.stop + 4 * MARGIN + 1)
            for part in within(nodes.low, nodes.wide)
        )
        sums = patch_squares(self._held_out[0][:, rows, columns]).sum(dim=(1, 2)).double().cpu()
        return SummedUp.apply(self.mesh, sums) / nodes.cells**2
