"""Arrays in files of numpy's, ``.npy``."""

from pathlib import Path
from typing import Literal

import numpy as np


def npy_array(path: Path, mmap_mode: Literal["r"] | None = None) -> np.ndarray:
    """Read an array, or map it into memory; objects are refused.

    Raises
    ------
    ValueError
        If the file is no such array, or cut short.
    """
    with path.open("rb") as file:
        begins = file.read(len(np.lib.format.MAGIC_PREFIX))
    if begins != np.lib.format.MAGIC_PREFIX:  # of which numpy would say that it may be a pickle
        raise ValueError(f"{path}: not an array of numpy's: it begins with {begins!r}")
    try:
        return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: not an array of numpy's ({error})") from error
