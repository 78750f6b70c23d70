"""The interface of a network, its weights in files, and Fourier features of a position.

The symmetries of a subdomain, 8 of a square (the group D4) and 48 of a cube, on points and on the perimeter.

A symmetric equation has ``u(x; g) = u(R x; R g)``, so a network need only know the triangle
``0 <= y <= x``, of a cube the wedge ``0 <= z <= y <= x``: a query point is folded into it and the perimeter is permuted
to match. Points on a fold are mapped there by several ``R``; averaging over them makes the symmetry exact.

Shape letters: ``S`` symmetries, ``A`` axes, ``P`` perimeter nodes, ``N`` nodes.
"""

import functools
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch

from mosaicdd.networks.subdomain import Subdomain

_TOLERANCE = 1e-5  # in half sides: far below a cell, far above float32 rounding
_STEPS = 2**18  # of a half side: points that lie nearer to each other than one are the same


@dataclass(frozen=True)
class Fold:
    """Query points mapped to the triangle, or the wedge."""

    canonical: torch.Tensor  # ``(U, A)`` points in there
    index: torch.Tensor  # ``(Q,)`` which of them belongs to a query point
    element: torch.Tensor  # ``(Q,)`` the symmetry that maps the query point there
    # ``(U, S)`` weights of the symmetries that leave a canonical point where it is
    stabiliser: torch.Tensor


class Symmetry(torch.nn.Module):
    """Fold points into a triangle, or a wedge, and unfold rows of an operator on ``P`` perimeter nodes."""

    # matrices, images: the rotations, then as many reflections: ``(S, A, A)`` on points (y, x), of a cube (z, y, x), and
    # ``(S, P)`` the node that each perimeter node goes to
    matrices: torch.Tensor
    images: torch.Tensor

    def __init__(self, perimeter: int):
        super().__init__()
        subdomain = Subdomain.of_perimeter(perimeter)
        matrices = torch.as_tensor(_signed_permutations(subdomain.axes)).float()
        moved = torch.as_tensor(images(subdomain.perimeter, subdomain.cells))
        self.register_buffer("matrices", matrices, persistent=False)
        self.register_buffer("images", moved, persistent=False)

    def fold(self, points: torch.Tensor, merge: bool = True) -> Fold:
        """Fold points ``(Q, A)`` in ``[-1, 1]``; ``merge`` evaluates equal images only once."""
        matrices = self.matrices.to(points)
        element = _folding(torch.einsum("rij,qj->iqr", matrices, points.detach()), _TOLERANCE)
        canonical = torch.einsum("qij,qj->qi", matrices[element], points)
        index = torch.arange(len(points), device=points.device)
        if merge:
            canonical, index = distinct(canonical)
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
        """Fold points inside the triangles, or wedges, as those of a PDE loss almost surely are.

        Return the canonical points ``(Q, A)``; their directions ``(A, Q, A)``, how each moves with
        the coordinates of its point; and the nodes ``(Q, P)`` that the perimeter's go to.
        """
        matrices = self.matrices.to(points)
        moved = points @ matrices.permute(1, 2, 0)  # (A, Q, S): all images of all points
        element = _folding(moved, 0.0)
        canonical = torch.cat([along.gather(1, element[:, None]) for along in moved], dim=1)
        return canonical, matrices[element].permute(2, 0, 1), self.images[element]


def distinct(points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points ``(U, A)`` without repetitions, and the place of each of ``(Q, A)`` among them, ``(Q,)``."""
    steps = ((points.detach().double() + 1.0) * _STEPS).round().long()
    keys = functools.reduce(lambda key, step: 4 * _STEPS * key + step, steps.T)
    unlike, index = torch.unique(keys, return_inverse=True)
    order = torch.arange(len(points), device=points.device)
    first = torch.full_like(unlike, len(points)).scatter_reduce(0, index, order, "amin")
    return points[first], index


def _folding(moved: torch.Tensor, tolerance: float) -> torch.Tensor:
    """Return the first symmetry that takes each point into the triangle, or wedge: ``(Q,)`` of ``(A, Q, S)``."""
    steps = torch.diff(moved, dim=0, prepend=torch.zeros_like(moved[:1]))
    return (steps >= -tolerance).all(dim=0).int().argmax(dim=1)


def _signed_permutations(axes: int) -> np.ndarray:
    """Return the symmetries as matrices ``(S, A, A)``, rotations first; of a square the powers of a quarter turn."""
    turns = np.repeat(np.eye(axes, dtype=int)[None], axes - 1, axis=0)
    for first, turn in enumerate(turns):
        turn[first : first + 2, first : first + 2] = [[0, -1], [1, 0]]
    rotations = [np.eye(axes, dtype=int)]
    for rotation in rotations:  # which grows
        for moved in turns @ rotation:
            if not any(np.array_equal(moved, known) for known in rotations):
                rotations.append(moved)
    swap = np.eye(axes, dtype=int)[[*range(axes - 2), axes - 1, axes - 2]]
    return np.stack([*rotations, *(rotation @ swap for rotation in rotations)])


def images(nodes: np.ndarray, cells: int) -> np.ndarray:
    """Return where each symmetry sends nodes ``(N, A)`` that they exchange, ``(S, N)``."""
    centred = 2 * nodes - cells
    index = {tuple(node): i for i, node in enumerate(centred.tolist())}
    moved = [(centred @ r.T).tolist() for r in _signed_permutations(nodes.shape[1])]
    return np.array([[index[tuple(node)] for node in image] for image in moved])


class Network(torch.nn.Module):
    """A network ``N`` of perimeter values and points, as `registry` describes it."""

    Settings: ClassVar[type[Any]]  # a frozen dataclass
    settings: Any
    linear: bool  # whether it is linear in the perimeter values
    axes: ClassVar[tuple[int, ...]] = (2,)  # of the subdomains that it can be for
    # Whether it is for equations that have their symmetries alone, and the symmetries that it uses
    symmetric_only: ClassVar[bool] = False
    symmetry: Symmetry | None
    # Whether its values there are no worse than interpolated ones
    between_nodes: ClassVar[bool] = True
    # Whether hidden layers are computed again in a backward pass; None of networks that cannot
    recompute: bool | None = None
    # Values and derivatives ``jet(g, points, a, second_only)``, as `trunk`; None of networks that cannot
    jet: Any = None

    def prepare(self, points: torch.Tensor) -> Any:
        """Prepare points ``(Q, 2)`` or ``(B, Q, 2)``; a linear network's operator ``(Q, P)`` or ``(B, Q, P)``."""
        raise NotImplementedError

    def apply_prepared(self, g: torch.Tensor, prepared: Any) -> torch.Tensor:
        """Return the values ``(B, Q)`` for perimeters ``(B, P)`` at the prepared points, here by a linear operator."""
        return g @ prepared.T if prepared.ndim == 2 else torch.einsum("bp,bqp->bq", g, prepared)

    def forward(self, g: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        """Return the values ``(B, Q)`` at points ``(Q, 2)`` or, one set each, ``(B, Q, 2)``."""
        return self.apply_prepared(g, self.prepare(points))


def require_counts(network: str, settings: Any) -> None:
    """Raise `ValueError` if a whole number among a network's settings is below 1."""
    values = asdict(settings)
    counts = {f.name: values[f.name] for f in fields(settings) if f.type is int}
    if min(counts.values()) < 1:
        raise ValueError(
            f"{network} needs {', '.join(counts)} of at least 1, got {tuple(counts.values())}"
        )


def extract_weights(network: torch.nn.Module) -> dict[str, np.ndarray]:
    """Return the weights of a network as float32 arrays by name."""
    return {name: value.cpu().float().numpy() for name, value in network.state_dict().items()}


def insert_weights(network: torch.nn.Module, weights: dict[str, np.ndarray]) -> None:
    """Put weights into a network; `ValueError` if one is missing, unknown or of another shape."""
    expected = network.state_dict()
    if different := sorted(expected.keys() ^ weights.keys()):
        raise ValueError(
            f"the weights do not fit the network: {', '.join(different)} missing or unknown"
        )
    for name, values in weights.items():
        if values.shape != tuple(expected[name].shape):
            raise ValueError(
                f"weight {name!r} has the shape {values.shape}, the network needs "
                f"{tuple(expected[name].shape)}"
            )
    network.load_state_dict({name: torch.as_tensor(values) for name, values in weights.items()})


class FourierFeatures(torch.nn.Module):
    """Map points ``(..., axes)`` in ``[-1, 1]`` to ``(..., axes + 2 count)``.

    Parameters
    ----------
    count
        Number of random waves; 0 leaves the coordinates alone.
    sigma
        Standard deviation of their wave numbers, in radians per half side.
    """

    wave_numbers: torch.Tensor

    def __init__(self, count: int, sigma: float, axes: int = 2):
        super().__init__()
        self.size = axes + 2 * count
        self.register_buffer("wave_numbers", sigma * torch.randn(axes, count))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Return coordinates, sines and cosines."""
        phase = points @ self.wave_numbers
        return torch.cat([points, torch.sin(phase), torch.cos(phase)], dim=-1)


def perceptron(inputs: int, width: int, depth: int, outputs: int) -> list[torch.nn.Module]:
    """Return the layers of a perceptron: hidden ones with GELU, and a linear last one."""
    layers: list[torch.nn.Module] = []
    for _ in range(depth):
        layers += [torch.nn.Linear(inputs, width), torch.nn.GELU()]
        inputs = width
    return [*layers, torch.nn.Linear(inputs, outputs)]


@dataclass(frozen=True)
class TrunkSettings:
    """Settings of networks in which a perceptron sees the position."""

    # width, depth: width ``D`` of hidden layers, and their number
    width: int = 128
    depth: int = 2
    # features, sigma: number of Fourier features and their scale, as `FourierFeatures`
    features: int = 64
    sigma: float = 5.0

    network: ClassVar[str] = "a network"

    def __post_init__(self) -> None:
        if min(self.width, self.depth) < 1 or self.features < 0 or not self.sigma > 0:
            raise ValueError(
                f"{self.network} needs width >= 1, depth >= 1, features >= 0 and sigma > 0, got "
                f"{self.width}, {self.depth}, {self.features} and {self.sigma}"
            )

    def layers(self, inputs: int) -> list[torch.nn.Module]:
        """Return a `perceptron` whose outputs are of this width, too."""
        return perceptron(inputs, self.width, self.depth, self.width)
