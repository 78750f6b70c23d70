r"""The network that makes the operators of subdomains from what these are made of: linear in ``g`` and ``f``.

A subdomain of 32 cells is known by its nodes on a grid four times coarser, 32 around and 49 inside:

    ``u = X (K g + f) + sum_k z_k (M_k g + N_k f)``,   ``k`` from 0, ``z_0 = 1``

The first part, the lifting, comes of averaged conductances (`local_solvers.upscaling`): ``X`` is the inverse
of their equation, ``K`` those that lead to the perimeter. ``M_0`` and ``N_0`` make it right in uniform media; the
other modes span what it lacks in the media of the training, with coordinates ``z`` by a network. That is
made of *channels*: whatever is known around a cell, each with filters of its own, whose answers are added
up, so there may be any number of them, and one that is absent adds nothing. A convolution mixes what they say
of neighbouring cells, and a perceptron takes it from all cells of a subdomain. Channels and convolution see
the medium once, whatever subdomains overlap there.

``M_k`` sees ``g`` less its mean, and ``N_k`` what a reaction ``c`` makes of that mean, ``f - c mean(g)``:
without a reaction constants are right whatever the weights. Of ``f`` the modes see six moments.

Shape letters: ``B`` subdomains, ``n`` windows of media, ``R`` and ``C`` rows and columns of coarse cells,
``P = 32`` coarse nodes around, ``I = 49`` inside, ``K`` modes, ``D`` features.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from mosaicdd.local_solvers.networks.conductances import rms_of_steps
from mosaicdd.local_solvers.networks.network import require_counts
from mosaicdd.local_solvers.subdomain_graphs import (
    AROUND,
    CELLS,
    INSIDE,
    SubdomainGraphs,
    windows,
)
from mosaicdd.local_solvers.upscaling import MARGIN, RATIO, averaged, restricted
from mosaicdd.problems.operators.conductances import Conductances

SEEN = 2
"""Coarse cells around a subdomain that its operator is made from."""


def channels_of(medium: Conductances) -> dict[str, torch.Tensor]:
    """Return what is known of a medium, as `OperatorNetwork.encode`, of one window."""
    parts = *medium.along, medium.reaction
    up, right, reaction = (torch.from_numpy(values)[None].float() for values in parts)
    fields = {"x": right.log(), "y": up.log()}
    if medium.reaction.any():
        fields["c"] = relative_reaction(right, up, reaction)
    return fields


def mean_logarithms(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean logarithms of coarse cells, of both axes, ``(n, 2, R - 4, C - 4)``."""
    inner, pool = _inner(), torch.nn.functional.avg_pool2d
    means = (
        pool(x[:, inner, inner], (RATIO + 1, RATIO), RATIO),
        pool(y[:, inner, inner], (RATIO, RATIO + 1), RATIO),
    )
    return torch.stack(means, dim=1)


def _inner() -> slice:
    return slice(RATIO * SEEN, -RATIO * SEEN)


def largest_reaction(c: torch.Tensor) -> torch.Tensor:
    """Return the largest relative reaction in each subdomain, as `roughness`."""
    inner, side = _inner(), RATIO * CELLS
    return torch.nn.functional.max_pool2d(c[:, inner, inner], side + 1, side // 2)


def roughness(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of the steps between neighbours, in each subdomain.

    From logarithms of conductances, as `OperatorNetwork.encode`, to ``(n, rows, columns)``.
    """
    inner, side = _inner(), RATIO * CELLS
    return rms_of_steps(x[:, inner, inner], y[:, inner, inner], side, side // 2)


def scales(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean of the logarithms in each subdomain, as `roughness`."""
    inner, side, half = _inner(), RATIO * CELLS, RATIO * CELLS // 2
    pool = torch.nn.functional.avg_pool2d
    along, across = (
        pool(x[:, inner, inner], (side + 1, side), half),
        pool(y[:, inner, inner], (side, side + 1), half),
    )
    return (along + across) / 2


def relative_reaction(
    right: torch.Tensor, up: torch.Tensor, reaction: torch.Tensor
) -> torch.Tensor:
    """Return a reaction on the coarse grid over the mean of the conductances around each node.

    From `Conductances` of windows of the fine grid, ``(n, rows, columns)`` each.
    """
    pad = torch.nn.functional.pad

    def total(right: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        beside = pad(right, (0, 1)) + pad(right, (1, 0))
        return beside + pad(up, (0, 0, 0, 1)) + pad(up, (0, 0, 1, 0))

    count = total(torch.ones_like(right[:1]), torch.ones_like(up[:1]))
    return RATIO**2 * reaction * count / total(right, up)


OPERATOR = "operator"
"""Its name in cards and commands."""

ROUGHNESS = "the roughness of a subdomain"
REACTION = "the reaction of a subdomain"
"""Of what cards hold the range: see `roughness` and `OperatorNetwork.encode`."""

MOMENTS = 6
"""Of a source: with 1, x, y, x y, x x and y y."""

_NEAR = 1  # coarse cells around one that filters see, and that features are mixed of
_SIDE = RATIO * (2 * _NEAR + 1)  # fine cells that filters see
CHANNELS = {"a": 2 * _SIDE * (_SIDE + 1), "c": (_SIDE + 1) ** 2}
"""What there may be, and how many numbers around a coarse cell it is."""


@dataclass(frozen=True)
class OperatorSettings:
    """Settings of `OperatorNetwork`."""

    modes: int = 128  # ``K``, of the operators
    filters: int = 32  # of each channel
    features: int = 16  # ``D``, of each coarse cell
    width: int = 256  # of the hidden layers of the perceptron

    def __post_init__(self) -> None:
        require_counts("an operator network", self)


class Channels(torch.nn.Module):
    """Adds up what the filters, as many of each, of any number of channels answer."""

    def __init__(self, filters: int):
        super().__init__()
        self.filters = torch.nn.ParameterDict(
            {
                name: torch.nn.Parameter(torch.randn(filters, count) / count**0.5)
                for name, count in CHANNELS.items()
            }
        )
        self.bias = torch.nn.Parameter(torch.zeros(filters))

    def forward(self, channels: Mapping[str, tuple[torch.Tensor, ...]]) -> torch.Tensor:
        """Return the sum over the channels that are given, ``(n, filters, R - 2, C - 2)``.

        Each has fields, ``(n, rows, columns)``: of one with two, filters see differences only.
        """
        answers = []
        for name, fields in channels.items():
            filters = self.filters[name]
            if len(fields) > 1:
                filters = filters - filters.mean(dim=1, keepdim=True)
            shapes = [tuple(_SIDE + (field.shape[k] % RATIO) for k in (1, 2)) for field in fields]
            parts = filters.split([math.prod(shape) for shape in shapes], dim=1)
            answers += [
                torch.nn.functional.conv2d(
                    field[:, None], part.unflatten(1, (1, *shape)), stride=RATIO
                )
                for field, part, shape in zip(fields, parts, shapes, strict=True)
            ]
        return sum(answers, self.bias[:, None, None])


class OperatorNetwork(torch.nn.Module):
    """Coordinates of the operators of subdomains, and the modes that these belong to.

    Attributes
    ----------
    uniform
        ``(I, P + moments)``: ``M_0``, ``N_0``.
    modes
        ``(K, I, P + moments)``.
    amplitudes
        ``(K,)``, root mean square of each coordinate.
    """

    Settings = OperatorSettings
    linear = True
    uniform: torch.Tensor
    amplitudes: torch.Tensor

    def __init__(self, settings: OperatorSettings):
        super().__init__()
        self.settings = settings
        count, features, modes = settings.filters, settings.features, settings.modes
        self.register_buffer("uniform", torch.zeros(INSIDE, AROUND + MOMENTS))
        self.modes = torch.nn.Parameter(torch.zeros(modes, INSIDE, AROUND + MOMENTS))
        self.register_buffer("amplitudes", torch.ones(modes))
        self.channels = Channels(count)
        self.mixing = torch.nn.Conv2d(count, count, 2 * _NEAR + 1)
        self.features = torch.nn.Conv2d(count, features, 1)
        inputs = CELLS**2 * (features + 2)
        self.direct = torch.nn.Linear(inputs, modes, bias=False)
        self.perceptron = torch.nn.Sequential(
            torch.nn.Linear(inputs, settings.width),
            torch.nn.SiLU(),
            torch.nn.Linear(settings.width, settings.width),
            torch.nn.SiLU(),
            torch.nn.Linear(settings.width, modes),
        )

    def encode(self, fields: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the coordinates ``z (n, rows, columns, K)`` of the operators of all subdomains.

        Parameters
        ----------
        fields
            Of windows of media, `SEEN` coarse cells around the outermost subdomains: logarithms of the
            conductances, ``x (n, 4 R + 1, 4 C)`` and ``y (n, 4 R, 4 C + 1)``; and, where there is one, the
            reaction, ``c (n, 4 R + 1, 4 C + 1)``, on the coarse grid and over the conductances around.
        """
        x, y = fields["x"], fields["y"]
        channels: dict[str, tuple[torch.Tensor, ...]] = {"a": (x, y)}
        if "c" in fields:
            channels["c"] = (fields["c"].log1p(),)
        seen = self._windows(self._features(self.channels(channels)))
        levels = self._windows(mean_logarithms(x, y))
        levels = levels - levels.unflatten(3, (2, -1)).mean(dim=(3, 4))[..., None]
        nothing = self.channels.bias[None, :, None, None].expand(-1, -1, 3, 3)
        uniform = self._features(nothing).flatten().repeat_interleave(CELLS**2)
        uniform = torch.cat([uniform, x.new_zeros(2 * CELLS**2)])
        inputs = torch.cat([seen, levels], dim=3)
        z = self.direct(inputs - uniform) + self.perceptron(inputs) - self.perceptron(uniform)
        return z * self.amplitudes

    def operators(
        self, medium: Conductances, known: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ``G (B, I, P)`` and ``F (B, I, I)`` of all subdomains, row by row: ``u = G g + F f``.

        The medium has `SEEN` coarse cells around the outermost subdomains. Where it is not ``known
        (rows, columns)`` to the network, the coordinates are zero.
        """
        fields = channels_of(medium)
        z = self.encode(fields)[0]
        if known is not None:
            z = torch.where(known[..., None], z, 0.0)
        added = self.correction(z).flatten(0, 1).double()
        graphs = _graphs(medium)
        scale = scales(fields["x"], fields["y"]).double().exp().flatten()[:, None, None]
        by_source = added[..., AROUND:] @ torch.linalg.pinv(shared_moments()) / scale
        by_data = added[..., :AROUND]
        by_constant = by_data.mean(dim=2, keepdim=True)
        if medium.reaction.any():
            by_constant += by_source @ graphs.reaction[..., None] / AROUND
        return graphs.operator() + by_data - by_constant, graphs.inverse + by_source

    def forward(
        self,
        g: torch.Tensor,
        points: torch.Tensor,
        medium: Conductances,
        f: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the values ``(B, Q)`` in all subdomains of a medium, linear in ``g (B, P)`` and ``f (B, I)``.

        Points ``(Q, 2)`` are (y, x) of nodes inside, in coarse cells; ``f`` is times the squared
        spacing, shared out to the coarse nodes.
        """
        by_data, by_source = self.operators(medium)
        u = by_data @ g.to(by_data)[..., None]
        if f is not None:
            u = u + by_source @ f.to(by_data)[..., None]
        return u[:, place(points), 0]

    def _features(self, answers: torch.Tensor) -> torch.Tensor:
        """Return the features of coarse cells ``(n, D, ..)`` from the channels' answers around them."""
        mixed = self.mixing(torch.nn.functional.silu(answers))
        return self.features(torch.nn.functional.silu(mixed))

    @staticmethod
    def _windows(values: torch.Tensor) -> torch.Tensor:
        """Return what the cells of each subdomain say, ``(n, rows, columns, features 64)``."""
        half = CELLS // 2
        cut = values.unfold(2, CELLS, half).unfold(3, CELLS, half)
        return cut.movedim(1, 3).flatten(3)

    def correction(self, z: torch.Tensor) -> torch.Tensor:
        """Return what is added to the lifting, ``(.., I, P + moments)``."""
        return self.uniform + torch.tensordot(z, self.modes, dims=1)


def _graphs(medium: Conductances) -> SubdomainGraphs:
    """Return the lifting of all subdomains of a window."""
    cut, side = slice(RATIO * SEEN - MARGIN, MARGIN - RATIO * SEEN), CELLS + 1
    coarse = averaged(medium.each(lambda values: values[cut, cut]))
    up, right, reaction = map(torch.from_numpy, (*coarse.along, coarse.reaction))
    return SubdomainGraphs(
        windows(right, side, CELLS), windows(up, CELLS, side), windows(reaction, side, side)
    )


def place(points: torch.Tensor) -> torch.Tensor:
    """Return which of the inner nodes some are, given by (y, x) in coarse cells, ``(Q,)``."""
    return (points[:, 0] - 1) * (CELLS - 1) + points[:, 1] - 1


@lru_cache
def shared_moments() -> torch.Tensor:
    """Return the six functions of unit coefficient as sources shared out to the nodes, ``(I, 6)``."""
    t = np.arange(-MARGIN, RATIO * CELLS + MARGIN + 1) / (RATIO * CELLS / 2) - 1
    shared = restricted(polynomials(t))[:, 1:-1, 1:-1]
    return torch.from_numpy(shared.reshape(MOMENTS, INSIDE).T.copy())


def polynomials(t: np.ndarray) -> np.ndarray:
    """Return 1, x, y, x y, x x, y y at nodes, ``(6, len(t), len(t))``; a subdomain is from -1 to 1."""
    y, x = t[:, None] + 0 * t, t + 0 * t[:, None]
    return np.stack([np.ones_like(x), x, y, x * y, x * x, y * y])
