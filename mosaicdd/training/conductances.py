"""Lesson of a network of conductances: through the coarse solutions that they lead to.

In every medium of a batch the coarse equation of the network's conductances is solved, for all its problems,
and compared with the fine solutions at the coarse nodes. The loss is the mean logarithm of the relative
errors, so a tenth less is worth the same in every medium, whatever its contrast.

Shape letters: ``B`` media, ``q`` problems, ``N`` coarse nodes.
"""

from dataclasses import asdict

import numpy as np
import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.networks.conductances import (
    CONDUCTANCES,
    ROUGHNESS,
    ConductanceNetwork,
    ConductanceSettings,
    roughness,
)
from mosaicdd.local_solvers.upscaling import MARGIN, RATIO
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.storage.samples import MediaDataset
from mosaicdd.training.coarse_equation import (
    CoarseSolve,
    coarse_conductances,
    inner_nodes,
    series_mean,
)
from mosaicdd.training.media_lesson import MediaLesson, roughest
from mosaicdd.training.reports import Report
from mosaicdd.training.row_lesson import OwnRows, RowPass

_FLOOR = 1e-5  # relative error that is as good as none
_BATCH = 100  # media of a validation's pass: some 100 MB


class ConductanceLesson(MediaLesson):
    """Of `ConductanceNetwork`: conductances of a coarser grid."""

    name, settings_type = CONDUCTANCES, ConductanceSettings

    @classmethod
    def made(cls, how: ConductanceSettings, dataset: MediaDataset) -> ConductanceNetwork:
        """Return the network, which is for any media."""
        return ConductanceNetwork(how)

    def take(self, rows: OwnRows) -> int:
        """Take up media, solutions and sources."""
        self._whole = rows.whole
        self._learned, self._held_out = (
            [
                torch.from_numpy(array).to(self.like)
                for array in (part.logarithm, part.solution, part.source)
            ]
            for part in (rows.learned, rows.held_out)
        )
        self.kinds = np.array(rows.whole.kind[len(rows.whole) - rows.whole.held_out :])
        self._plain = self.held_out_errors(None)
        return len(rows.learned)

    def tensors(self) -> list[torch.Tensor]:
        """Return media, solutions and sources."""
        return self._learned

    def loss(self, part: RowPass) -> torch.Tensor:
        """Return the mean logarithm of the relative errors in some media."""
        media = [array[part.rows] for array in self._learned]
        return (_relative_errors(self.network, *media) + _FLOOR).log().mean()

    @torch.no_grad()
    def held_out_errors(self, network: ConductanceNetwork | None) -> torch.Tensor:
        """Return the mean logarithms of the errors in each of this rank's held-out media."""
        parts = zip(*(array.split(_BATCH) for array in self._held_out), strict=True)
        errors = [_relative_errors(network, *media) for media in parts if len(media[0])]
        return torch.cat([self.like.double(), *((e + _FLOOR).log().mean(dim=1) for e in errors)])

    def card(self, name: str, best: Report) -> ModelCard:
        """Write down what the network is, was trained on, and reaches."""
        errors = self.ranks.joined(self.held_out_errors(self.network))
        inner = self._held_out[0][:, MARGIN:-MARGIN, MARGIN:-MARGIN]
        patches = roughness(series_mean(inner, 2), series_mean(inner, 1)).flatten(1)
        rough = self.ranks.joined(patches.square().mean(dim=1).sqrt())
        side = RATIO * (self._whole.solution.shape[2] - 1)
        return ModelCard(
            pde=self._whole.pde,
            cells=side,
            size=Subdomain().spacing * side,
            network=name,
            settings=asdict(self.network.settings),
            lifting_degree=0,
            boundary_range=[-1.0, 1.0],
            ranges={ROUGHNESS: [0.0, roughest(rough, errors)]},
            validation=self.validation(best, errors),
        )


def _relative_errors(
    network: ConductanceNetwork | None,
    logarithm: torch.Tensor,
    solution: torch.Tensor,
    source: torch.Tensor,
) -> torch.Tensor:
    """Return the relative errors in some media, ``(B, q)``; NaN where the conductances make no equation."""
    values, ends = coarse_conductances(network, logarithm)
    values = values.double()
    # Scaled, so that the matrix is of order 1.
    scale = values.detach().mean(dim=1, keepdim=True)
    b = source.double().flatten(2) / scale.exp()[..., None]
    truth = solution.double().flatten(2)
    u = CoarseSolve.apply((values - scale).exp(), ends, truth, b)
    inner, _ = inner_nodes(truth.shape[2])
    truth, wrong = truth[:, :, inner], (u - truth)[:, :, inner]
    size = truth - truth.mean(dim=2, keepdim=True)
    return (wrong.square().mean(dim=2) / size.square().mean(dim=2).clamp(min=1e-30)).sqrt()
