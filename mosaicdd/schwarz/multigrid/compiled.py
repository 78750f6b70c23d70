"""Where compiled loops are: with numba installed, and for contiguous numbers of a processor."""

import logging
from collections.abc import Iterable
from functools import cache
from types import ModuleType

import numpy as np
import torch

logger = logging.getLogger(__name__)


@cache
def kernels() -> ModuleType | None:
    """Return the module of compiled loops; None without numba, and where that is told to compile nothing."""
    try:
        import numba
    except ModuleNotFoundError:
        return None
    except ImportError as error:  # as it asks for another numpy
        logger.warning("loops are not compiled, and take twice as long: %s", error)
        return None
    if numba.config.DISABLE_JIT:
        return None
    from mosaicdd.schwarz.multigrid import kernels

    return kernels


def is_plain(parts: Iterable[tuple[torch.Tensor | None, torch.dtype]]) -> bool:
    """Say whether all that is there is contiguous numbers of the kind beside it, of a processor."""
    for part, dtype in parts:
        if part is None:
            continue
        if part.dtype != dtype or part.device.type != "cpu" or not part.is_contiguous():
            return False
    return True


def arrays_of(*tensors: torch.Tensor) -> list[np.ndarray] | None:
    """Return views of tensors for compiled loops; None where these are not for them."""
    if kernels() is None or not is_plain([(of, of.dtype) for of in tensors]):
        return None
    return [of.numpy() for of in tensors]
