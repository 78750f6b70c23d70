r"""The network that makes conductances on a grid four times coarser from those of the fine grid.

Between two coarse nodes lies the averaged conductance (`local_solvers.upscaling.averaged`) times what a
perceptron says of the 9 x 9 nodes around the grid edge; and across each coarse cell two more, which it says
of the 9 x 9 nodes around the cell:

    ``k = (1 - 2 w) averaged exp f(x)``,   ``d = w averaged exp g(x)``,   ``w = 5 / 32``

``x`` are the logarithms of the fine conductances less their mean. All are positive and of one value for
both ends, so the coarse operator is symmetric and an M-matrix whatever the weights. ``f`` and ``g`` vanish
where the medium is uniform: then the coarse stencil is the one whose error is of fourth order.

Filters are applied in their images under the square's symmetries that leave the edge, or the cell's
diagonal, where it is, and the mean of what they see goes on: the network has these symmetries exactly.

Shape letters: ``B`` patches of a medium, ``R`` and ``C`` coarse nodes of its rows and columns, ``D``
filters.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from mosaicdd.local_solvers.networks.network import require_counts
from mosaicdd.local_solvers.upscaling import MARGIN, RATIO, averaged
from mosaicdd.problems.operators.conductances import Conductances

ROUGHNESS = "the roughness of a patch"
"""Of what cards hold the range, see `roughness`."""

ACROSS = 5 / 32  # exact to fourth order, for five-point stencils of both spacings
_LONG, _SHORT = 2 * MARGIN + 1, 2 * MARGIN  # nodes of a patch, and grid edges between them
_INPUTS = 2 * _LONG * _SHORT
_AT_ONCE = 4096  # patches, for the cache


@dataclass(frozen=True)
class ConductanceSettings:
    """Settings of `ConductanceNetwork`."""

    filters: int = 32  # ``D``, of a patch, in each of their images
    width: int = 64  # of the two hidden layers behind them

    def __post_init__(self) -> None:
        require_counts("the network", self)


class ConductanceNetwork(torch.nn.Module):
    """Factors for the conductances along coarse grid edges and across coarse cells."""

    name = "conductances"
    Settings = ConductanceSettings

    @classmethod
    def of(cls, settings: ConductanceSettings, pde: str, cells: int) -> Self:
        """Return the network, which is for any media."""
        return cls(settings)

    def __init__(self, settings: ConductanceSettings):
        super().__init__()
        self.settings = settings
        self.edges = _Patches(settings)
        self.cells = _Patches(settings)

    def forward(
        self, right: torch.Tensor, up: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return logarithms of factors: ``(B, R, C - 1)``, ``(B, R - 1, C)``, across ``(B, 2, R - 1, C - 1)``.

        The logarithms of fine conductances reach a `MARGIN` around the coarse nodes, ``right (B, 4
        R + 5, 4 C + 4)`` and ``up (B, 4 R + 4, 4 C + 5)``.
        """
        (flat,) = self.edges(_around_edges(right, up), _MIRRORED)
        (steep,) = self.edges(_around_edges(up.mT, right.mT), _MIRRORED)
        across = self.cells(_around_cells(right, up), _DIAGONALS)
        return flat, steep.mT, torch.stack(across, dim=1)


_FLIPS: tuple[tuple[int, ...], ...] = ((), (1,), (2,), (1, 2))
# Which images belong together, those of the turned patch being numbers 4 to 7: all that leave an edge,
# and those that leave the rising and the falling diagonal.
_MIRRORED = ((0, 1, 2, 3),)
_DIAGONALS = ((0, 3, 4, 7), (1, 2, 5, 6))


class _Patches(torch.nn.Module):
    """A perceptron of patches, whose first layer has each filter in several images."""

    def __init__(self, settings: ConductanceSettings):
        super().__init__()
        count, width = settings.filters, settings.width
        self.filters = torch.nn.Parameter(torch.randn(count, _INPUTS) / math.sqrt(_INPUTS))
        self.bias = torch.nn.Parameter(torch.zeros(count))
        last = torch.nn.Linear(width, 1)
        torch.nn.init.zeros_(last.weight)
        self.rest = torch.nn.Sequential(
            torch.nn.Linear(count, width),
            torch.nn.SiLU(),
            torch.nn.Linear(width, width),
            torch.nn.SiLU(),
            last,
        )

    def forward(self, patches: "_Views", groups: tuple[tuple[int, ...], ...]) -> list[torch.Tensor]:
        """Return an answer ``(B, R, C)`` for each group of images, zero for uniform patches.

        It goes by some rows of patches after others, and one image after another, so that what is seen of
        them stays in the cache.
        """
        silu = torch.nn.functional.silu
        images = self._images(len(groups) * len(groups[0]))
        uniform = self.rest(silu(self.bias))
        rows = max(1, _AT_ONCE // math.prod((patches[0].shape[0], patches[0].shape[2])))
        answers: list[list[torch.Tensor]] = [[] for _ in groups]
        for portions in zip(*(part.split(rows, dim=1) for part in patches), strict=True):
            inputs = _side_by_side(portions)
            for group, answer in zip(groups, answers, strict=True):
                seen = (torch.nn.functional.linear(inputs, images[i], self.bias) for i in group)
                mean = sum(silu(hidden, inplace=True) for hidden in seen) / len(group)
                answer.append((self.rest(mean) - uniform).squeeze(-1))
        return [torch.cat(answer, dim=1) for answer in answers]

    def _images(self, count: int) -> torch.Tensor:
        """Return the filters in their images, of zero sum, ``(images, D, inputs)``."""
        right, up = self.filters.split(_INPUTS // 2, dim=1)
        right, up = right.unflatten(1, (_LONG, _SHORT)), up.unflatten(1, (_SHORT, _LONG))
        every = [
            torch.cat([weights.flip(axes).flatten(1) for weights in pair], dim=1)
            for pair in ((right, up), (up.mT, right.mT))
            for axes in _FLIPS
        ]
        filters = torch.stack(every[:count])
        return filters - filters.mean(dim=2, keepdim=True)


_Views = tuple[torch.Tensor, torch.Tensor]
"""Patches of conductances along x and along y, ``(B, R, C, y, x)``."""


def _side_by_side(patches: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return what patches hold, ``(B, R, C, inputs)``."""
    inputs = patches[0].new_empty(*patches[0].shape[:3], _INPUTS)
    for part, place in zip(patches, inputs.split(_INPUTS // 2, dim=3), strict=True):
        place.unflatten(3, part.shape[3:]).copy_(part)
    return inputs


def _around_edges(right: torch.Tensor, up: torch.Tensor) -> _Views:
    """Return what lies around the coarse edges constant in y, ``(B, R, C - 1, ..)``."""
    half = slice(RATIO // 2, -(RATIO // 2))
    return _patches(right[:, :, half], up[:, :, half])


def _around_cells(right: torch.Tensor, up: torch.Tensor) -> _Views:
    """Return what lies around the coarse cells, ``(B, R - 1, C - 1, ..)``."""
    half = slice(RATIO // 2, -(RATIO // 2))
    return _patches(right[:, half, half], up[:, half, half])


def _patches(right: torch.Tensor, up: torch.Tensor) -> _Views:
    return (
        right.unfold(1, _LONG, RATIO).unfold(2, _SHORT, RATIO),
        up.unfold(1, _SHORT, RATIO).unfold(2, _LONG, RATIO),
    )


class LearnedRule:
    """Makes coarse conductances by a network where it was trained, by averages elsewhere.

    The network is asked up to a `roughness` of a patch, the ``roughest``; of the patches that were
    ``asked`` for so far, ``outside`` are rougher.
    """

    def __init__(self, network: ConductanceNetwork, roughest: float):
        self._network = network.eval()
        self._roughest = roughest
        self.asked = self.outside = 0

    @torch.inference_mode()
    def __call__(self, fine: Conductances) -> Conductances:
        """Return the conductances between the coarse nodes."""
        plain = averaged(fine)
        up, right = (torch.from_numpy(k).float().log()[None] for k in fine.along)
        flat, steep, across = (answer[0].double().numpy() for answer in self._network(right, up))
        average_up, average_right = plain.along
        edges = (average_right, flat), (average_up, steep)
        known = roughness(right, up)[0].numpy() <= self._roughest  # (R - 1, C - 1)
        self.asked += known.size
        self.outside += int((~known).sum())
        along = [
            average * np.exp(np.where(weight > 0, factor, 0.0)) * (1.0 - weight)
            for (average, factor), weight in zip(edges, _weights(known), strict=True)
        ]
        beside = average_right[:-1] * average_right[1:]
        around = np.log(beside * average_up[:, :-1] * average_up[:, 1:]) / 4
        across = np.where(known, ACROSS * np.exp(across + around), 0.0)
        return Conductances((along[1], along[0]), plain.reaction, across=tuple(across))


def roughness(right: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of the steps between neighbours, of the patch around each cell.

    From logarithms of conductances, as `ConductanceNetwork.forward`, to ``(B, R - 1, C - 1)``: 0.7
    where all neighbours differ by a factor of 2, 2.3 by one of 10.
    """
    half = slice(RATIO // 2, -(RATIO // 2))
    squares = torch.zeros(())
    for logs, size in ((right, (_LONG, _SHORT)), (up, (_SHORT, _LONG))):
        for axis in (0, 1):
            steps = logs[:, half, half].diff(dim=1 + axis).square()
            width = [n - (axis == i) for i, n in enumerate(size)]
            squares = squares + torch.nn.functional.avg_pool2d(steps, width, RATIO)
    return (squares / 4).sqrt()


def _weights(known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of the conductances ``right`` and ``up`` that goes across the cells beside.

    Beyond the outermost cells there are their mirror images.
    """
    rows = np.pad(known.astype(float), ((1, 1), (0, 0)), mode="edge")
    columns = np.pad(known.astype(float), ((0, 0), (1, 1)), mode="edge")
    return ACROSS * (rows[:-1] + rows[1:]), ACROSS * (columns[:, :-1] + columns[:, 1:])
