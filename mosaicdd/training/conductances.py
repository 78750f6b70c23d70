"""Training of a network of conductances through the coarse solutions that they lead to.

In every medium of a batch the coarse equation of the network's conductances is solved, for all its problems,
and compared with the fine solutions at the coarse nodes. The loss is the mean logarithm of the relative
errors, so a tenth less is worth the same in every medium, whatever its contrast.

Shape letters: ``B`` media, ``q`` problems, ``N`` coarse nodes.
"""

import math
import os
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
from mosaicdd.storage.media_file import MediaDataset, read_media
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.training.coarse_equation import (
    CoarseSolve,
    coarse_conductances,
    inner_nodes,
    series_mean,
)
from mosaicdd.training.serial import Lesson, SerialReport

_FLOOR = 1e-5  # relative error that is as good as none
_ACCURATE = 0.05  # error up to which held-out media of a roughness are within the model's range
_ALIKE = 20  # of the held-out media that are compared: a share of them, of about the same roughness
_BATCH = 100  # media of a validation's pass


class ConductanceLesson(Lesson):
    """Conductances of a coarser grid; errors are geometric means of relative ones in held-out media."""

    name, settings_type, plain = CONDUCTANCES, ConductanceSettings, "averaged"
    network: ConductanceNetwork

    def __init__(self, data: MediaDataset, how: ConductanceSettings):
        self._media, self._how = data, how
        self.network = ConductanceNetwork(how)
        self._arrays = [
            torch.from_numpy(one) for one in (data.logarithm, data.solution, data.source)
        ]
        self.learned = len(data.kind) - data.held_out
        self._averages = self._held_out(None)

    @classmethod
    def read(cls, data: str | os.PathLike | MediaDataset) -> MediaDataset:
        """Return a dataset of media."""
        return data if isinstance(data, MediaDataset) else read_media(data)

    def loss(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return the mean logarithm of the relative errors in some media."""
        return (self._errors(self.network, chosen) + _FLOOR).log().mean()

    def errors(self) -> tuple[float, float]:
        """Return the geometric means of the errors of the network, and of plain averages."""
        mine, averages = self._held_out(self.network), self._averages
        return float(mine.mean().exp()), float(averages.mean().exp())

    def _errors(self, network: ConductanceNetwork | None, which: torch.Tensor) -> torch.Tensor:
        """Return the relative errors in some media, ``(B, q)``."""
        logarithm, solution, source = (one[which] for one in self._arrays)
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

    @torch.no_grad()
    def _held_out(self, network: ConductanceNetwork | None) -> torch.Tensor:
        """Return the mean logarithms of the errors in each held-out medium."""
        every = torch.arange(self.learned, len(self._media.kind)).split(_BATCH)
        errors = torch.cat([self._errors(network, part) for part in every])
        return (errors + _FLOOR).log().mean(dim=1)

    def card(self, best: SerialReport, training: dict) -> ModelCard:
        """Write down what the network is, was trained on, and reaches."""
        media = self._media
        with torch.no_grad():
            errors = self._held_out(self.network)
        kinds = np.array(media.kind[self.learned :])
        validation = {"error": best.error, "averaged": best.plain}
        for name in sorted(set(kinds)):
            of_kind = torch.from_numpy(kinds == name)
            validation[f"{name}"] = float(errors[of_kind].mean().exp())
            validation[f"{name}, averaged"] = float(self._averages[of_kind].mean().exp())
        side = RATIO * (media.solution.shape[2] - 1)
        return ModelCard(
            pde=media.pde,
            cells=side,
            size=Subdomain().spacing * side,
            network=CONDUCTANCES,
            settings=asdict(self._how),
            lifting_degree=0,
            boundary_range=[-1.0, 1.0],
            ranges={ROUGHNESS: [0.0, self._roughest(errors)]},
            validation=validation,
            training=training,
            dataset_hash=media.content_hash,
        )

    def _roughest(self, errors: torch.Tensor) -> float:
        """Return how rough a medium may be: up to there, held-out media of all roughnesses are accurate.

        Parameters
        ----------
        errors
            The mean logarithm of each held-out medium's.
        """
        cut = self._arrays[0][self.learned :, MARGIN:-MARGIN, MARGIN:-MARGIN]
        patches = roughness(series_mean(cut, 2), series_mean(cut, 1)).flatten(1)
        rough, order = patches.square().mean(dim=1).sqrt().sort()
        parts = zip(rough.chunk(_ALIKE), errors[order].chunk(_ALIKE), strict=True)
        bound = float(rough[0])
        for part, wrong in parts:
            if wrong.mean() > math.log(_ACCURATE):
                break
            bound = float(part[-1])
        return float(f"{bound:.2g}")
