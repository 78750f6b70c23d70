"""Solutions against references: errors, and what the reference cost.

A reference is the name of a method (`mosaicdd.solvers.references`), ``auto`` for the fastest one,
``expr:...`` in x and y (and z), a solution file on the same grid, another solution, or an array or tensor at the nodes of the
solution's field; one with named axes, as `to_xarray` returns, is put in their order.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mosaicdd.axes import crossed, letters
from mosaicdd.problems.fields.expressions import Expression
from mosaicdd.problems.fields.given import real_array, usable
from mosaicdd.report.presented import Presented
from mosaicdd.report.stored import StoredSolution, read, read_all
from mosaicdd.settings import unknown
from mosaicdd.solvers.references import REFERENCES
from mosaicdd.unsupported import Unsupported, refuse_former

Reference = str | PathLike | np.ndarray | torch.Tensor | Presented | list[StoredSolution]


@dataclass(frozen=True)
class Comparison:
    """Differences of a solution from a reference, at all nodes where the solution's field has values.

    Parameters
    ----------
    reference
        Its name.
    mae, max_error
        Mean and largest absolute difference.
    difference_norm, reference_norm
        2-norms of the difference and of the reference, over the nodes.
    seconds
        That it took to compute or read the reference.
    solution_seconds
        That the solve took, without start-up and writing.
    problems
        Of several problems together: the comparison of each.
    """

    reference: str
    mae: float
    max_error: float
    difference_norm: float
    reference_norm: float
    seconds: float
    solution_seconds: float
    problems: tuple["Comparison", ...] = ()

    @property
    def relative_l2(self) -> float:
        """2-norm of the difference relative to that of the reference; NaN for one of zeros."""
        return self.difference_norm / self.reference_norm if self.reference_norm else np.nan

    @property
    def errors(self) -> dict[str, float]:
        """The errors by name."""
        return {name: getattr(self, name) for name in ("mae", "max_error", "relative_l2")}


def compare(solution: Presented | str | PathLike, reference: Reference = "pyamg") -> Comparison:
    """Compare a solution, or that of a file, with a reference (`Presented.compare`)."""
    if isinstance(solution, (str, PathLike)):
        return compare_all(read_all(solution), reference)
    if not hasattr(solution, "compare"):
        raise TypeError(
            f"solution must be a solution, or the path of its file, got {type(solution).__name__}"
        )
    return solution.compare(reference)


def _compared(solution: StoredSolution, reference: Reference) -> Comparison:
    truth, name, seconds = _timed(reference, solution)
    difference = np.abs(np.asarray(solution.field) - truth)
    inside = solution.inside
    if inside is not None:
        difference, truth = difference[inside], truth[inside]
    return Comparison(
        reference=name,
        mae=float(difference.mean()),
        max_error=float(difference.max()),
        difference_norm=float(np.linalg.norm(difference)),
        reference_norm=float(np.linalg.norm(truth)),
        seconds=seconds,
        solution_seconds=solution.seconds,
    )


def compare_all(solutions: Iterable[StoredSolution], reference: Reference = "pyamg") -> Comparison:
    """Compare the solutions of problems that were solved together; errors, over all their nodes, as `reference_field`."""
    if hasattr(reference, "each"):
        reference = reference.each()  # once for all problems
    each = tuple(_compared(solution, reference) for solution in solutions)
    if len(each) == 1:
        return each[0]
    return Comparison(
        reference=each[0].reference,
        mae=float(np.mean([comparison.mae for comparison in each])),
        max_error=float(np.max([comparison.max_error for comparison in each])),
        difference_norm=float(np.linalg.norm([comparison.difference_norm for comparison in each])),
        reference_norm=float(np.linalg.norm([comparison.reference_norm for comparison in each])),
        seconds=sum(comparison.seconds for comparison in each),
        solution_seconds=each[0].solution_seconds,
        problems=each,
    )


def reference_field(reference: Reference, solution: StoredSolution) -> tuple[np.ndarray, str]:
    """Return a reference at the nodes of a solution's field, and its name.

    Parameters
    ----------
    reference
        Of a file, a solution or an array of several problems, the one of the solution's number
        counts.

    Raises
    ------
    TypeError
        If it is nothing of what a reference can be.
    ValueError
        If an expression is not allowed, it or an array is not finite on the grid, an array is of
        another shape, the grids differ, or the other solution does not hold all of the nodes.
    """
    return _timed(reference, solution)[:2]


def _timed(reference: Reference, solution: StoredSolution) -> tuple[np.ndarray, str, float]:
    """Return a reference, its name, and the seconds that it took."""
    if isinstance(reference, (str, PathLike)):
        reference = available(str(reference), solution)
    start = time.perf_counter()
    field, name = _found(reference, solution)
    return field, name, time.perf_counter() - start


def _found(reference: Reference, solution: StoredSolution) -> tuple[np.ndarray, str]:
    """Return a reference, and its name."""
    if isinstance(reference, torch.Tensor):
        reference = reference.detach()
    if isinstance(reference, (np.ndarray, torch.Tensor)) or hasattr(reference, "dims"):
        return _checked(reference, solution), "reference"
    if hasattr(reference, "each"):
        reference = reference.each()
    if isinstance(reference, list) and all(isinstance(item, StoredSolution) for item in reference):
        return _of_several(reference, solution)
    if not isinstance(reference, str):
        raise TypeError(
            "a reference is a method's name, 'expr:...', a path, a solution or an array, got "
            f"{type(reference).__name__}"
        )
    if reference in REFERENCES:
        return REFERENCES[reference](solution.problem)[solution.window.place], reference
    if reference.startswith("expr:"):
        text = reference.removeprefix("expr:")
        return _evaluated(text, solution), text
    if "." not in reference and not Path(reference).exists():
        refuse_former("reference", reference)
        raise ValueError(
            unknown("reference", reference, known_references(), ", 'expr:...' and solution files")
        )
    return _read(reference, solution)


def known_references() -> tuple[str, ...]:
    """Return the names of all methods that an answer is compared with."""
    return (*REFERENCES, "auto")


def available(reference: str, solution: StoredSolution) -> str:
    """Return the method that a name stands for, for a solution; what is no name as it is.

    Methods are `Unsupported` for equations in time.
    """
    if solution.times is not None and reference in known_references():
        raise Unsupported(
            f"the reference {reference} solves equations without time; compare a series with 'expr:...' in "
            "x, y and t, or with another series"
        )
    return fastest_reference(solution) if reference == "auto" else reference


def fastest_reference(solution: StoredSolution) -> str:
    """Return ``dst`` where a sine transform solves the equation, else ``pyamg``.

    In media and with natural sides it is ``direct``, but in space, where factors have too many numbers.
    """
    operator = solution.problem.operator
    if not operator.constant or not solution.problem.plain:
        return "direct" if len(solution.grid.shape) == 2 else "pyamg"
    return "dst" if operator.reflective else "pyamg"


def _checked(labelled: Any, solution: StoredSolution) -> np.ndarray:
    """Return an array, a tensor or an array with names as one of the nodes of a solution's field."""
    if "time" in getattr(labelled, "dims", ()) and solution.time is not None:
        number = _of_time(
            np.asarray(labelled.coords["time"], float), solution.time, "the reference"
        )
        labelled = labelled.isel(time=number)
    labelled = usable(labelled, "the reference")
    for axis, name in enumerate(letters(len(solution.grid.shape))):
        along = labelled.coords[name] if name in getattr(labelled, "coords", ()) else None
        places = solution.coordinates(axis)
        if along is None or len(along) != len(places):
            continue
        off = abs(np.asarray(along, float) - places)
        if off.max() > 2e-3 * solution.grid.steps[axis] + 4 * np.spacing(abs(places)).max():
            raise ValueError(
                f"the reference has coordinates from {float(along[0]):.10g} to {float(along[-1]):.10g} along {name}, the "
                f"solution from {places[0]:.10g} to {places[-1]:.10g}; they must be equal, or give its values alone"
            )
    reference = real_array(labelled, "the reference")
    several = (solution.problems, *solution.window.shape)
    if reference.shape == several and "time" not in getattr(labelled, "dims", ()):
        reference = reference[solution.number]
    if reference.shape != solution.window.shape:
        raise ValueError(
            f"the reference has the shape {reference.shape}, the solution's field "
            f"{solution.window.shape}; they must be equal"
        )
    return _finite(reference, "the reference", solution)


def _finite(field: np.ndarray, name: str, solution: StoredSolution) -> np.ndarray:
    """Check a reference at the nodes where the solution has values; at others it becomes NaN."""
    inside = solution.inside
    known = field if inside is None else field[inside]
    if count := int((~np.isfinite(known)).sum()):
        raise ValueError(f"{name} is not finite at {count} of {known.size} nodes")
    return field if inside is None else np.where(inside, field, np.nan)


def _evaluated(text: str, solution: StoredSolution) -> np.ndarray:
    t, names = solution.time, letters(len(solution.grid.shape))
    variables = (*reversed(names), "pi")
    expression = Expression(text, variables, **({} if t is None else {"t": t}))
    places = crossed(*map(solution.coordinates, range(len(names))))
    field = expression(**dict(zip(names, places, strict=True)))
    return _finite(field, f"expression {text!r}", solution)


def _read(path: str, solution: StoredSolution) -> tuple[np.ndarray, str]:
    other = read(path)
    if other.problems > 1:
        other = read(path, solution.number)
    if other.times is not None and solution.time is not None:
        number = _of_time(other.times, solution.time, path)
        other = read(path, other.number, frame=number)
    return _of_solution(other, path, solution)


def _of_time(times: np.ndarray, time_of_field: float, name: str) -> int:
    """Return which field of a series is that of a time; raise `ValueError` if none is."""
    nearest = int(np.argmin(np.abs(times - time_of_field)))
    if not np.isclose(times[nearest], time_of_field, rtol=1e-9, atol=0):
        raise ValueError(f"{name} holds no field of time {time_of_field:g}")
    return nearest


def _of_several(others: list[StoredSolution], solution: StoredSolution) -> tuple[np.ndarray, str]:
    if len(others) not in (1, solution.problems):
        raise ValueError(
            f"the reference has {len(others)} problems, the solution {solution.problems}; they must "
            "be equal"
        )
    other = others[0] if len(others) == 1 else others[solution.number]
    return _of_solution(other, "the reference", solution)


def _of_solution(
    other: StoredSolution, name: str, solution: StoredSolution
) -> tuple[np.ndarray, str]:
    """Return another solution's field at the nodes of a solution, and what solved it or its name."""
    if other.grid != solution.grid:
        raise ValueError(
            f"{name} has {other.grid}, the solution {solution.grid}; they must be equal"
        )
    if other.window.clip(solution.window.place) != solution.window.place:
        raise ValueError(
            f"{name} holds another window of the domain, not all of the solution's nodes"
        )
    field = other.field[other.window.within(solution.window.place)]
    return _finite(field, name, solution), other.attributes.get("local_solver", name)
