"""Which modes of lattice edges are worth an unknown: those that a channel takes far away.

A mode alone on its edge, zero on all others, has an energy. Where the elements on both sides are free to
follow, it has less: little, where what conducts on the edge goes on through the elements to their other
sides. Such a mode reaches further than a star, and only the coarse space can correct it. Where most of the
energy is left, the mode ends nearby, and the stars see it.

The elements follow in their own hats and modes, so that all is known from their coarse matrices. Measured on
layers of SPE10, 256 to 4096 cells a side: 4, 6, 7, 8, 8 iterations, where as many modes with the least
eigenvalues take 5, 7, 9, 10, 10.

Shape letters: ``K`` operators of elements, ``M`` modes of an edge.
"""

import numpy as np
import torch

from mosaicdd.lattice.axes import even

# Of the energy, up to which a mode is worth an unknown: measured as `_MODES` of `coarse_basis`.
_LEFT = 0.68
_AT_ONCE = 2048  # operators, for memory
_TINY = 1e-8  # by which a constant, which has no energy, may not be singular


def far_modes(products: torch.Tensor, operators: np.ndarray) -> list[np.ndarray]:
    """Return which modes of a region's edges reach far, and all first ones, per axis ``(lines, cells, M)``.

    Right on lines with elements of the region on both sides.

    Parameters
    ----------
    products
        ``P^T S P`` of elements, symmetric, ``(K, 4 + 4 M, 4 + 4 M)``.
    operators
        Which of them each element of the region has, ``(rows, columns)``.
    """
    parts = even(len(products), _AT_ONCE)
    energies = torch.cat([_energies(products[part]) for part in parts]).cpu().numpy()
    bottom, right, top, left = np.moveaxis(energies[operators], 2, 0)
    modes = []
    for low, high in ((bottom, top), (left.swapaxes(0, 1), right.swapaxes(0, 1))):
        rows, *rest = low.shape
        alone, free = np.moveaxis(np.zeros((rows + 1, *rest)), 2, 0)
        for lines, side in ((slice(None, -1), low), (slice(1, None), high)):
            alone[lines] += side[:, :, 0]
            free[lines] += side[:, :, 1]
        far = free < _LEFT * alone
        far[..., 0] = alone[..., 0] > 0
        modes.append(far)
    return modes


def _energies(products: torch.Tensor) -> torch.Tensor:
    """Return the energies of the modes on all sides, alone and where all else is free, ``(K, 4, 2, M)``."""
    modes = products.shape[1] // 4 - 1
    alone = products.diagonal(dim1=1, dim2=2)
    scale = torch.where(alone > 0, alone.clamp(min=0).rsqrt(), 0.0)
    scaled = products * scale[:, :, None] * scale[:, None]
    scaled.diagonal(dim1=1, dim2=2).fill_(1 + _TINY)
    left = torch.linalg.inv(scaled).diagonal(dim1=1, dim2=2).reciprocal()
    both = torch.stack([alone, left * alone], dim=1)[..., 4:]
    return both.unflatten(2, (4, modes)).transpose(1, 2)
