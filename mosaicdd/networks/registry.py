"""The networks by name, and how one is built from a name and plain settings.

Every network is a `torch.nn.Module` with

- ``Settings``, a frozen dataclass, and ``linear``, whether it is linear in the perimeter values; ``axes``, if it is for
  cubes, too: ``(2, 3)``, or ``(3,)`` of cubes alone;
- ``Network(P, settings)``, the number of perimeter nodes and its settings, to build one;
- ``forward(g, points)``: unit remainders ``(B, P)`` and points ``(Q, 2)`` in ``[-1, 1]``, order
  (y, x), of cubes ``(Q, 3)``, or one set for each perimeter, ``(B, Q, 2)``, to values ``(B, Q)``;
- ``prepare(points)`` and ``apply_prepared(g, prepared)``, the same in two steps: the first holds all
  that depends on the points only. For a linear network it is the operator ``(Q, P)``;
- if it can, ``jet(g, points, a, second_only)``: values and derivatives, as `networks.trunk`.

The network ``family`` serves a family of operators: ``network.at(operator, subdomain)`` is the network
for one of them.

A name with a colon, ``module:Class``, is a network of the user's own, checked before anything is built. A model file
names the network that it belongs to, and loading a file must not run code that the file has chosen. So a module is
imported only where its name was given by the user: by `allow`, or in the environment variable ``MOSAICDD_NETWORKS``
(names separated by commas).

The network for a family of operators: linear in the boundary, its operator generated from theirs.

    ``u(x) = t(x) . W(p) g``,   ``W(p) = W_0 + sum_k z_k(p) W_k``

A perceptron gives the coordinates ``z`` for the numbers ``p`` of an operator
``-div(T grad u) + b . grad u + c u``. Trunk ``t`` and branches ``W_k`` span the operators that occur in
training (`training.family` finds them by a singular value decomposition). Bound to an operator
(`FamilyNetwork.at`) it is one matrix, as `trunk.LinearNetwork` is.

The square's symmetries take the operator along: ``u(x; g, p) = u(R x; R g, R p)``, so only one of the
eight images of ``p`` is ever learned, and the symmetries that an operator has, its matrix has exactly.

Shape letters: ``B`` subdomains, ``P = 4 m`` perimeter nodes, ``Q`` points, ``N = (m - 1)^2`` interior
nodes, ``D`` width, ``K`` modes.
"""

import dataclasses
import functools
import importlib
import math
import os
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from mosaicdd.axes import times
from mosaicdd.networks.faces import FacesNetwork
from mosaicdd.networks.mlp import MLP, SDNet, SDNetConcat
from mosaicdd.networks.network import Network, Symmetry, perceptron, require_counts
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.networks.trunk import DeepONet, LinearNetwork
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.settings import meant, unknown
from mosaicdd.torch_defaults import float32_on_processor
from mosaicdd.unsupported import refuse_former

_COORDINATES = 5
SAME = 1e-9  # difference of coordinates that is rounding
# Along the coordinates solutions change fast below these sizes, then ever slower.
_SCALES = (1.0, 1.0, 4.0, 4.0, 4.0)


def coordinates(operator: EllipticOperator, size: float) -> np.ndarray:
    """Return the dimensionless numbers of an operator on a square of a size, ``(5,)``.

    The logarithm of the diffusion tensor, as far as it is not isotropic, in the directions ``x``
    against ``y`` and across; velocity times size, along x and y; reaction times squared size, the
    last three over the diffusion's geometric mean.
    """
    mean = math.sqrt(operator.axx * operator.ayy - operator.axy**2)
    across, along = operator.axy / mean, (operator.axx - operator.ayy) / (2 * mean)
    radius = math.hypot(along, across)
    stretch = math.asinh(radius) / radius if radius else 1.0
    velocity, reaction = size / mean, size**2 / mean
    return np.array(
        [
            *(stretch * along, stretch * across),
            *(velocity * operator.bx, velocity * operator.by, reaction * operator.c),
        ]
    )


def invariants(operator: EllipticOperator, subdomain: Subdomain) -> dict[str, float]:
    """Return the invariants of an operator under symmetries of the square, which limit a family."""
    p = coordinates(operator, subdomain.size)
    return {
        "the ratio of the tensor's eigenvalues": math.exp(2 * math.hypot(p[0], p[1])),
        "the cell Peclet number": math.hypot(p[2], p[3]) / subdomain.cells,
        "c": p[4] / subdomain.size**2,
    }


@dataclass(frozen=True)
class FamilySettings:
    """Settings of `FamilyNetwork`."""

    modes: int = 32  # ``K``, of the operators
    width: int = 400  # ``D``, of the trunk
    # hidden, depth: width and number of the hidden layers of the perceptron
    hidden: int = 128
    depth: int = 3

    def __post_init__(self) -> None:
        require_counts("a family network", self)


class FamilyNetwork(Network):
    """A perceptron of the operator, over modes of the operators."""

    Settings = FamilySettings
    linear = True
    symmetry = None
    # trunk, branches: ``(N, D)``, the trunk at interior nodes, and ``(1 + K, D, P)``; the first
    # branch is ``W_0``
    trunk: torch.Tensor
    branches: torch.Tensor
    amplitudes: torch.Tensor  # ``(K,)``, root mean square of each coordinate ``z``
    # centre, reach: ``(5,)``, the range of the perceptron's inputs in training
    centre: torch.Tensor
    reach: torch.Tensor

    def __init__(self, perimeter: int, settings: FamilySettings):
        super().__init__()
        self.settings = settings
        self.cells = perimeter // 4
        nodes = (self.cells - 1) ** 2
        # There are no more directions than nodes.
        width = min(settings.width, nodes)
        self.register_buffer("trunk", torch.zeros(nodes, width))
        self.register_buffer("branches", torch.zeros(1 + settings.modes, width, perimeter))
        self.register_buffer("amplitudes", torch.ones(settings.modes))
        self.register_buffer("centre", torch.zeros(_COORDINATES))
        self.register_buffer("reach", torch.ones(_COORDINATES))
        layers = perceptron(_COORDINATES, settings.hidden, settings.depth, settings.modes)
        self.perceptron = torch.nn.Sequential(*layers)
        self.square = Symmetry(perimeter)

    # Of operators: perimeters are for the network that it makes of one.
    def forward(self, p: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return the coordinates ``z`` of operators, ``(n, K)``, for canonical ``p``, ``(n, 5)``."""
        inputs = (compressed(p) - self.centre) / self.reach
        return self.perceptron(inputs) * self.amplitudes

    @torch.no_grad()
    def at(self, operator: EllipticOperator, subdomain: Subdomain) -> "MatrixNetwork":
        """Return the network for one operator."""
        p = coordinates(operator, subdomain.size)
        element, p = canonical(p)
        z = self(torch.as_tensor(p).to(self.trunk)[None])[0]
        branch = self.branches[0] + torch.einsum("k,kdp->dp", z, self.branches[1:])
        rows = self.trunk @ branch  # (N, P), of the canonical image
        own = [r for r, image in enumerate(images(p)) if np.abs(image - p).max() <= SAME]
        even = functools.reduce(torch.add, (self._transported(rows, r) for r in own)) / len(own)
        return MatrixNetwork(self._transported(even, element), self.cells)

    def _transported(self, rows: torch.Tensor, element: int) -> torch.Tensor:
        """Return the matrix ``A`` with ``A g = (rows R g)`` at the images of the nodes."""
        nodes = interior_images(self.square, self.cells)[element].to(rows.device)
        return rows[nodes][:, self.square.images[element]]


class MatrixNetwork(Network):
    """A network that is one matrix, ``(N, P)`` at inner nodes, with cubic interpolation between them."""

    linear = True
    operator: torch.Tensor

    def __init__(self, rows: torch.Tensor, cells: int):
        super().__init__()
        self.cells = cells
        perimeter = Subdomain(cells=cells).perimeter
        operator = rows.new_zeros(cells + 1, cells + 1, rows.shape[1])
        operator[1:-1, 1:-1] = rows.view(cells - 1, cells - 1, -1)
        edge = torch.as_tensor(perimeter, device=rows.device)
        operator[edge[:, 0], edge[:, 1], torch.arange(len(edge), device=rows.device)] = 1.0
        self.register_buffer("operator", operator)

    def prepare(self, points: torch.Tensor) -> torch.Tensor:
        """Return the matrix ``(Q, P)`` at points ``(Q, 2)`` in ``[-1, 1]``, order (y, x); see `Network.prepare`."""
        if points.ndim == 3:
            return self.prepare(points.flatten(0, 1)).view(*points.shape[:2], -1)
        cells = 0.5 * (points + 1.0) * self.cells
        nodes = cells.round()
        if (cells - nodes).abs().max() <= 1e-4:
            return self.operator[nodes[:, 0].long(), nodes[:, 1].long()]
        (rows, along_y), (columns, along_x) = (_cubic(t, self.cells) for t in cells.T)
        near = self.operator[rows[:, :, None], columns[:, None, :]]  # (Q, 4, 4, P)
        return torch.einsum("qi,qj,qijp->qp", along_y, along_x, near)


def compressed(p: torch.Tensor) -> torch.Tensor:
    """Return coordinates ``(n, 5)`` on scales on which solutions change evenly."""
    return torch.asinh(p / p.new_tensor(_SCALES))


def images(p: np.ndarray) -> np.ndarray:
    """Return the eight images of coordinates, ``(8, 5)``, in the order of `Symmetry`."""
    along, across, bx, by, c = p
    tensor, velocity = np.array([[-along, across], [across, along]]), np.array([by, bx])
    result = []
    for r in Symmetry(8).matrices.numpy().astype(float):
        turned, blown = r @ tensor @ r.T, r @ velocity
        result.append([turned[1, 1], turned[0, 1], blown[1], blown[0], c])
    return np.array(result)


def canonical(p: np.ndarray) -> tuple[int, np.ndarray]:
    """Choose among the images of coordinates: the symmetry that leads there, and the image.

    The one with the largest velocity along x, then along y, then the strongest diffusion along x,
    then the most across.
    """
    every = images(p)
    element = max(range(8), key=lambda r: tuple(np.round(every[r, [2, 3, 0, 1]], 9)))
    return element, every[element]


def interior_images(square: Symmetry, cells: int) -> torch.Tensor:
    """Return the interior node that each goes to, ``(8, N)``."""
    nodes = torch.as_tensor(2 * Subdomain(cells=cells).interior - cells)
    turned = torch.einsum("rij,nj->rni", square.matrices.long().cpu(), nodes)
    places = (turned + cells) // 2 - 1
    return places[..., 0] * (cells - 1) + places[..., 1]


def _cubic(t: torch.Tensor, cells: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return four nodes about each ``t``, ``(Q, 4)``, and the weights of the cubic through them."""
    first = (t.floor().long() - 1).clamp(0, max(0, cells - 3))
    nodes = first[:, None] + torch.arange(4, device=t.device)
    distance = t[:, None] - nodes
    others = [[j for j in range(4) if j != i] for i in range(4)]
    weights = [
        distance[:, every].prod(dim=1) / math.prod(i - j for j in every)
        for i, every in enumerate(others)
    ]
    return nodes, torch.stack(weights, dim=1)


NETWORKS: dict[str, type[Network]] = {
    "linear": LinearNetwork,
    "sdnet": SDNet,
    "sdnet-concat": SDNetConcat,
    "deeponet": DeepONet,
    "mlp": MLP,
    "family": FamilyNetwork,
    "faces": FacesNetwork,
}
# What a network of the user's own may leave out.
_LEFT_OUT = {
    "symmetry": None,
    "symmetric_only": False,
    "between_nodes": True,
    "recompute": None,
    "jet": None,
}


def known_networks() -> list[str]:
    """Return the names of all networks that can be trained."""
    return sorted(NETWORKS)


def network_for(network: Any, operator: EllipticOperator, subdomain: Subdomain) -> Network:
    """Return the network for one operator: generated by a family's, or the network itself."""
    return network.at(operator, subdomain) if isinstance(network, FamilyNetwork) else network


def network_class(name: str) -> type[Network]:
    """Return the class of a name in `NETWORKS`, or of ``module:Class``; errors as `find_class`."""
    if name in NETWORKS:
        return NETWORKS[name]
    if ":" in name:
        return find_class(name)
    refuse_former("network", name)
    raise ValueError(unknown("network", name, known_networks(), ", or your own module:Class"))


def _settings_of(kind: Any, name: str, values: dict) -> Any:
    """Build the settings of a network from plain values; `ValueError` if one is unknown or of another type."""
    known: dict[str, Any] = {field.name: field.type for field in fields(kind.Settings)}
    for key, value in values.items():
        if key not in known:
            raise ValueError(
                f"network {name!r} has no setting {key!r}{meant(key, known)}; known: {', '.join(known)}"
            )
        types = (int, float) if known[key] is float else known[key]
        if not isinstance(value, types) or isinstance(value, bool) != (known[key] is bool):
            raise ValueError(
                f"setting {key!r} of network {name!r} must be {known[key].__name__}, got {value!r}"
            )
    return kind.Settings(**values)


@float32_on_processor()
@torch.random.fork_rng([])  # the generator is the program's
def build_network(name: str, settings: dict, subdomain: Subdomain) -> Network:
    """Build a network with random weights; errors as of its settings, and as `check_behaviour` of the user's own."""
    kind = network_class(name)
    checked = _settings_of(kind, name, settings)
    if subdomain.axes not in getattr(kind, "axes", (2,)):
        able = [n for n, known in NETWORKS.items() if subdomain.axes in known.axes]
        raise ValueError(
            f"the network {name} is not for {subdomain.kind}s of {times(subdomain.shape)} cells; "
            f"for these take {', '.join(able)}"
        )
    network = kind(len(subdomain.perimeter), checked)
    for attribute, value in _LEFT_OUT.items():
        if not hasattr(network, attribute):
            setattr(network, attribute, value)
    if name not in NETWORKS:
        check_behaviour(name, network, subdomain)
    return network


_METHODS = ("forward", "prepare", "apply_prepared")
_allowed: set[str] = set()


def allow(name: str) -> None:
    """Note that the user asked for a network ``module:Class`` by its name."""
    _allowed.add(name)


def find_class(name: str) -> type[Network]:
    """Import ``module:Class``, which the user must have named; `ValueError` if it lacks a part of a network."""
    module_name, _, class_name = name.partition(":")
    if name not in _allowed | set(os.environ.get("MOSAICDD_NETWORKS", "").split(",")):
        raise ValueError(
            f"the network {name} is code outside mosaicdd; if you trust it, set "
            f"MOSAICDD_NETWORKS={name}"
        )
    try:
        network = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, SyntaxError, ValueError) as error:
        raise ValueError(f"network {name} cannot be imported: {error}") from error
    if lacks := _missing(network):
        raise ValueError(f"network {name} lacks {lacks}; docs/networks.md has a whole example")
    return network


def _missing(network: object) -> str:
    """Name the first thing that a class lacks to be a network; empty if nothing."""
    if not (isinstance(network, type) and issubclass(network, torch.nn.Module)):
        return "the base class torch.nn.Module"
    settings = getattr(network, "Settings", None)
    if not (isinstance(settings, type) and dataclasses.is_dataclass(settings)):
        return "a dataclass named Settings"
    if not isinstance(getattr(network, "linear", None), bool):
        return "the attribute linear (True or False)"
    for method in _METHODS:
        if getattr(network, method, None) in (None, getattr(torch.nn.Module, method, None)):
            return f"the method {method}"
    return ""


@torch.no_grad()
def check_behaviour(name: str, network: Network, subdomain: Subdomain) -> None:
    """Raise `ValueError` if a network fails, says wrong things of itself, or its two steps differ from `forward`."""
    axes, perimeter = subdomain.axes, len(subdomain.perimeter)
    points = torch.tensor([[0.1, -0.2, 0.5], [0.3, 0.7, -0.1], [-0.6, -0.4, 0.2]])[:, :axes]
    g = torch.linspace(-1.0, 1.0, 2 * perimeter).view(2, perimeter)
    keeps_settings = isinstance(getattr(network, "settings", None), type(network).Settings)
    if not keeps_settings:
        raise ValueError(f"network {name} must keep its settings as the attribute settings")
    try:
        values = network(g, points)
        steps = network.apply_prepared(g, network.prepare(points))
        copies = network(g, points.expand(2, 3, axes))
    except Exception as error:
        raise ValueError(
            f"network {name} fails on 2 perimeters and 3 points: {type(error).__name__}: {error}"
        ) from error
    for what, result in (("forward", values), ("apply_prepared", steps), ("forward", copies)):
        if tuple(result.shape) != (2, 3):
            raise ValueError(
                f"{what} of network {name} must give (2, 3) values for 2 perimeters and 3 points, "
                f"got {tuple(result.shape)}"
            )
    if not _close(values, steps):
        raise ValueError(f"network {name}: apply_prepared(g, prepare(points)) differs from forward")
    if not _close(values, copies):
        raise ValueError(
            f"network {name}: points (B, Q, {axes}) give other values than points (Q, {axes})"
        )
    if network.linear and not _close(network(2 * g, points), 2 * values):
        raise ValueError(f"network {name} says that it is linear in g, and is not")


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two results are equal but for rounding in float32."""
    return torch.allclose(a, b, rtol=1e-3, atol=1e-5)
