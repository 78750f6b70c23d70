"""Where an earlier run stopped, as its checkpoint tells."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mosaicdd.schwarz.results.report import Result
from mosaicdd.schwarz.stopping import History
from mosaicdd.storage.checkpoint_file import read_rows


@dataclass(frozen=True)
class Begin:
    """Where problems that had been begun stopped; see `SolveOptions`."""

    start: Any
    histories: list[History]
    statuses: list[str | None]

    @property
    def so_far(self) -> dict[str, Any]:
        """How the iterations had gone, as options of a solve."""
        return {"histories": self.histories, "statuses": self.statuses}


@dataclass(frozen=True)
class Earlier:
    """Where an earlier run stopped.

    Parameters
    ----------
    results
        Of the problems that had ended.
    ended, begun
        The files that hold these, and those that were at work.
    statuses
        Of the latter, where problems that are solved at once had ended.
    """

    results: dict[int, Result]
    ended: dict[int, Path]
    begun: dict[int, Path]
    statuses: dict[int, str | None]

    def rows(self) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Yield what a solution file is to have of the problems that had ended."""
        for number, path in self.ended.items():
            yield number, read_rows(path, number)


def stacked(fields: Mapping[int, np.ndarray | None], count: int) -> torch.Tensor | None:
    """Return fields of some of so many problems, zero of the others; None where they are left open."""
    known = [field for field in fields.values() if field is not None]
    if not known:
        return None
    stacked = np.zeros((count, *known[0].shape))
    for i, field in fields.items():
        stacked[i] = field
    return torch.from_numpy(stacked)
