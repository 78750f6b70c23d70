"""Lesson of a network of conductances: through the coarse solutions that they lead to.

In every medium of a batch the coarse equation of the network's conductances is solved, for all its problems,
and compared with the fine solutions at the coarse nodes. The loss is the mean logarithm of the relative
errors, so a tenth less is worth the same in every medium, whatever its contrast. Its gradient comes of one adjoint solve
with the same factor:

    ``A u = b``,   ``A l = dL/du``,   ``dL/dk_e = - (l_i - l_j) (u_i - u_j)`` for the edge ``e`` between ``i, j``.

Shape letters: ``B`` media, ``q`` problems, ``N`` coarse nodes, ``e`` coarse edges.
"""

import math
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.networks.conductances import (
    ACROSS,
    ROUGHNESS,
    ConductanceNetwork,
    roughness,
)
from mosaicdd.local_solvers.networks.registry import build_row_network
from mosaicdd.local_solvers.upscaling import MARGIN, RATIO
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.storage.samples import MediaDataset
from mosaicdd.training.reports import Report
from mosaicdd.training.row_lesson import OwnRows, RowLesson, RowPass

_FLOOR = 1e-5  # relative error that is as good as none
_BATCH = 100  # media of a validation's pass: some 100 MB
_ACCURATE = 0.05  # error up to which held-out media of a roughness are within the model's range
_ALIKE = 20  # of the held-out media that are compared: a share of them, of about the same roughness


class ConductanceLesson(RowLesson):
    """Of `ConductanceNetwork`: conductances of a coarser grid; errors are geometric means of relative ones in held-out media."""

    kind = ConductanceNetwork
    dataset_type = MediaDataset
    needs_labels = True
    kinds: np.ndarray  # of all held-out media
    _plain: torch.Tensor  # mean logarithms of the errors of plain averages, as `held_out_errors`

    @classmethod
    def build(cls, name: str, values: dict, dataset: MediaDataset) -> ConductanceNetwork:
        """Return the network, which is for media of any size."""
        return build_row_network(name, values, dataset.pde, dataset.cells)

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
        return (self.relative_errors(self.network, *media) + _FLOOR).log().mean()

    @torch.no_grad()
    def held_out_errors(self, network: ConductanceNetwork | None) -> torch.Tensor:
        """Return the mean logarithm of the error in each of this rank's held-out media; without a network of averages."""
        parts = zip(*(array.split(_BATCH) for array in self._held_out), strict=True)
        errors = [self.relative_errors(network, *media) for media in parts if len(media[0])]
        return torch.cat([self.like.double(), *((e + _FLOOR).log().mean(dim=1) for e in errors)])

    def relative_errors(
        self, network: ConductanceNetwork | None, *media: torch.Tensor
    ) -> torch.Tensor:
        """Return the relative errors in some media, ``(B, q)``; NaN where the conductances make no equation."""
        logarithm, solution, source = media
        parts, ends = coarse_conductances(network, logarithm)
        values = torch.cat([part.flatten(1) for part in parts], dim=1).double()
        # Scaled, so that the matrix is of order 1.
        scale = values.detach().mean(dim=1, keepdim=True)
        b = source.double().flatten(2) / scale.exp()[..., None]
        truth = solution.double().flatten(2)
        u = CoarseSolve.apply((values - scale).exp(), ends, truth, b)
        inner, _ = inner_nodes(truth.shape[2])
        truth, wrong = truth[:, :, inner], (u - truth)[:, :, inner]
        size = truth - truth.mean(dim=2, keepdim=True)
        return (wrong.square().mean(dim=2) / size.square().mean(dim=2).clamp(min=1e-30)).sqrt()

    def error_sums(self, *, everywhere: bool) -> list[float]:
        """Return the sums of the logarithms of this rank's errors, with the network and without, and their number."""
        wrong = self.held_out_errors(self.network)
        return [float(wrong.sum()), float(self._plain.sum()), float(len(wrong))]

    def errors(self, sums: list[float], *, everywhere: bool) -> list[float]:
        """Return the geometric means of the errors of the network, and of plain averages."""
        *totals, count = sums
        return (torch.tensor(totals, dtype=torch.float64) / count).exp().tolist()

    def validation(self, best: Report, errors: torch.Tensor) -> dict[str, float]:
        """Return the errors by kinds of media, from the logarithms in all that are held out."""
        plain = self.ranks.joined(self._plain)
        figures = {"error": best.figures["error"], "averaged": best.figures["plain"]}
        for kind in sorted(set(self.kinds)):
            alike = torch.from_numpy(self.kinds == kind)
            figures[f"{kind}"] = float(errors[alike].mean().exp())
            figures[f"{kind}, averaged"] = float(plain[alike].mean().exp())
        return figures

    def mean_squares(self) -> torch.Tensor:
        """Return the squared roughness of each of this rank's held-out media."""
        return patch_squares(self._held_out[0]).mean(dim=(1, 2))

    def card(self, name: str, best: Report) -> ModelCard:
        """Write down what the network is, was trained on, and reaches."""
        errors = self.ranks.joined(self.held_out_errors(self.network))
        rough = self.ranks.joined(self.mean_squares().sqrt())
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


class CoarseSolve(torch.autograd.Function):
    """Solutions of networks of conductances on a square, inner nodes given the outer ones.

    ``CoarseSolve.apply(k, ends, u, b)``: conductances ``(B, e)``, the edges' nodes ``(2, e)``,
    values ``(B, q, N)``, of which those on the edge of the square count, and right-hand sides ``(B,
    q, N)``.
    """

    @staticmethod
    def forward(
        ctx: Any, k: torch.Tensor, ends: torch.Tensor, u: torch.Tensor, b: torch.Tensor
    ) -> torch.Tensor:
        """Return ``u`` at all nodes."""
        count = u.shape[2]
        inner, outer = inner_nodes(count)
        (i, j), a = ends, k.new_zeros(len(k), count * count)
        for places, sign in ((i * count + j, -1), (j * count + i, -1), (i * count + i, 1)):
            a.index_add_(1, places, k, alpha=sign)
        a = a.index_add_(1, j * count + j, k).view(-1, count, count)
        factor, failed = torch.linalg.cholesky_ex(a[:, inner[:, None], inner])
        # A loss that is not finite ends a training on all ranks; an error here would, on this one alone.
        factor[failed != 0] = math.nan
        right = b[:, :, inner].mT - a[:, inner[:, None], outer] @ u[:, :, outer].mT
        u = u.clone()
        u[:, :, inner] = torch.cholesky_solve(right, factor).mT
        ctx.save_for_backward(factor, ends, u)
        return u

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient of the conductances."""
        factor, (i, j), u = ctx.saved_tensors
        inner, _ = inner_nodes(u.shape[2])
        adjoint = torch.zeros_like(u)
        adjoint[:, :, inner] = torch.cholesky_solve(gradient[:, :, inner].mT, factor).mT
        along = (adjoint[:, :, i] - adjoint[:, :, j]) * (u[:, :, i] - u[:, :, j])
        return -along.sum(dim=1), None, None, None


def inner_nodes(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the nodes inside a square of so many nodes, and those on its edge."""
    side = math.isqrt(count)
    inside = torch.zeros(side, side, dtype=torch.bool)
    inside[1:-1, 1:-1] = True
    flat = inside.flatten()
    return flat.nonzero()[:, 0], (~flat).nonzero()[:, 0]


def coarse_conductances(
    network: ConductanceNetwork | None, logarithm: torch.Tensor
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Return the logarithms of coarse conductances, and the nodes of the edges ``(2, e)``.

    They are along x and along y, ``(B, R, C - 1)`` and ``(B, R - 1, C)``, and with a network along rising and along falling
    diagonals, ``(B, R - 1, C - 1)``. The same as `LearnedRule`, of averages alone without a network, and so that gradients pass; from
    the coefficient's logarithms at fine nodes, two margins around the coarse ones, ``(B, ., .)``.
    """
    cut = logarithm[:, MARGIN:-MARGIN, MARGIN:-MARGIN]
    right, up = series_mean(cut, 2), series_mean(cut, 1)
    inner = slice(MARGIN, -MARGIN)
    flat = _averaged(right[:, 1:-1, inner])
    steep = _averaged(up[:, inner, 1:-1].mT).mT
    nodes = torch.arange(flat.shape[1] * steep.shape[2], device=flat.device)
    nodes = nodes.view(flat.shape[1], steep.shape[2])
    ends = [(nodes[:, :-1], nodes[:, 1:]), (nodes[:-1], nodes[1:])]
    values = [flat, steep]
    if network is not None:
        along, beside, across = network(right, up)
        around = (flat[:, :-1] + flat[:, 1:] + steep[:, :, :-1] + steep[:, :, 1:]) / 4
        rising, falling = (math.log(ACROSS) + around[:, None] + across).unbind(1)
        rest = math.log(1.0 - 2 * ACROSS)
        values = [flat + along + rest, steep + beside + rest, rising, falling]
        ends += [(nodes[:-1, :-1], nodes[1:, 1:]), (nodes[1:, :-1], nodes[:-1, 1:])]
    pairs = torch.cat([torch.stack(pair).flatten(1) for pair in ends], dim=1)
    return values, pairs


def patch_squares(logarithm: torch.Tensor) -> torch.Tensor:
    """Return the squared `roughness` of the patches around coarse cells, of media as of `coarse_conductances`."""
    inner = logarithm[:, MARGIN:-MARGIN, MARGIN:-MARGIN]
    return roughness(series_mean(inner, 2), series_mean(inner, 1)).square()


def series_mean(values: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the logarithm of the harmonic mean of neighbours."""
    count = values.shape[axis]
    low, high = values.narrow(axis, 0, count - 1), values.narrow(axis, 1, count - 1)
    return math.log(2.0) - torch.logaddexp(-low, -high)


def _averaged(right: torch.Tensor) -> torch.Tensor:
    """As `upscaling.averaged`, of logarithms."""
    for _ in range(round(math.log2(RATIO))):
        series = math.log(2.0) - torch.logaddexp(-right[:, :, 0::2], -right[:, :, 1::2])
        parts = (series[:, :-2:2], series[:, 1:-1:2] + math.log(2.0), series[:, 2::2])
        right = torch.logsumexp(torch.stack(parts), dim=0) - math.log(4.0)
    return right
