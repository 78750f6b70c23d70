"""A multilayer perceptron of perimeter and position, its first layer split as in the paper.

The first layer, ``phi(g W1^T + X W2^T)`` (eqs. 7 and 8), keeps the boundary's part apart from the
position's, so the perimeter is not copied for every point. `SDNet`, the paper's (section 3, Fig. 3), is this network
behind convolutions that embed the perimeter: circular ones of a square, of a cube over its six faces and round their
edges.

Beside it the paper's baseline for the split layer (section 3.2), with concatenated inputs: the embedded perimeter is
copied for every query point and concatenated with the position (eqs. 5 and 6). The function, and the weights, are those
of `SDNet` without symmetry; only time and memory differ.

Shape letters: ``B`` subdomains, ``P`` perimeter nodes, ``Q`` query points, ``A`` axes, ``D`` width, ``C``
channels of the embedded perimeter, ``F`` features of a position.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from mosaicdd.axes import others
from mosaicdd.networks.network import FourierFeatures, Network, Symmetry, TrunkSettings, perceptron
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.networks.trunk import (
    Coefficients,
    Jet,
    features_jet,
    perceptron_jet,
    unit_directions,
)


@dataclass(frozen=True)
class MLPSettings(TrunkSettings):
    """Settings of `MLP`: the split layer is one of the hidden ones."""

    width: int = 64
    depth: int = 3
    features: int = 32
    # Whether the equation has the symmetries of the square, or the cube, and the network uses them: a
    # point is folded into a triangle, or a wedge, and sees the perimeter moved along with it
    symmetric: bool = True

    network = "an mlp"


# The boundary's part of the first layer ``(C P, R D)`` for ``R`` starting nodes: of the perimeter as it is and, if any
# point needs it, read backwards.
BoundaryLayer = list[tuple[bool, torch.Tensor]]
# The position's part of the first layer, ``(Q, D)`` or ``(B, Q, D)``; the boundary's; and which of all the ``R`` belongs
# to a point, ``(Q,)`` or ``(B, Q)``.
PreparedPoints = tuple[torch.Tensor, BoundaryLayer, torch.Tensor]


class MLP(Network):
    """Split first layer, perceptron."""

    Settings: ClassVar[type[Any]] = MLPSettings
    linear = False
    axes: ClassVar[tuple[int, ...]] = (2, 3)
    # Whether `embed` commutes with reflections as it does with rotations
    embeds_reflections = True
    # Whether hidden layers keep their inputs only, and work anew in the backward pass
    recompute = False

    def __init__(self, perimeter: int, settings: Any):
        super().__init__()
        self.settings = settings
        self.perimeter = perimeter
        self.symmetry = Symmetry(perimeter) if settings.symmetric else None
        axes = Subdomain.of_perimeter(perimeter).axes
        self.features = FourierFeatures(settings.features, settings.sigma, axes)
        inputs = self.channels * perimeter
        self.boundary_layer = torch.nn.Linear(inputs, settings.width, bias=False)  # W1
        self.point_layer = torch.nn.Linear(self.features.size, settings.width)  # W2
        tail = perceptron(settings.width, settings.width, settings.depth - 1, 1)
        self.perceptron = torch.nn.Sequential(torch.nn.GELU(), *tail)

    @property
    def channels(self) -> int:
        """Values per perimeter node after `embed`."""
        return 1

    def embed(self, g: torch.Tensor) -> torch.Tensor:
        """Embed perimeters ``(B, P)`` as ``(B, C P)``; must commute with rotations."""
        return g

    def prepare(self, points: torch.Tensor) -> PreparedPoints:
        """Fold points ``(..., Q, A)`` and prepare both parts of the first layer."""
        canonical, _, boundary, index = self._fold(points)
        return self._position(self.features(canonical)), boundary, index

    def apply_prepared(self, g: torch.Tensor, prepared: PreparedPoints) -> torch.Tensor:
        """Return the values ``(B, Q)`` for perimeters ``(B, P)`` at the prepared points."""
        hidden = self._first_layer(g, prepared)
        if not (self.recompute and torch.is_grad_enabled()):
            return self.perceptron(hidden).squeeze(-1)
        entering, *layers, last = self.perceptron
        hidden = entering(hidden)
        for layer, activation in zip(layers[::2], layers[1::2], strict=True):
            both = torch.nn.Sequential(layer, activation)
            hidden = checkpoint(both, hidden, use_reentrant=False)
        return last(hidden).squeeze(-1)

    def jet(self, g: torch.Tensor, points: torch.Tensor, a: Coefficients, second_only: bool) -> Jet:
        """Return values and derivatives ``(B, Q)`` at points ``(Q, A)``, as `taylor`."""
        canonical, directions, boundary, index = self._fold(points)
        features, *derivatives = features_jet(self.features, canonical, directions, a)
        value = self._first_layer(g, (self._position(features), boundary, index))
        rates, second = (part @ self.point_layer.weight.T for part in derivatives)
        entering = value, rates[:, None], second[None]
        jet = perceptron_jet(self.perceptron, entering, a, second_only, self.recompute)
        return jet.map(lambda part: part.squeeze(-1))

    def _fold(
        self, points: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, BoundaryLayer, torch.Tensor]:
        """Return folded points, their directions, and the boundary layer with its index."""
        index = torch.zeros(points.shape[:-1], dtype=torch.long, device=points.device)
        flat = points.reshape(-1, points.shape[-1])
        if self.symmetry is None:
            return points, unit_directions(flat), [(False, self.boundary_layer.weight.T)], index
        fold = self.symmetry.fold(flat, merge=False)
        elements, which = torch.unique(fold.element, return_inverse=True)
        boundary = self._moved_boundary_layer(self.symmetry, elements)
        # Column k of a symmetry's matrix is how the folded point moves with coordinate k.
        directions = self.symmetry.matrices.to(points)[fold.element].permute(2, 0, 1)
        return fold.canonical.view(points.shape), directions, boundary, which.view(index.shape)

    def _moved_boundary_layer(self, symmetry: Symmetry, elements: torch.Tensor) -> BoundaryLayer:
        """Return the boundary layer for perimeters moved by symmetries, rotations first.

        Embedding commutes with rotations, so these are moved to the weights: one embedding serves all
        of them, and one of the reversed perimeter all reflections, unless it commutes with these, too.
        """
        weight = self.boundary_layer.weight.view(-1, self.channels, self.perimeter)
        groups: dict[bool, list[torch.Tensor]] = {}
        for element in elements.tolist():
            reflected = not self.embeds_reflections and element >= len(symmetry.images) // 2
            image = symmetry.images[element]
            source = image.flip(0) if reflected else image
            # Far faster than to index, backwards.
            moved = weight.gather(2, source.expand_as(weight))
            groups.setdefault(reflected, []).append(moved.flatten(1))
        return [(reflected, torch.cat(group).T) for reflected, group in groups.items()]

    def _position(self, features: torch.Tensor) -> torch.Tensor:
        """Return the position's part of the first layer for features ``(..., Q, F)``."""
        return self.point_layer(features)

    def _first_layer(self, g: torch.Tensor, prepared: PreparedPoints) -> torch.Tensor:
        """Return ``g W1^T + X W2^T``, ``(B, Q, D)``."""
        position, layer, index = prepared
        parts = [self.embed(g.flip(1) if reflected else g) @ weight for reflected, weight in layer]
        boundary = torch.cat(parts, dim=1).view(len(g), -1, self.settings.width)  # (B, R, D)
        if boundary.shape[1] > 1 and index.ndim == 1:
            boundary = boundary.index_select(1, index)  # rows at once: far faster than to gather
        elif boundary.shape[1] > 1:
            boundary = boundary.gather(1, index[..., None].expand(-1, -1, boundary.shape[-1]))
        return boundary + position


@dataclass(frozen=True)
class SDNetSettings(MLPSettings):
    """Settings of `SDNet`: besides those of its perceptron, of the convolutions along the perimeter."""

    channels: int = 8
    kernel: int = 5  # nodes along it, odd
    convolutions: int = 2

    network = "an sdnet"

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.channels, self.convolutions) < 1:
            raise ValueError(
                f"{self.network} needs channels and convolutions >= 1, got {self.channels} and "
                f"{self.convolutions}"
            )
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise ValueError(f"the kernel of {self.network} must be odd, got {self.kernel}")


class FaceConvolution(torch.nn.Conv2d):
    """A convolution over the six faces of a cube, continued round the edges; ``(B, ., P)`` to the like.

    Beyond an edge are the nodes of the next face, and beyond a corner those of the edge that meets both. What lies on
    several faces has the mean of what they give.

    ``symmetric``: whether the kernel is the mean of its images by the symmetries of a face: then it commutes with all
    those of the cube.
    """

    _around: torch.Tensor  # nodes of faces with what lies around them, ``(6 w w)``
    _nodes: torch.Tensor  # of faces, ``(6 (m + 1)**2)``
    _shares: torch.Tensor  # 1 over the number of faces that a node lies on, ``(P,)``

    def __init__(self, inputs: int, outputs: int, kernel: int, cube: Subdomain, symmetric: bool):
        super().__init__(inputs, outputs, kernel)
        if kernel // 2 > cube.cells:
            raise ValueError(
                f"a kernel of {kernel} nodes reaches beyond the next face of cubes of {cube.cells} "
                f"cells; take {2 * cube.cells + 1} or fewer"
            )
        self._symmetric = symmetric
        self._width = cube.cells + 1 + 2 * (kernel // 2)
        nodes, around = _face_nodes(cube, 0), _face_nodes(cube, kernel // 2)
        for name, values in (
            ("_around", around),
            ("_nodes", nodes),
            ("_shares", 1 / np.bincount(nodes)),
        ):
            self.register_buffer(name, torch.as_tensor(values), persistent=False)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Convolve values ``(B, ., P)``."""
        kernel = self.weight
        if self._symmetric:
            kernel = (kernel + kernel.flip(-1)) / 2
            kernel = (kernel + kernel.flip(-2)) / 2
            kernel = (kernel + kernel.mT) / 2
        batch, channels, perimeter = values.shape
        around = values.gather(2, self._around.expand(batch, channels, -1))
        faces = around.view(batch, channels, 6, self._width, self._width).transpose(1, 2)
        convolved = self._conv_forward(faces.flatten(0, 1), kernel, self.bias)
        on_faces = convolved.unflatten(0, (batch, 6)).transpose(1, 2).flatten(2)
        sums = on_faces.new_zeros(batch, on_faces.shape[1], perimeter)
        sums = sums.scatter_add(2, self._nodes.expand_as(on_faces), on_faces)
        return sums * self._shares.to(sums)


def _face_nodes(cube: Subdomain, reach: int) -> np.ndarray:
    """Return which perimeter nodes faces have, and so many steps around them, face by face, ``(6 w w)``."""
    m, perimeter = cube.cells, cube.perimeter
    number = np.zeros((m + 1,) * 3, int)
    number[tuple(perimeter.T)] = np.arange(len(perimeter))
    along = np.arange(-reach, m + reach + 1)
    beyond = np.maximum(np.maximum(-along, along - m), 0)
    depth = np.maximum(beyond[:, None], beyond)
    places = dict(enumerate(np.meshgrid(along.clip(0, m), along.clip(0, m), indexing="ij")))
    faces = []
    for axis in range(3):
        for end in (0, 1):
            node = [depth if end == 0 else m - depth] * 3
            for place, other in enumerate(others(axis, 3)):
                node[other] = places[place]
            faces.append(number[tuple(node)].ravel())
    return np.concatenate(faces)


class SDNet(MLP):
    """Convolutions, split first layer, perceptron."""

    Settings = SDNetSettings

    def __init__(self, perimeter: int, settings: SDNetSettings):
        super().__init__(perimeter, settings)
        subdomain = Subdomain.of_perimeter(perimeter)
        self.embeds_reflections = subdomain.axes == 3
        layers: list[torch.nn.Module] = []
        size = 1
        for _ in range(settings.convolutions):
            layers += [_convolution(size, settings, subdomain), torch.nn.GELU()]
            size = settings.channels
        self.convolutions = torch.nn.Sequential(*layers)

    @property
    def channels(self) -> int:
        """Channels ``C`` of the last convolution."""
        return self.settings.channels

    def embed(self, g: torch.Tensor) -> torch.Tensor:
        """Convolve perimeters ``(B, P)`` to embeddings ``(B, C P)``."""
        return self.convolutions(g[:, None]).flatten(1)


def _convolution(inputs: int, settings: SDNetSettings, subdomain: Subdomain) -> torch.nn.Module:
    """Return a layer of `SDNet`, along the perimeter of a square or over the faces of a cube."""
    outputs, kernel = settings.channels, settings.kernel
    if subdomain.axes == 3:
        return FaceConvolution(inputs, outputs, kernel, subdomain, settings.symmetric)
    return torch.nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2, padding_mode="circular")


@dataclass(frozen=True)
class SDNetConcatSettings(SDNetSettings):
    """Settings of `SDNetConcat`: those of `SDNet`, without symmetry."""

    symmetric: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.symmetric:
            raise ValueError(
                "an sdnet-concat sees the perimeter as it is: leave symmetric false, or use sdnet"
            )


class SDNetConcat(SDNet):
    """Convolutions, concatenated first layer, perceptron; of squares."""

    Settings = SDNetConcatSettings
    axes = (2,)

    def _position(self, features: torch.Tensor) -> torch.Tensor:
        """Keep the features as they are: they are concatenated."""
        return features

    def _first_layer(self, g: torch.Tensor, prepared: PreparedPoints) -> torch.Tensor:
        """Return ``[g, X] [W1, W2]^T``, ``(B, Q, D)``."""
        features, *_ = prepared
        copies = self.embed(g)[:, None].expand(-1, features.shape[-2], -1)  # (B, Q, C P)
        inputs = torch.cat([copies, features.expand(len(g), -1, -1)], dim=-1)
        weight = torch.cat([self.boundary_layer.weight, self.point_layer.weight], dim=1)
        return torch.nn.functional.linear(inputs, weight, self.point_layer.bias)
