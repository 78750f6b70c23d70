"""What a network of corrections sees of squares of a nonlinear equation, and what it is to say."""

import torch

from mosaicdd.local_solvers.networks.correction import CorrectionNetwork
from mosaicdd.local_solvers.networks.unrolled import UnrolledNetwork
from mosaicdd.local_solvers.nonlinear.square_newton import SquareNewton
from mosaicdd.storage.samples import SquareDataset
from mosaicdd.training.squares import learnable_equation, linear_reaction, place

_BATCH = 2048  # squares that are solved at once: 18 MB of 32 cells


class SquareSamples:
    """Of some squares, all of them solved or none; on the processor, in float32.

    Attributes
    ----------
    g, w
        Perimeters, and what the network sees of the source's effect, ``(n, P)`` and ``(n, K)``.
    sigma
        The linear reaction, lengths in sides of the square, ``(n, 1)``.
    linear
        The linear equation's solutions on the centre lines, ``(n, Q)``.
    labels, values
        Corrections and solutions there, if they are solved, ``(n, Q)``; else without rows.
    """

    def __init__(self, squares: SquareDataset, network: CorrectionNetwork | UnrolledNetwork):
        pde = learnable_equation(squares.pde)
        m, h = squares.subdomain.cells, squares.subdomain.spacing
        newton = SquareNewton(pde.operator({}), m, h, torch.device("cpu"))
        reaction = linear_reaction(pde, squares.parameters)
        at, count = network.outputs.T, len(reaction)
        sight = torch.from_numpy(network.sight)
        self.g = torch.from_numpy(squares.boundary).float().clone()  # the lesson changes it
        self.w = torch.zeros(count, sight.shape[1])
        linear = torch.zeros(count, at.shape[1], dtype=torch.float64)
        for start in range(0, count, _BATCH):
            part = slice(start, start + _BATCH)
            f = torch.from_numpy(squares.source[part]).double()[:, 1:-1, 1:-1]
            u = torch.zeros(len(f), m + 1, m + 1, dtype=torch.float64)
            newton.linear(u, f, reaction[part])
            self.w[part] = (u[:, 1:-1, 1:-1].flatten(1) @ sight).float()
            place(torch.from_numpy(squares.boundary[part]).double(), u)
            newton.linear(u, f, reaction[part])
            linear[part] = u[:, *at]
        self.values = torch.from_numpy(squares.solution[:, *at])
        self.labels = (self.values - linear[squares.unsolved :]).float()
        self.linear = linear.float()
        self.sigma = (reaction * squares.subdomain.size**2).float()[:, None]
