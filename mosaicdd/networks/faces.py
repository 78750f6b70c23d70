"""The network of faces: linear in the boundary, by waves on each side of a square or each face of a cube.

    ``u(x) = sum_f sum_k  d_k(s_f) S_k(t_f) . (S g_f)_k``,   ``d_k(s) = w_k . t(s)``

Values on a face are sums of sine waves ``S_k`` along it. A wave goes on into the subdomain as it is, and fades with the
distance ``s_f`` from the face: how, a perceptron of the distance says, by weights ``w_k`` of each wave. That is all
that is learned: the faces are images of one another, and so are waves whose numbers along the axes are exchanged, so
that the symmetries of the square or the cube hold by construction, and corners and edges, which no face has, never
count.

Shape letters: ``P`` perimeter nodes, ``Q`` query points, ``F = 2 axes`` faces of ``N = m - 1`` nodes along each axis,
``K`` kinds of waves, ``D`` width, ``U`` points as faces see them.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.axes import others
from mosaicdd.networks.network import FourierFeatures, Network, TrunkSettings, distinct
from mosaicdd.networks.subdomain import Subdomain


@dataclass(frozen=True)
class FacesSettings(TrunkSettings):
    """Settings of `FacesNetwork`, of its perceptron of the distance."""

    width: int = 64
    features: int = 16
    sigma: float = 8.0

    network = "a network of faces"


class FacesNetwork(Network):
    """Waves on faces times how they fade."""

    Settings = FacesSettings
    linear = True
    axes = (2, 3)
    symmetric_only, symmetry = True, None
    between_nodes = False  # sines end at zero, values on faces do not
    _kinds: torch.Tensor  # which of the weights a wave has, ``(N,)`` or ``(N, N)``
    # _places, _nodes: of perimeter nodes among those inside of all faces, ``(P,)``, of others the next after the last;
    # and of these among the perimeter's
    _places: torch.Tensor
    _nodes: torch.Tensor

    def __init__(self, perimeter: int, settings: FacesSettings):
        super().__init__()
        self.settings = settings
        subdomain = Subdomain.of_perimeter(perimeter)
        self._cells, self._along = subdomain.cells, subdomain.axes - 1
        numbers = np.arange(1, self._cells)
        shape = (len(numbers),) * self._along
        sorted_numbers = np.sort(np.indices(shape).reshape(self._along, -1), axis=0)
        alike, kinds = np.unique(sorted_numbers, axis=1, return_inverse=True)
        waves = np.sin(np.pi * np.outer(numbers, numbers) / self._cells)
        # ``(N, N)``, sines at the nodes: symmetric, and their own inverse; in float64, whatever the weights are in.
        self._waves = np.sqrt(2 / self._cells) * waves
        features = FourierFeatures(settings.features, settings.sigma, 1)
        self.trunk = torch.nn.Sequential(features, *settings.layers(features.size))
        scale = (settings.width * alike.shape[1]) ** -0.5
        self.branch = torch.nn.Parameter(scale * torch.randn(alike.shape[1], settings.width))
        kinds = kinds.reshape(shape)
        places = _places(subdomain)
        nodes = np.argsort(places, kind="stable")[: 2 * subdomain.axes * kinds.size]
        for name, values in (("_kinds", kinds), ("_places", places), ("_nodes", nodes)):
            self.register_buffer(name, torch.as_tensor(values), persistent=False)

    def prepare(self, points: torch.Tensor) -> torch.Tensor:
        """Return the operator ``(Q, P)`` at points ``(Q, axes)`` in ``[-1, 1]``; see `Network.prepare`."""
        if points.ndim == 3:
            return self.prepare(points.flatten(0, 1)).view(*points.shape[:2], -1)
        seen, index = self._seen(points)
        waves = self._transformed(self._waves_at(seen))  # at nodes
        rows = waves[index].transpose(0, 1).flatten(1)
        return torch.cat([rows, torch.zeros_like(rows[:, :1])], dim=1)[:, self._places]

    def forward(self, g: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        """Return the values ``(B, Q)`` as `Network.forward`, with one product for points that faces share."""
        if points.ndim == 3:
            return super().forward(g, points)
        seen, index = self._seen(points)
        inside = g[:, self._nodes].unflatten(1, (len(index), -1))
        values = self._transformed(inside) @ self._waves_at(seen).T  # (B, F, U)
        return values.gather(2, index.expand(len(g), *index.shape)).sum(dim=1)

    def _seen(self, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return points ``(Q, axes)`` in the coordinates of the faces, along and then away from each.

        Returns them without repetitions, ``(U, axes)``, and the place of each among these, ``(F, Q)``.

        What several faces see is there once, where no derivatives are asked for.
        """
        axes = self._along + 1
        views = [
            torch.cat([points[:, others(axis, axes)], sign * points[:, axis, None]], dim=1)
            for axis, sign in itertools.product(range(axes), (1, -1))
        ]
        seen = torch.cat(views)
        index = torch.arange(len(seen), device=seen.device)
        if not seen.requires_grad:
            seen, index = distinct(seen)
        return seen, index.view(len(views), -1)

    def _transformed(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sine transform of the last axis, nodes or waves of a face, along it: its own inverse."""
        inner = (self._cells - 1,) * self._along
        faces, waves = values.unflatten(-1, inner), torch.as_tensor(self._waves).to(values)
        for axis in range(-self._along, 0):
            faces = (faces.movedim(axis, -1) @ waves).movedim(-1, axis)
        return faces.flatten(-self._along)

    def _waves_at(self, seen: torch.Tensor) -> torch.Tensor:
        """Return the values of the waves of a face at points as it sees them, ``(U, N)``, or ``(U, N N)``."""
        rows = self._fading(seen[:, -1])
        numbers = torch.arange(1, self._cells).to(seen)
        for axis, places in enumerate(seen[:, :-1].T):
            shape = [len(places)] + [1] * self._along
            shape[1 + axis] = len(numbers)
            waves = torch.sin(0.5 * torch.pi * numbers * (places[:, None] + 1.0))
            rows = rows * ((2 / self._cells) ** 0.5 * waves).view(shape)
        return rows.flatten(1)

    def _fading(self, distance: torch.Tensor) -> torch.Tensor:
        """Return the amplitude of each wave at distances ``(Q,)``, -1 on the face: ``(Q, N)``, or ``(Q, N, N)``."""
        index = None
        if not distance.requires_grad:  # few of the nodes' distances differ
            distance, index = torch.unique(distance, return_inverse=True)
        kinds = self.trunk(distance[:, None]) @ self.branch.T
        left = kinds[:, self._kinds.flatten()].unflatten(1, self._kinds.shape)
        return left if index is None else left[index]


def _places(subdomain: Subdomain) -> np.ndarray:
    """Return the index of each perimeter node among the inner nodes of all faces; edges come after the last."""
    m, axes = subdomain.cells, subdomain.axes
    size = (m - 1) ** (axes - 1)
    places = np.full(len(subdomain.perimeter), 2 * axes * size)
    for number, node in enumerate(subdomain.perimeter):
        at_end = np.flatnonzero((node == 0) | (node == m))
        if len(at_end) == 1:
            axis = int(at_end[0])
            face = 2 * axis + (node[axis] == m)
            inner = node[list(others(axis, axes))] - 1
            places[number] = face * size + np.ravel_multi_index(inner, (m - 1,) * (axes - 1))
    return places
