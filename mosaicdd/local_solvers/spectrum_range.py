"""The range of boundary data that a network has seen: how rough its perimeters were.

What a network is given is the remainder of the lifting at unit size, so only its shape counts: the
shares of its energy above some frequencies along the perimeter. Training data set limits to them;
a perimeter above one is outside of the training range, and the network's answer there is
extrapolation.
"""

import math
from dataclasses import dataclass
from typing import Self

import torch

from mosaicdd.local_solvers.lifting import Lifting

_PARTS = (16, 8, 4)  # of the perimeter's nodes: wavelengths of 16, 8 and 4 cells
_QUANTILE = 0.999
_FLAT = 1e-3  # remainder over data below which the shape of the remainder does not matter


@dataclass(frozen=True)
class SpectrumRange:
    """Limits for the energy of unit remainders along the perimeter.

    Parameters
    ----------
    frequencies
        Waves around the perimeter.
    shares
        Largest share of the energy at each frequency and above.
    """

    frequencies: tuple[int, ...]
    shares: tuple[float, ...]

    def __post_init__(self):
        if len(self.frequencies) != len(self.shares):
            raise ValueError(
                f"a spectrum range has a share per frequency, got {len(self.shares)} for "
                f"{len(self.frequencies)}"
            )

    @classmethod
    def of_perimeters(cls, g: torch.Tensor, lifting: Lifting) -> Self:
        """Take the range of training perimeters ``(n, P)``: the 99.9 % quantile of each share."""
        frequencies = tuple(g.shape[1] // part for part in _PARTS)
        shares = _shares(lifting.split(g)[0], frequencies)
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
