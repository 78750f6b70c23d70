"""What lessons on random media have in common: errors by kinds of media, and how rough a medium may be."""

import math
from typing import Any

import numpy as np
import torch

from mosaicdd.storage.samples import MediaDataset
from mosaicdd.training.reports import Report
from mosaicdd.training.row_lesson import RowLesson

_ACCURATE = 0.05  # error up to which held-out media of a roughness are within the model's range
_ALIKE = 20  # of the held-out media that are compared: a share of them, of about the same roughness


class MediaLesson(RowLesson):
    """Of a network that is taught random media; errors are geometric means of relative ones in held-out media."""

    dataset_type = MediaDataset
    needs_labels = True
    kinds: np.ndarray  # of all held-out media
    _plain: torch.Tensor  # mean logarithms of the errors of plain averages, as `held_out_errors`

    def error_sums(self, *, everywhere: bool) -> list[float]:
        """Return the sums of the logarithms of this rank's errors, with the network and without, and their number."""
        wrong = self.held_out_errors(self.network)
        return [float(wrong.sum()), float(self._plain.sum()), float(len(wrong))]

    def errors(self, sums: list[float], *, everywhere: bool) -> list[float]:
        """Return the geometric means of the errors of the network, and of plain averages."""
        *totals, count = sums
        return (torch.tensor(totals, dtype=torch.float64) / count).exp().tolist()

    def held_out_errors(self, network: Any) -> torch.Tensor:
        """Return the mean logarithm of the error in each of this rank's held-out media, without a network of averages."""
        raise NotImplementedError

    def validation(self, best: Report, errors: torch.Tensor) -> dict[str, float]:
        """Return the errors by kinds of media, from the logarithms in all that are held out."""
        plain = self.ranks.joined(self._plain)
        figures = {"error": best.figures["error"], "averaged": best.figures["plain"]}
        for kind in sorted(set(self.kinds)):
            alike = torch.from_numpy(self.kinds == kind)
            figures[f"{kind}"] = float(errors[alike].mean().exp())
            figures[f"{kind}, averaged"] = float(plain[alike].mean().exp())
        return figures


def roughest(rough: torch.Tensor, errors: torch.Tensor) -> float:
    """Return how rough a medium may be: up to there, held-out media of all roughnesses are accurate.

    The errors are mean logarithms.
    """
    rough, order = rough.sort()
    bound = float(rough[0])
    for part, wrong in zip(rough.chunk(_ALIKE), errors[order].chunk(_ALIKE), strict=True):
        if wrong.mean() > math.log(_ACCURATE):
            break
        bound = float(part[-1])
    return float(f"{bound:.2g}")
