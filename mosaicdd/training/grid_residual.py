"""The residual of the discrete equation on grid outputs of a network (``--residual discrete``).

The network's values at interior nodes and the boundary data at edge nodes make a field; the
equation's stencil is applied to it. The discrete solution has no such residual, so it does not
pull against discrete labels, and the boundary data need no term of their own.

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
        Residuals per step, at least: the window has the next smaller square number of them. A
        network that is linear is evaluated on all nodes anyway: then the window is all of them.
    """

    def __init__(
        self, equation: Equation, subdomain: Subdomain, nodes: int, linear: bool, like: torch.Tensor
    ):
        m = subdomain.cells
        self.positions = m - 1 if linear else min(m - 1, max(1, int(nodes**0.5)))
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

    def __call__(
        self, network: torch.nn.Module, g: torch.Tensor, corner: tuple[int, int]
    ) -> torch.Tensor:
        """Return the residuals ``(B, w^2)`` in coordinates of ``[-1, 1]``, as a second derivative."""
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
        return applied.movedim(-1, 0).flatten(1)
