"""The data loss and the PDE loss (Algorithm 1 of the paper), each with its own forward pass.

Both act on the unit remainder of the lifting: its exact solutions have no PDE residual, so the
residual of the remainder is that of the whole. Points are in ``[-1, 1]``, order (y, x).

The PDE loss is continuous, from derivatives of the network; or discrete: the network's values at
interior nodes and the boundary data at edge nodes make a field, to which the equation's stencil is
applied. The discrete solution has no such residual, so it does not pull against discrete labels, and
the boundary data need no term of their own.

The residual of a smooth error is small: of one over ``n`` cells, ``n^-2`` of it. So its mean square
asks for the rough part of a solution first. On the grids of twice, four times, ... the spacing the
same residual, averaged, is 4, 16, ... times larger, and the sum over all of them (multilevel) weighs
errors of all lengths alike, as the preconditioner of Bramble, Pasciak and Xu does.

Shape letters: ``B`` subdomains, ``P = 4 m`` perimeter nodes, ``Q`` points, ``w`` nodes per side of a
window.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mosaicdd.axes import at
from mosaicdd.discretisation.discrete import DirichletSystem
from mosaicdd.grid.grid import Grid
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.networks.trunk import Jet
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.schwarz.local_solvers.lifting import unit_points
from mosaicdd.training.settings import TrainingSettings


@dataclass(frozen=True)
class UnitOperator:
    """``D[u] = sum_k a_k d^2u/dx_k^2 + sum_k b_k du/dx_k + c u`` in coordinates of ``[-1, 1]``."""

    # second, first: ``a`` and ``b`` along (y, x), of a cube along (z, y, x)
    second: tuple[float, ...]
    first: tuple[float, ...] = (0.0, 0.0)
    zeroth: float = 0.0  # ``c``

    @classmethod
    def of(cls, operator: EllipticOperator, subdomain: Subdomain) -> "UnitOperator":
        """Return ``-A``, times the squared half side of a subdomain; a mixed derivative is a `ValueError`."""
        if operator.axy:
            raise ValueError(
                "the continuous residual has no mixed derivatives; train with residual 'discrete' or "
                "'multilevel'"
            )
        half = subdomain.size / 2
        second: tuple[float, ...] = (operator.ayy, operator.axx)
        first: tuple[float, ...] = (-operator.by * half, -operator.bx * half)
        if subdomain.axes != 2:  # the same along all axes
            second, first = second[:1] * subdomain.axes, first[:1] * subdomain.axes
        return cls(second, first, -operator.c * half**2)

    @property
    def second_only(self) -> bool:
        """Whether neither the value nor the gradient enters."""
        return not (self.zeroth or any(self.first))

    def apply(self, jet: Jet) -> torch.Tensor:
        """Return ``D[u]`` for a jet whose ``second`` is ``sum_k a_k d^2u/dx_k^2``."""
        result = jet.second
        if any(self.first) and jet.first is not None:
            for weight, derivative in zip(self.first, jet.first, strict=True):
                result = result + weight * derivative
        if self.zeroth and jet.value is not None:
            result = result + self.zeroth * jet.value
        return result


def data_loss(
    network: torch.nn.Module, g: torch.Tensor, points: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    """Mean squared error of the values ``(B, Q)`` at points ``(Q, 2)``."""
    return torch.nn.functional.mse_loss(network(g, points), target)


def pde_residual(
    network: Any,
    operator: UnitOperator,
    g: torch.Tensor,
    points: torch.Tensor,
    laplacian: str = "taylor",
) -> torch.Tensor:
    """Return the residual ``D[u]``, ``(B, Q)``, at collocation points ``(Q, 2)``.

    ``laplacian``: ``"taylor"``: derivatives carried through the layers, where the network can; ``"autograd"``: by two
    backward passes, as in the paper.
    """
    if laplacian == "taylor" and network.jet is not None:
        return operator.apply(network.jet(g, points, operator.second, operator.second_only))
    return operator.apply(_double_backward(network, operator, g, points))


def _double_backward(
    network: torch.nn.Module, operator: UnitOperator, g: torch.Tensor, points: torch.Tensor
) -> Jet:
    """Differentiate twice by reverse mode, with each subdomain's own copy of the points."""
    copies = points.expand(len(g), *points.shape[-2:]).clone().requires_grad_()  # (B, Q, axes)
    values = network(g, copies)
    (gradient,) = torch.autograd.grad(values.sum(), copies, create_graph=True)
    second = torch.zeros_like(values)
    for k, weight in enumerate(operator.second):
        (again,) = torch.autograd.grad(gradient[..., k].sum(), copies, create_graph=True)
        second = second + weight * again[..., k]
    return Jet(values, gradient.movedim(-1, 0), second)


class CollocationResidual:
    """Residuals of an equation at random points of a subdomain.

    Points of a network that folds them come from one triangle, or wedge, another in each step: it embeds a perimeter
    once for each symmetry that occurs among the points.
    """

    def __init__(self, operator: UnitOperator, network: Any, settings: TrainingSettings):
        self._operator, self._settings = operator, settings
        self._symmetry = None if network.linear else network.symmetry
        self._like = next(network.parameters()).detach().new_empty(0)

    def draw(self, generator: torch.Generator) -> torch.Tensor:
        """Choose the points of a step, ``(Q, axes)``."""
        axes = len(self._operator.second)
        points = 2 * torch.rand(self._settings.collocation, axes, generator=generator) - 1
        points = points.to(self._like)
        if self._symmetry is not None:
            canonical = self._symmetry.fold(points, merge=False).canonical
            matrices = self._symmetry.matrices
            element = int(torch.randint(len(matrices), (), generator=generator))
            points = canonical @ matrices[element].to(canonical)
        return points

    def loss(self, network: Any, g: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        """Return the mean squared residual."""
        laplacian = self._settings.laplacian
        return pde_residual(network, self._operator, g, points, laplacian).square().mean()


class GridResidual:
    """Stencil residuals in windows of a subdomain's interior nodes, squares or cubes.

    Parameters
    ----------
    nodes
        Residuals per step, at most: the window has the next smaller square or cubic number of them;
        0 takes all interior nodes.
    multilevel
        Whether `loss` adds up the residuals of all coarser grids; the window is then all nodes.
    like
        A tensor of the device and type to compute in.
    """

    def __init__(
        self,
        operator: EllipticOperator,
        subdomain: Subdomain,
        nodes: int,
        multilevel: bool,
        like: torch.Tensor,
    ):
        m, axes = subdomain.cells, subdomain.axes
        every = multilevel or nodes == 0
        self.positions = m - 1 if every else min(m - 1, max(1, int(nodes ** (1 / axes) + 1e-9)))
        self._multilevel = multilevel
        hat = torch.tensor([0.25, 0.5, 0.25]).to(like)
        # Full weighting, times 4: the stencil holds the squared spacing.
        hats = [hat.view(at(axis, axes, -1, 1)) for axis in range(axes)]
        self._restriction = 4 * functools.reduce(torch.mul, hats)[None, None]
        self._restrict: Callable[..., torch.Tensor] = (
            torch.nn.functional.conv2d if axes == 2 else torch.nn.functional.conv3d
        )
        self._starts = m - self.positions  # of the window's halo, along an axis
        self._system = DirichletSystem(operator, Grid(subdomain.shape, subdomain.spacing))
        self._cells = m
        number = np.full((m + 1,) * axes, -1)
        number[tuple(subdomain.perimeter.T)] = np.arange(len(subdomain.perimeter))
        self._edge = number
        self._subdomain = subdomain
        self._like = like

    def draw(self, generator: torch.Generator) -> tuple[int, ...]:
        """Choose a window: the lower-left node of its halo."""
        corner = torch.randint(self._starts, (self._subdomain.axes,), generator=generator)
        return tuple(map(int, corner))

    def loss(
        self, network: torch.nn.Module, g: torch.Tensor, corner: tuple[int, ...]
    ) -> torch.Tensor:
        """Return the mean squared residual, or the sum of those of all grids."""
        residual = self.residual(network, g, corner)
        if not self._multilevel:
            return residual.square().mean()
        level = residual[:, None] / (0.5 * self._cells) ** 2  # times the squared spacing
        loss = level.square().mean()
        cells = self._cells
        while cells % 2 == 0 and cells > 2:
            level = self._restrict(level, self._restriction, stride=2)
            loss = loss + level.square().mean()
            cells //= 2
        return loss

    def residual(
        self, network: torch.nn.Module, g: torch.Tensor, corner: tuple[int, ...]
    ) -> torch.Tensor:
        """Return the stencil residuals ``(B, w, w)``, or with an axis more, in coordinates of ``[-1, 1]``."""
        width = self.positions + 2
        shape = (width,) * len(corner)
        nodes = np.indices(shape).reshape(len(corner), -1).T + corner
        edge = self._edge[tuple(nodes.T)]
        inner = np.flatnonzero(edge < 0)
        points = torch.as_tensor(unit_points(nodes[inner], self._subdomain)).to(self._like)
        values = network(g, points)
        # The field's nodes in order, each from the network's values or from the perimeter.
        source = edge + len(inner)
        source[inner] = np.arange(len(inner))
        order = torch.as_tensor(source, device=g.device)
        field = torch.cat([values, g], dim=1)[:, order].view(len(g), *shape)
        applied = self._system.apply(field.movedim(0, -1)) * (0.5 * self._cells) ** 2
        return applied.movedim(-1, 0)


Residual = CollocationResidual | GridResidual


def residual_of(
    network: Any, operator: EllipticOperator, subdomain: Subdomain, settings: TrainingSettings
) -> Residual | None:
    """Return the residuals of the PDE loss that the settings ask for, if they do."""
    if not settings.pde_weight:
        return None
    if settings.residual == "continuous":
        return CollocationResidual(UnitOperator.of(operator, subdomain), network, settings)
    # A linear network is evaluated on all nodes anyway.
    nodes = 0 if network.linear else settings.collocation
    like = next(network.parameters()).detach().new_empty(0)
    return GridResidual(operator, subdomain, nodes, settings.residual == "multilevel", like)


def pass_loss(
    network: Any, settings: TrainingSettings, residual: Residual | None
) -> Callable[[Any], torch.Tensor]:
    """Return the mean loss of a pass: on data, of one without targets by the equation."""

    def loss(part: Any) -> torch.Tensor:
        if part.target is None and residual is not None:
            return settings.pde_weight * residual.loss(network, part.g, part.points)
        bf16 = settings.precision == "bf16"
        with torch.autocast(part.g.device.type, dtype=torch.bfloat16, enabled=bf16):
            return data_loss(network, part.g, part.points, part.target)

    return loss
