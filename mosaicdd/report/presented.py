"""How a solution shows itself, in memory or in a file: compared, drawn, labelled, in a notebook."""

import base64
import html
import io
import sys
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from mosaicdd.lattice.axes import letters
from mosaicdd.lattice.points import as_points, interpolate, interpolate_within, on_grid
from mosaicdd.lattice.window import Window
from mosaicdd.problems.quantities.balance import Balance, balance_until
from mosaicdd.problems.quantities.held_field import alone
from mosaicdd.problems.quantities.quantified import Quantified
from mosaicdd.problems.quantities.quantities import Ask, Quantities
from mosaicdd.report.comparison import Comparison, Reference, compare_all, reference_field
from mosaicdd.storage.solution_file import StoredSolution, read_solution, read_solutions
from mosaicdd.torch_defaults import on_processor
from mosaicdd.unsupported import Unsupported

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

    from mosaicdd.report.sections import Plane

_DPI = 60  # of the picture in a notebook


class Presented:
    """What solutions in memory and in files have in common for people.

    All of it is made of `each`.
    """

    def each(self) -> list[StoredSolution]:
        """Return the solution of each problem, with everything that is known of it."""
        raise NotImplementedError

    def compare(self, reference: Reference = "pyamg") -> Comparison:
        """Compare with a reference: its method's name, ``expr:...``, a file, a solution or an array.

        Of several problems, errors are those over the nodes of all of them.
        """
        return compare_all(self.each(), reference)

    def plot(
        self,
        path: str | PathLike | None = None,
        *,
        reference: Reference | None = None,
        number: int = 0,
        planes: Sequence["Plane"] = (),
    ) -> "Figure":
        """Draw the field, its estimated error and the history; and a reference and the difference.

        Parameters
        ----------
        path
            Picture to write, too.
        number
            Which of several problems.
        planes
            Of a box: those to draw, as ``[("z", 0.5)]``, each by its nearest nodes; by default those in the middle.

        Raises
        ------
        ModuleNotFoundError
            If matplotlib is not installed.
        ValueError
            If a plane is beside the field.
        """
        solution = self.each()[number]
        against = () if reference is None else reference_field(reference, solution)
        drawing = _figures().figure(solution, *against, planes=planes)
        if path is not None:
            from mosaicdd.report.curves import save_figure

            save_figure(drawing, Path(path))
        _show_in_notebook(drawing)
        return drawing

    def to_xarray(self) -> "xarray.DataArray":
        """Return the field with its coordinates and what is known of it; all fields of a series.

        Raises
        ------
        ModuleNotFoundError
            If xarray is not installed.
        """
        solutions = self.each()
        first, several = solutions[0], len(solutions) > 1
        fields = [np.asarray(solution.field) for solution in solutions]
        leading: list[tuple[str, np.ndarray | None]] = []
        if first.times is not None:
            fields, leading = [first.series()], [("time", first.times)]
        elif several:
            fields, leading = [np.stack(fields)], [("problem", None)]
        along = map(first.coordinates, range(len(first.grid.shape)))
        return labelled(fields[0], tuple(along), first.attributes, leading)

    def _repr_html_(self) -> str:
        solution = self._first()
        known = solution.attributes
        cells = map(str, known.get("grid", solution.grid.shape[::-1]))
        rows = {
            "equation": known.get("pde", "unknown"),
            "grid": f"{' x '.join(cells)} cells",
            "local solver": known.get("local_solver", "unknown"),
            "status": solution.status,
            "iterations": len(solution.history.get("update", ())),
            "estimated error": f"{solution.error_estimate:.1e}"
            if solution.error_estimate is not None
            else "unknown",
            "seconds": f"{solution.seconds:.2f}",
        }
        if solution.problems > 1:
            rows = {"problem": f"{solution.number} of {solution.problems}"} | rows
        lines = "".join(
            f"<tr><th style='text-align:left'>{name}</th>"
            f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
            for name, value in rows.items()
        )
        return f"<div><table>{lines}</table>{self._picture()}</div>"

    def _first(self) -> StoredSolution:
        """Return the solution of the first problem; of its arrays maybe none."""
        return self.each()[0]

    def _picture(self) -> str:
        """Return the figure as an image, nothing without matplotlib."""
        try:
            drawing = _figures().figure(self.each()[0], dpi=_DPI)
        except ModuleNotFoundError:
            return ""
        return f"<img alt='solution' src='data:image/png;base64,{base64.b64encode(_png(drawing)).decode()}'>"


class OpenedSolution(Quantified, Presented, StoredSolution):
    """One problem of a solution file, as `read` gives it."""

    def __repr__(self) -> str:
        cells = "x".join(map(str, self.attributes.get("grid", self.grid.shape[::-1])))
        which = f"problem {self.number} of {self.problems}, " if self.problems > 1 else ""
        if self.times is not None:
            which += f"time {self.time:g}, number {self.frame} of {len(self.times)}, "
        return (
            f"<solution of {self.attributes.get('pde', 'unknown')} on {cells} cells in "
            f"{self.path}: {which}{self.status or 'unknown status'}>"
        )

    def each(self) -> list[StoredSolution]:
        """Return the solution itself."""
        return [self]

    def balance(self) -> Balance:
        """Return the `Balance`; of a series that of all steps up to the field, as `Series.balance` has it."""
        known = None if self.times is None else balance_until(self.time, self.history)
        if known is None:
            return super().balance()
        of_all = self.attributes.get("balance") or {
            "flows": known.flows
        }  # in the order of the sides
        return replace(known, flows={name: known.flows[name] for name in of_all["flows"]})

    def at(self, points: Any) -> np.ndarray:
        """Return the values at points ``(q, 2)``, (x, y), in space (x, y, z), linear between the nodes, ``(q,)``.

        Outside of a domain that is no rectangle they are NaN. `ValueError` as `Solution.at`.
        """
        cells = on_grid(as_points(points, len(self.grid.shape)), self.grid) - np.array(
            self.window.start
        )
        field = np.asarray(self.field, float)[None]
        if self.shape is None:
            return interpolate(field, cells)[0]
        level = self.shape.level(self.grid, self.window.place)
        return interpolate_within(field, np.asarray(self.inside), level, cells)[0]

    @property
    def _spacing(self) -> float:
        return min(self.grid.steps)

    @on_processor()
    def _asked(self, ask: Ask) -> Any:
        """Return what is asked of the field."""
        if self.window != Window.whole(self.grid):
            raise Unsupported(
                f"quantities are of the whole field, and {self.path} holds a window of it: solve without --window"
            )
        return ask(Quantities(alone(self.problem, self.grid, np.asarray(self.field)[None])))


def read(
    path: str | PathLike, number: int | None = None, *, frame: int | None = None
) -> OpenedSolution:
    """Open one problem of a solution file; its arrays are read when they are first asked for.

    Parameters
    ----------
    number
        Which of several problems, from 0; ``problems`` of what is returned says how many there are. Of a
        series in time of one problem it may be that of the field.
    frame
        Of a series in time, which field, by default the last; ``times`` lists them.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, it is damaged, or has no such problem.
    """
    return OpenedSolution(**vars(read_solution(path, number, frame)))


def labelled(
    fields: np.ndarray,
    along: Sequence[np.ndarray],
    attributes: dict,
    leading: Sequence[tuple[str, np.ndarray | None]] = (),
) -> "xarray.DataArray":
    """Return fields with their coordinates and what is known of them.

    Parameters
    ----------
    along
        Where the nodes lie along each axis of the grid, in their order.
    leading
        The names of axes before these, and their coordinates, where they have any.

    Raises
    ------
    ModuleNotFoundError
        If xarray is not installed.
    """
    try:
        import xarray
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(_missing("to_xarray", "xarray", "xarray")) from error
    axes = letters(len(along))
    coordinates = dict(zip(axes, along, strict=True))
    coordinates |= {name: values for name, values in leading if values is not None}
    return xarray.DataArray(
        fields,
        dims=(*(name for name, _ in leading), *axes),
        coords=coordinates,
        name="solution",
        attrs={k: v for k, v in attributes.items() if isinstance(v, (str, int, float))},
    )


def _png(drawing: "Figure", dpi: int | None = None) -> bytes:
    image = io.BytesIO()
    drawing.savefig(image, format="png", dpi=dpi or "figure")
    return image.getvalue()


def _show_in_notebook(drawing: "Figure") -> None:
    """Show a figure where a cell of a notebook makes it, once, whether or not it is the cell's result."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or not hasattr(shell, "kernel"):
        return
    from IPython.display import Image, display

    made = shell.execution_count
    display(Image(_png(drawing, _DPI)))

    def show_again() -> None:
        # As the result of this cell it has been shown.
        if shell.execution_count != made:
            display(Image(_png(drawing, _DPI)))

    vars(drawing)["_ipython_display_"] = show_again


def _figures() -> ModuleType:
    """Return the module that draws, which takes a second to import."""
    try:
        from mosaicdd.report import figures
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(_missing("plot", error.name, "mosaicdd[plot]")) from error
    return figures


def _missing(method: str, module: str | None, package: str) -> str:
    return f"{method} needs {module}, which is not installed: pip install '{package}'"


def compare(solution: Presented | str | PathLike, reference: Reference = "pyamg") -> Comparison:
    """Compare a solution, or that of a file, with a reference (`Presented.compare`)."""
    if isinstance(solution, (str, PathLike)):
        return compare_all(read_solutions(solution), reference)
    return solution.compare(reference)
