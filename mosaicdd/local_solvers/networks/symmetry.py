"""The eight symmetries of the square (the group D4), on points and on the perimeter.

A symmetric equation has ``u(x; g) = u(R x; R g)``, so a network need only know the triangle
``0 <= y <= x``: a query point is folded into it and the perimeter is permuted to match. Points on a
fold are mapped there by several ``R``; averaging over them makes the symmetry exact.

In layers that treat the eight images alike, channels come in eights, one for each symmetry: what a channel sees of a
field, those beside it see of the field's images. So a layer has an eighth of a matrix's weights, and costs no more.

Shape letters: ``N`` nodes, ``D, E`` channels of each symmetry.
"""

import functools
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.lattice.subdomain import Subdomain

_TOLERANCE = 1e-5  # in half sides: far below a cell, far above float32 rounding


@dataclass(frozen=True)
class Fold:
    """Query points mapped to the triangle."""

    canonical: torch.Tensor  # ``(U, 2)`` points in the triangle
    index: torch.Tensor  # ``(Q,)`` which of them belongs to a query point
    element: torch.Tensor  # ``(Q,)`` the symmetry that maps the query point there
    # ``(U, 8)`` weights of the symmetries that leave a canonical point where it is
    stabiliser: torch.Tensor


class SquareSymmetry(torch.nn.Module):
    """Fold points into a triangle and unfold rows of an operator on ``P = 4 m`` perimeter nodes."""

    # matrices, images: the four rotations, then the four reflections: ``(8, 2, 2)`` on points (y,
    # x), and ``(8, P)`` the node that each perimeter node goes to
    matrices: torch.Tensor
    images: torch.Tensor

    def __init__(self, perimeter: int):
        super().__init__()
        turn, swap = np.array([[0, -1], [1, 0]]), np.array([[0, 1], [1, 0]])
        rotations = [np.linalg.matrix_power(turn, k) for k in range(4)]
        matrices = np.stack([*rotations, *(rotation @ swap for rotation in rotations)])
        nodes = 2 * Subdomain(cells=perimeter // 4).perimeter - perimeter // 4  # centred integers
        index = {tuple(node): i for i, node in enumerate(nodes.tolist())}
        images = [[index[tuple(image)] for image in (nodes @ r.T).tolist()] for r in matrices]
        self.register_buffer("matrices", torch.as_tensor(matrices).float(), persistent=False)
        self.register_buffer("images", torch.as_tensor(images), persistent=False)  # (8, P)

    def fold(self, points: torch.Tensor, merge: bool = True) -> Fold:
        """Fold points ``(Q, 2)`` in ``[-1, 1]``; ``merge`` evaluates equal images only once."""
        matrices = self.matrices.to(points)
        y, x = torch.einsum("rij,qj->iqr", matrices, points.detach())
        element = ((y >= -_TOLERANCE) & (x - y >= -_TOLERANCE)).int().argmax(dim=1)
        canonical = torch.einsum("qij,qj->qi", matrices[element], points)
        index = torch.arange(len(points), device=points.device)
        if merge:
            keys = (canonical.detach() / _TOLERANCE).round().long() @ matrices.new_tensor(
                [2**24, 1], dtype=torch.long
            )
            _, index = torch.unique(keys, return_inverse=True)
            first = torch.full((int(index.max()) + 1,), len(points), device=points.device)
            order = torch.arange(len(points), device=points.device)
            canonical = canonical[first.scatter_reduce(0, index, order, "amin")]
        moved = torch.einsum("rij,uj->uri", matrices, canonical.detach())
        fixed = (moved - canonical.detach()[:, None]).abs().amax(dim=2) <= 2 * _TOLERANCE
        weights = fixed / fixed.sum(dim=1, keepdim=True)
        return Fold(canonical, index, element, weights.to(points.dtype))

    def unfold(self, rows: torch.Tensor, fold: Fold) -> torch.Tensor:
        """Return the operator ``(Q, P)`` for its rows ``(U, P)`` at the canonical points."""
        even = functools.reduce(
            torch.add,
            (fold.stabiliser[:, r, None] * rows[:, image] for r, image in enumerate(self.images)),
        )
        return even[fold.index].gather(1, self.images[fold.element])

    def locate(self, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Fold points inside the eight triangles, as those of a PDE loss almost surely are.

        Return the canonical points ``(Q, 2)``; their directions ``(2, Q, 2)``, how each moves with
        the coordinates of its point; and the nodes ``(Q, P)`` that the perimeter's go to.
        """
        matrices = self.matrices.to(points)
        y, x = (points @ matrices.permute(1, 2, 0)).unbind()  # (Q, 8): all images of all points
        element = ((y >= 0) & (x >= y)).int().argmax(dim=1)
        at = element[:, None]
        canonical = torch.cat([y.gather(1, at), x.gather(1, at)], dim=1)
        return canonical, matrices[element].permute(2, 0, 1), self.images[element]


class EquivariantLayers(torch.nn.Module):
    """Makes matrices of the weights that the symmetries of a square share, of nodes ``(N, 2)`` that they exchange."""

    _inputs: torch.Tensor
    _outputs: torch.Tensor
    _relations: torch.Tensor

    def __init__(self, cells: int, inputs: np.ndarray, outputs: np.ndarray):
        super().__init__()
        matrices = SquareSymmetry(4 * cells).matrices.long().numpy()
        products = np.einsum("rij,skj->rsik", matrices, matrices)  # R S^T = R S^-1
        relations = [
            [int(np.flatnonzero((matrices == product).all(axis=(1, 2)))[0]) for product in row]
            for row in products
        ]
        for name, values in (
            ("_inputs", images(inputs, cells)),
            ("_outputs", images(outputs, cells)),
            ("_relations", relations),
        ):
            self.register_buffer(name, torch.as_tensor(values), persistent=False)

    def inlet(self, weights: torch.Tensor) -> torch.Tensor:
        """Return ``(N, 8 D)`` for weights ``(N, D)`` of the inputs."""
        return weights[self._inputs].transpose(0, 1).flatten(1)

    def hidden(self, blocks: torch.Tensor) -> torch.Tensor:
        """Return ``(8 D, 8 E)`` for weights ``(8, D, E)``."""
        return blocks[self._relations.T].transpose(1, 2).flatten(0, 1).flatten(1)

    def outlet(self, weights: torch.Tensor) -> torch.Tensor:
        """Return ``(8 D, N)`` for weights ``(N, D)`` of the outputs."""
        return weights[self._outputs].transpose(1, 2).flatten(0, 1)


def images(nodes: np.ndarray, cells: int) -> np.ndarray:
    """Return where each symmetry sends nodes, ``(8, N)``."""
    matrices = SquareSymmetry(4 * cells).matrices.long().numpy()
    centred = 2 * nodes - cells
    index = {tuple(node): i for i, node in enumerate(centred.tolist())}
    return np.array([[index[tuple(node)] for node in (centred @ r.T).tolist()] for r in matrices])
