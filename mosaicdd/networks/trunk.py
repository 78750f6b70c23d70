"""Networks of a trunk, a perceptron of the position, which is evaluated once for any number of perimeters.

One is linear in the boundary, ``u(x) = t(x) . W g``: at fixed points it is a matrix ``(Q, P)``. The other is DeepONet
(Lu et al. 2021), ``u(x; g) = b(g) . t(x) + c``, whose branch ``b`` of the perimeter is a perceptron with GELU, too.

Shape letters: ``B`` subdomains, ``P = 4 m`` perimeter nodes, ``Q`` query points, ``D`` width.

Second-order Taylor propagation: values and derivatives carried through each layer together.

For ``A = sum_k a_k d^2/dx_k^2`` the value ``u``, the gradient and ``A u`` of a layer's output follow
from those of its input: a linear layer maps each of them alike, and an activation ``f`` gives

    f(u),    f'(u) d_k u,    f''(u) sum_k a_k (d_k u)^2 + f'(u) A u.

That is one pass with ``2 + K`` streams, where reverse mode over reverse mode builds the graph of a
graph. GELU has its backward pass written out, so nothing but its inputs and two factors is kept.

Shape letters: ``K`` axes (y, x), of cubes (z, y, x), ``Q`` points, ``D`` width; ``...`` are leading axes.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.utils.checkpoint import checkpoint

from mosaicdd.networks.network import FourierFeatures, Network, Symmetry, TrunkSettings

Coefficients = tuple[float, ...]  # ``a_k``: weights of the second derivatives along each axis
Parts = tuple[
    torch.Tensor, torch.Tensor, torch.Tensor
]  # value, gradient and ``A u``, as of a `Jet`


@dataclass(frozen=True)
class Jet:
    """A function's value, gradient and ``A u`` at points."""

    value: torch.Tensor | None  # ``(..., D)``; None where only ``A u`` was asked for
    first: torch.Tensor | None  # the gradient, ``(K, ..., D)``, or None
    second: torch.Tensor  # ``A u``, ``(..., D)``

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> "Jet":
        """Apply a function that is linear, and acts alike on each leading axis, to all parts."""
        value, first = (None if p is None else function(p) for p in (self.value, self.first))
        return Jet(value, first, function(self.second))


def features_jet(
    features: FourierFeatures, points: torch.Tensor, directions: torch.Tensor, a: Coefficients
) -> Parts:
    """Return value, gradient and ``A u`` of Fourier features at points ``(Q, K)``.

    ``directions (K, Q, K)`` are how a point moves with each coordinate, the unit vectors unless folded.
    """
    phase, rates = points @ features.wave_numbers, directions @ features.wave_numbers
    sine, cosine = torch.sin(phase), torch.cos(phase)
    curvature = sum(weight * rate.square() for weight, rate in zip(a, rates, strict=True))
    return (
        torch.cat([points, sine, cosine], dim=-1),
        torch.cat([directions, cosine * rates, -sine * rates], dim=-1),
        torch.cat([torch.zeros_like(points), -sine * curvature, -cosine * curvature], dim=-1),
    )


def unit_directions(points: torch.Tensor) -> torch.Tensor:
    """Return the directions of points that move with their own coordinates, ``(K, Q, K)``."""
    axes = points.shape[1]
    return torch.eye(axes).to(points)[:, None].expand(axes, len(points), axes)


def perceptron_jet(
    layers: Iterable[torch.nn.Module],
    parts: Parts,
    a: Coefficients,
    second_only: bool,
    recompute: bool = False,
) -> Jet:
    """Propagate a jet through alternating GELU and linear layers, from a GELU to a linear one.

    If ``second_only``, only ``A u`` of the result; if ``recompute``, a layer keeps its input only,
    and works anew in the backward pass.
    """
    *hidden, last = _linear(layers)
    streams = _EnteringGelu.apply(*parts, a, second_only and not hidden)
    for layer in hidden:
        only = second_only and layer is hidden[-1]
        if recompute:
            streams = checkpoint(_hidden_layer, streams, layer, a, only, use_reentrant=False)
        else:
            streams = _hidden_layer(streams, layer, a, only)
    return _last_layer(streams, last, second_only)


def trunk_jet(
    layers: Iterable[torch.nn.Module], features: Parts, a: Coefficients, second_only: bool
) -> Jet:
    """Propagate the parts of features ``(Q, F)`` through linear layers with GELU between them."""
    value, first, second = features
    streams = torch.cat([value[None], first, second[None]])
    *hidden, last = _linear(layers)
    for layer in hidden:
        streams = _hidden_layer(streams, layer, a, second_only and layer is hidden[-1])
    return _last_layer(streams, last, second_only)


def _linear(layers: Iterable[torch.nn.Module]) -> list[torch.nn.Linear]:
    return [layer for layer in layers if isinstance(layer, torch.nn.Linear)]


def _last_layer(streams: torch.Tensor, layer: torch.nn.Linear, second_only: bool) -> Jet:
    """Take streams through the last linear layer, apart."""
    out = streams @ layer.weight.T
    if second_only:
        return Jet(None, None, out)
    return Jet(out[0] + layer.bias, out[1:-1], out[-1])


def _hidden_layer(
    streams: torch.Tensor, layer: torch.nn.Linear, a: Coefficients, second_only: bool
) -> torch.Tensor:
    """Propagate streams through a linear layer and GELU."""
    return _LinearGelu.apply(streams, layer.weight, layer.bias, a, second_only)


def _gelu(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ``f(x)``, ``f'(x)`` and the normal density ``p(x)``: ``f'' = p (2 - x^2)``."""
    density = torch.exp(-0.5 * x * x).mul_(1 / math.sqrt(2 * math.pi))
    # torch's own backward pass of GELU is the slope; a third of the time of what is written out.
    slope = torch.ops.aten.gelu_backward(torch.ones_like(x), x)
    return torch.nn.functional.gelu(x), slope, density


def _weighted_squares(first: torch.Tensor, a: Coefficients) -> torch.Tensor:
    """Return ``sum_k a_k (d_k u)^2``."""
    squares = a[0] * first[0].square()
    for weight, derivative in zip(a[1:], first[1:], strict=True):
        squares.addcmul_(derivative, derivative, value=weight)
    return squares


def _forward(
    parts: Parts, a: Coefficients, second_only: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the streams ``(2 + K, ..., D)`` (or ``A u`` alone), ``f'`` and the density."""
    x, first, second = parts
    value, slope, density = _gelu(x)
    curvature = density * (2.0 - x * x)
    squares = _weighted_squares(first, a)
    applied = curvature.mul_(squares).addcmul_(slope, second)
    if second_only:
        return applied, slope, density
    streams = torch.empty((2 + len(a), *applied.shape), dtype=x.dtype, device=x.device)
    streams[0], streams[-1] = value, applied
    torch.mul(slope, first, out=streams[1:-1])
    return streams, slope, density


def _backward(
    ctx: Any, grad: torch.Tensor, parts: Parts, slope: torch.Tensor, density: torch.Tensor
) -> torch.Tensor:
    """Return the gradients of the value, of the first derivatives and of ``A u``, stacked."""
    (x, first, second), a, second_only = parts, ctx.a, ctx.second_only
    outer = grad if second_only else grad[-1]
    square = x * x
    curvature = density * (2.0 - square)
    squares = _weighted_squares(first, a)
    # f''' = p x (x^2 - 4)
    third = (square - 4.0).mul_(x).mul_(density).mul_(squares).addcmul_(curvature, second)
    gradient = torch.empty((2 + len(a), *x.shape), dtype=x.dtype, device=x.device)
    torch.mul(outer, third, out=gradient[0])
    torch.mul(outer, slope, out=gradient[-1])
    pull = outer * curvature
    for k in range(len(a)):
        torch.mul(pull, first[k], out=gradient[1 + k]).mul_(2 * a[k])
    if not second_only:
        gradient[0].addcmul_(grad[0], slope)
        for k in range(len(a)):
            gradient[0].addcmul_(grad[1 + k] * curvature, first[k])
            gradient[1 + k].addcmul_(grad[1 + k], slope)
    return gradient


class _LinearGelu(torch.autograd.Function):
    """A linear layer, whose bias moves the value only, and GELU of streams ``(2 + K, ..., D)``."""

    @staticmethod
    def forward(
        ctx: Any,
        streams: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        a: Coefficients,
        second_only: bool,
    ) -> torch.Tensor:
        entering = (streams.flatten(0, -2) @ weight.T).view(*streams.shape[:-1], -1)
        x = entering[0].add_(bias)
        out, slope, density = _forward((x, entering[1:-1], entering[-1]), a, second_only)
        ctx.save_for_backward(streams, weight, entering, slope, density)
        ctx.a, ctx.second_only = a, second_only
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        streams, weight, entering, slope, density = ctx.saved_tensors
        parts = entering[0], entering[1:-1], entering[-1]
        gradient = _backward(ctx, grad, parts, slope, density)
        rows = gradient.flatten(0, -2)
        before = (rows @ weight).view_as(streams) if ctx.needs_input_grad[0] else None
        bias = gradient[0].flatten(0, -2).sum(0)
        return before, rows.T @ streams.flatten(0, -2), bias, None, None


class _EnteringGelu(torch.autograd.Function):
    """GELU of a jet whose derivatives may lack axes of its value: those are the points' alone."""

    @staticmethod
    def forward(
        ctx: Any,
        value: torch.Tensor,
        first: torch.Tensor,
        second: torch.Tensor,
        a: Coefficients,
        second_only: bool,
    ) -> torch.Tensor:
        out, slope, density = _forward((value, first, second), a, second_only)
        ctx.save_for_backward(value, first, second, slope, density)
        ctx.a, ctx.second_only = a, second_only
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        value, first, second, slope, density = ctx.saved_tensors
        gradient = _backward(ctx, grad, (value, first, second), slope, density)
        return (
            gradient[0],
            torch.stack([gradient[1 + k].sum_to_size(first[k].shape) for k in range(len(first))]),
            gradient[-1].sum_to_size(second.shape),
            None,
            None,
        )


@dataclass(frozen=True)
class LinearSettings(TrunkSettings):
    """Settings of `LinearNetwork`: width is that of the branch, too."""

    sigma: float = 8.0
    # Whether the equation has the symmetries of the square, and the network uses them
    symmetric: bool = True

    network = "a linear network"


class LinearNetwork(Network):
    """Trunk of the position times a branch matrix."""

    Settings = LinearSettings
    linear = True

    def __init__(self, perimeter: int, settings: LinearSettings):
        super().__init__()
        self.settings = settings
        features = FourierFeatures(settings.features, settings.sigma)
        self.trunk = torch.nn.Sequential(features, *settings.layers(features.size))
        scale = (settings.width * perimeter) ** -0.5
        self.branch = torch.nn.Parameter(scale * torch.randn(settings.width, perimeter))
        self.symmetry = Symmetry(perimeter) if settings.symmetric else None

    def prepare(self, points: torch.Tensor) -> torch.Tensor:
        """Return the operator ``(Q, P)`` at points ``(Q, 2)`` in ``[-1, 1]``, order (y, x); see `Network.prepare`."""
        if self.symmetry is None:
            return self.trunk(points) @ self.branch
        fold = self.symmetry.fold(points.reshape(-1, 2), merge=points.ndim == 2)
        rows = self.symmetry.unfold(self.trunk(fold.canonical) @ self.branch, fold)
        return rows.view(*points.shape[:-1], -1)

    def jet(self, g: torch.Tensor, points: torch.Tensor, a: Coefficients, second_only: bool) -> Jet:
        """Return values and derivatives ``(B, Q)`` at points ``(Q, 2)``, as `taylor`.

        Those of the operator, once for the whole batch; its rows are then applied to ``g``.
        """
        features, *layers = self.trunk
        if self.symmetry is None:
            canonical, directions = points, unit_directions(points)
        else:
            canonical, directions, nodes = self.symmetry.locate(points)
        features = cast(FourierFeatures, features)  # the first layer of the trunk
        parts = features_jet(features, canonical, directions, a)
        jet = trunk_jet(layers, parts, a, second_only).map(lambda part: part @ self.branch)
        if self.symmetry is not None:
            jet = jet.map(lambda rows: rows.gather(-1, nodes.expand_as(rows)))
        return jet.map(lambda rows: g @ rows.mT)


class DeepONet(Network):
    """Branch times trunk, of the same width and depth."""

    Settings = TrunkSettings
    linear = False
    symmetry = None

    def __init__(self, perimeter: int, settings: TrunkSettings):
        super().__init__()
        self.settings = settings
        self.features = FourierFeatures(settings.features, settings.sigma)
        self.branch = torch.nn.Sequential(*settings.layers(perimeter))
        self.trunk = torch.nn.Sequential(*settings.layers(self.features.size))
        self.constant = torch.nn.Parameter(torch.zeros(()))

    def prepare(self, points: torch.Tensor) -> torch.Tensor:
        """Return the trunk at points ``(..., Q, 2)``: ``(..., Q, D)``."""
        return self.trunk(self.features(points))

    def apply_prepared(self, g: torch.Tensor, prepared: torch.Tensor) -> torch.Tensor:
        """Return the values ``(B, Q)`` for perimeters ``(B, P)`` at the prepared points."""
        if prepared.ndim == 2:
            return torch.addmm(self.constant, self._branch(g), prepared.T)
        return torch.einsum("bd,bqd->bq", self._branch(g), prepared) + self.constant

    def jet(self, g: torch.Tensor, points: torch.Tensor, a: Coefficients, second_only: bool) -> Jet:
        """Return values and derivatives ``(B, Q)`` at points ``(Q, 2)``, as `taylor`.

        The trunk alone depends on the points: it is differentiated once for the whole batch.
        """
        features = features_jet(self.features, points, unit_directions(points), a)
        coefficients = self._branch(g)
        jet = trunk_jet(self.trunk, features, a, second_only)
        jet = jet.map(lambda part: coefficients @ part.mT)
        if jet.value is None:
            return jet
        return Jet(jet.value + self.constant, jet.first, jet.second)

    def _branch(self, g: torch.Tensor) -> torch.Tensor:
        """Return the branch ``(B, D)``, scaled so that values of order 1 come out."""
        return self.branch(g) / self.settings.width**0.5
