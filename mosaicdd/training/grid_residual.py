"""The residual of the discrete equation on grid outputs of a network (``--residual discrete``).

The network's values at interior nodes and the boundary data at edge nodes make a field; the
equation's stencil is applied to it. The discrete solution has no such residual, so it does not
pull against discrete labels, and the boundary data need no term of their own.

The residual of a smooth error is small: of one over ``n`` cells, ``n^-2`` of it. So its mean square
asks for the rough part of a solution first. On the grids of twice, four times, ... the spacing the
same residual, averaged, is 4, 16, ... times larger, and the sum over all of them
(``--residual multilevel``) weighs errors of all lengths alike, as the preconditioner of Bramble,
Pasciak and Xu does.

Shape letters: ``B`` subdomains, ``P = 4 m`` perimeter nodes, ``w`` nodes per side of a window.
"""

import numpy as np
import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.lifting import unit_points
from mosaicdd.problems.discrete import DirichletSystem
from mosaicdd.problems.equations import Equation


class GridResidual:
    """Stencil residuals in square windows of a subdomain's interior nodes.

    Parameters
    ----------
    nodes
        Residuals per step, at most: the window has the next smaller square number of them; 0 takes
        all interior nodes.
    multilevel
        Whether `loss` adds up the residuals of all coarser grids; the window is then all nodes.
    like
        A tensor of the device and type to compute in.
    """

    def __init__(
        self,
        equation: Equation,
        subdomain: Subdomain,
        nodes: int,
        multilevel: bool,
        like: torch.Tensor,
    ):
        m = subdomain.cells
        every = multilevel or nodes == 0
        self.positions = m - 1 if every else min(m - 1, max(1, int(nodes**0.5)))
        self._multilevel = multilevel
        hat = torch.tensor([0.25, 0.5, 0.25]).to(like)
        # Full weighting, times 4: the stencil holds the squared spacing.
        self._restriction = 4 * torch.outer(hat, hat)[None, None]
        self._starts = m - self.positions  # of the window's halo, along an axis
        self._system = DirichletSystem(equation, (m, m))
        self._cells = m
        number = np.full((m + 1, m + 1), -1)
        number[tuple(subdomain.perimeter.T)] = np.arange(4 * m)
        self._edge = number
        self._subdomain = subdomain
        self._like = like

    def draw(self, generator: torch.Generator) -> tuple[int, int]:
        """Choose a window: the lower-left node of its halo."""
        corner = torch.randint(self._starts, (2,), generator=generator)
        return int(corner[0]), int(corner[1])

    def loss(
        self, network: torch.nn.Module, g: torch.Tensor, corner: tuple[int, int]
    ) -> torch.Tensor:
        """Return the mean squared residual, or the sum of those of all grids."""
        residual = self.residual(network, g, corner)
        if not self._multilevel:
            return residual.square().mean()
        level = residual[:, None] / (0.5 * self._cells) ** 2  # times the squared spacing
        loss = level.square().mean()
        cells = self._cells
        while cells % 2 == 0 and cells > 2:
            level = torch.nn.functional.conv2d(level, self._restriction, stride=2)
            loss = loss + level.square().mean()
            cells //= 2
        return loss

    def residual(
        self, network: torch.nn.Module, g: torch.Tensor, corner: tuple[int, int]
    ) -> torch.Tensor:
        """Return the residuals ``(B, w, w)`` in coordinates of ``[-1, 1]``: second derivatives."""
        width = self.positions + 2
        y, x = np.meshgrid(*(np.arange(start, start + width) for start in corner), indexing="ij")
        nodes = np.stack([y.ravel(), x.ravel()], axis=1)
        edge = self._edge[nodes[:, 0], nodes[:, 1]]
        inner = np.flatnonzero(edge < 0)
        points = torch.as_tensor(unit_points(nodes[inner], self._subdomain)).to(self._like)
        values = network(g, points)
        # The field's nodes in order, each from the network's values or from the perimeter.
        source = edge + len(inner)
        source[inner] = np.arange(len(inner))
        order = torch.as_tensor(source, device=g.device)
        field = torch.cat([values, g], dim=1)[:, order].view(len(g), width, width)
        applied = self._system.apply(field.movedim(0, -1)) * (0.5 * self._cells) ** 2
        return applied.movedim(-1, 0)
