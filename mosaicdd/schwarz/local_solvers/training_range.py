"""The range of boundary data that a network has seen, and what is done outside of it.

What a network is given is the remainder of the lifting at unit size, so only its shape counts: the
shares of its energy above some frequencies along the perimeter, how rough it is. Training data set
limits to them; a perimeter above one is outside of the training range, and the network's answer there
is extrapolation. Such subdomains are counted, or handed to the exact local solver.
"""

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, Unpack

import numpy as np
import torch

from mosaicdd.schwarz.block import Block
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.local_solvers.bound import OutsideRange, Plan, SharedSolver
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.local_solvers.lifting import Lifting
from mosaicdd.schwarz.transfer import Transfer, batch_shape, batches
from mosaicdd.tensors import Tensors

if TYPE_CHECKING:
    from mosaicdd.schwarz.local_solvers.network_solver import NetworkSolver


_PARTS = (16, 8, 4)  # of the perimeter's nodes: wavelengths of 16, 8 and 4 cells


_QUANTILE = 0.999  # so that single draws do not widen the range


_FLAT = 1e-3  # remainder over data below which the shape of the remainder does not matter


@dataclass(frozen=True)
class SpectrumRange:
    """Limits for the energy of unit remainders along the perimeter."""

    frequencies: tuple[int, ...]  # waves around the perimeter
    shares: tuple[float, ...]  # largest share of the energy at each frequency and above

    def __post_init__(self) -> None:
        if len(self.frequencies) != len(self.shares):
            raise ValueError(
                f"a spectrum range has a share per frequency, got {len(self.shares)} for "
                f"{len(self.frequencies)}"
            )

    @classmethod
    def of_remainders(cls, remainder: torch.Tensor) -> Self:
        """Take the range of unit remainders ``(n, P)``: the 99.9 % quantile of each share."""
        frequencies = tuple(remainder.shape[1] // part for part in _PARTS)
        shares = _shares(remainder, frequencies)
        limits = torch.quantile(shares, _QUANTILE, dim=0)
        return cls(frequencies, tuple(limits.tolist()))

    def outside(self, g: torch.Tensor, lifting: Lifting) -> torch.Tensor:
        """Say which perimeters ``(B, P)`` are outside: ``(B,)`` booleans.

        Perimeters that the lifting alone describes are inside, whatever is left of them.
        """
        remainder, _ = lifting.remove(g)
        norm = torch.linalg.vector_norm(remainder, dim=1)
        suspect = ~self._smooth(remainder, norm)
        if suspect.any():
            largest = g[suspect].abs().amax(dim=1)
            suspect[suspect.clone()] = norm[suspect] > _FLAT * math.sqrt(g.shape[1]) * largest
        if suspect.any():
            unit = remainder[suspect] / norm[suspect, None]
            limits = torch.tensor(self.shares, device=g.device, dtype=g.dtype)
            suspect[suspect.clone()] = (_shares(unit, self.frequencies) > limits).any(dim=1)
        return suspect

    def _smooth(self, remainder: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
        """Say which remainders are inside to go by the steps between their nodes alone.

        Waves of frequency ``k`` have ``4 sin(pi k / P)**2`` times their energy in their steps, so what
        lies at ``k`` and above has at most that part of the energy of all steps.
        """
        nodes = remainder.shape[1]
        ends = remainder[:, 0] - remainder[:, -1]
        steps = torch.linalg.vector_norm(torch.diff(remainder, dim=1), dim=1).hypot(ends)
        bound = min(
            4 * math.sin(math.pi * k / nodes) ** 2 * share
            for k, share in zip(self.frequencies, self.shares, strict=True)
        )
        return steps <= math.sqrt(bound) * norm


def _shares(remainder: torch.Tensor, frequencies: tuple[int, ...]) -> torch.Tensor:
    """Return the shares of the energy at each frequency and above: ``(B, len(frequencies))``."""
    squares = torch.view_as_real(torch.fft.rfft(remainder, dim=1)).flatten(1).square_()
    waves = torch.arange(squares.shape[1], device=squares.device) // 2  # real, imaginary
    first = torch.tensor((0, *frequencies), device=squares.device)
    sums = squares @ (waves[:, None] >= first).to(squares.dtype)
    total = sums[:, :1]
    return sums[:, 1:] / torch.where(total > 0, total, 1.0)


class GuardedSolver(SharedSolver):
    """Solve by a network where it was trained, as its card must say, exactly elsewhere.

    Which of the two depends on the perimeter values, so the map is not linear.
    """

    linear = False

    def __init__(self, network_solver: "NetworkSolver"):
        if network_solver.training_range is None:
            raise ValueError(
                f"the card of {network_solver.name} states no range of boundary data: leave out "
                "out_of_range='exact'"
            )
        self.name = network_solver.name
        self.operator = network_solver.operator
        self.subdomain = network_solver.subdomain
        self.source = network_solver.source
        self.training_range = network_solver.training_range
        self._network_solver = network_solver
        self._exact = ExactSolver(self.operator, self.subdomain)

    def plan(
        self, points: np.ndarray, *, weights: np.ndarray | None = None, **tensors: Unpack[Tensors]
    ) -> Plan:
        """Prepare both solves for grid nodes ``points``, ``(Q, 2)`` integers in cells."""
        network = self._network_solver.plan(points, weights=weights, **tensors)
        exact = self._exact.plan(points, weights=weights, **tensors)
        outside_of = self.outside_range(**tensors)

        def plan(g: torch.Tensor, out: torch.Tensor) -> None:
            network(g, out)
            outside = outside_of(g)
            if outside.any():
                corrected = torch.empty(int(outside.sum()), out.shape[1], **tensors)
                exact(g[outside], corrected)
                out[outside] = corrected

        return plan

    def outside_range(self, **tensors: Unpack[Tensors]) -> OutsideRange:
        """Return what tells perimeters outside of the network's training range."""
        lifting = self._network_solver.lifting(**tensors)
        return functools.partial(self.training_range.outside, lifting=lifting)


_BATCH = {"cpu": 1024, "cuda": 65_536}  # on a processor, a cache holds what is made on the way


def subdomains_outside(
    v: Interface, block: Block, outside: OutsideRange, batch_subdomains: int
) -> torch.Tensor:
    """Return booleans per owned subdomain, ``(n, *block.subdomains)``, looked at in batches of at most so many."""
    transfer = Transfer(block, device=v.flat.device, dtype=v.flat.dtype)
    shape = v.problems, *block.region_subdomains
    result = torch.zeros(shape, dtype=torch.bool, device=v.flat.device)
    largest = min(batch_subdomains, _BATCH[v.flat.device.type]) // v.problems
    for batch in batches(block.ring(0), max(1, largest)):
        rows, columns = batch_shape(batch)
        perimeters = v.flat.new_empty(v.problems * rows * columns, 4 * transfer.m)
        transfer.restrict(v, batch, perimeters)
        result[:, *batch] = outside(perimeters).view(-1, rows, columns)
    return result[:, *block.ring(0)]
