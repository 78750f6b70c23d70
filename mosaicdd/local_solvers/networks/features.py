"""Fourier features of a position: coordinates together with sines and cosines of random waves."""

import torch


class FourierFeatures(torch.nn.Module):
    """Map points ``(..., 2)`` in ``[-1, 1]`` to ``(..., 2 + 2 count)``.

    Parameters
    ----------
    count
        Number of random waves; 0 leaves the coordinates alone.
    sigma
        Standard deviation of their wave numbers, in radians per half side.
    """

    wave_numbers: torch.Tensor

    def __init__(self, count: int, sigma: float):
        super().__init__()
        self.size = 2 + 2 * count
        self.register_buffer("wave_numbers", sigma * torch.randn(2, count))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Return coordinates, sines and cosines."""
        phase = points @ self.wave_numbers
        return torch.cat([points, torch.sin(phase), torch.cos(phase)], dim=-1)
