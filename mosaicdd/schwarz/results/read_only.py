"""Arrays that quantities of a solution are of, as others may see them."""

from typing import Any

import numpy as np


def read_only(array: Any) -> Any:
    """Return a read-only view of an array; a tensor, of which there are no such views, is copied."""
    if not isinstance(array, np.ndarray):
        return array.clone()
    view = array.view()
    view.flags.writeable = False
    return view
