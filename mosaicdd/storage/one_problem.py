"""One problem of a solution file that holds several: what `many_solutions` writes."""

import h5py
import numpy as np


class OneProblem:
    """Reads the arrays of one problem; in the file of a single one they have no axis for it.

    Raises
    ------
    ValueError
        If the file has no such problem.
    """

    def __init__(self, file: h5py.File, problem: int):
        solution = file["solution"]
        self.filename = file.filename
        self.problems = len(solution) if solution.ndim == 3 else 1
        if not 0 <= problem < self.problems:
            held = "one problem" if self.problems == 1 else f"problems 0 to {self.problems - 1}"
            raise ValueError(f"{file.filename} holds {held}, not number {problem}")
        self._file = file
        self._at = problem if solution.ndim == 3 else ()

    def array(self, name: str) -> np.ndarray:
        """Return an array; of histories as much as belongs to this problem."""
        values = self._file[name][self._at]
        if name.startswith("history/") and self._at != ():
            return values[: int(self._file["problems/iterations"][self._at])]
        return values

    def results(self) -> dict:
        """Return the results that differ between problems, by the names of the attributes."""
        if self._at == ():
            return {}
        group = self._file["problems"]
        values = {name: group[name][self._at] for name in group}
        return {
            name: value.decode() if isinstance(value, bytes) else value.item()
            for name, value in values.items()
        }
