"""How a solution shows itself, in memory or in a file: compared, drawn, labelled, in a notebook."""

import base64
import html
import io
import sys
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from mosaicdd.axes import letters

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

    from mosaicdd.report.comparison import Comparison, Reference
    from mosaicdd.report.sections import Plane
    from mosaicdd.report.stored import StoredSolution

_DPI = 60  # of the picture in a notebook


class Presented:
    """What solutions in memory and in files have in common for people.

    All of it is made of `each`.
    """

    def each(self) -> list["StoredSolution"]:
        """Return the solution of each problem, with everything that is known of it."""
        raise NotImplementedError

    def compare(self, reference: "Reference" = "pyamg") -> "Comparison":
        """Compare with a reference: its method's name, ``expr:...``, a file, a solution or an array.

        Of several problems, errors are those over the nodes of all of them.
        """
        from mosaicdd.report.comparison import compare_all

        return compare_all(self.each(), reference)

    def plot(
        self,
        path: str | PathLike | None = None,
        *,
        reference: "Reference | None" = None,
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
        from mosaicdd.report.comparison import reference_field

        solution = self.each()[number]
        against = () if reference is None else reference_field(reference, solution)
        drawing = _figures().figure(solution, *against, planes=planes)
        if path is not None:
            from mosaicdd.report.pictures import save_figure

            save_figure(drawing, Path(path))
        _show_in_notebook(drawing)
        return drawing

    def to_xarray(self) -> "xarray.DataArray":
        """Return a copy of the field with its coordinates and what is known of it; all fields of a series.

        Raises
        ------
        ModuleNotFoundError
            If xarray is not installed.
        """
        solutions = self.each()
        first, several = solutions[0], len(solutions) > 1
        leading: list[tuple[str, np.ndarray | None]]
        if first.times is not None:
            fields, leading = first.series(), [("time", first.times)]
        else:  # copies
            fields = np.stack([solution.field for solution in solutions])
            leading = [("problem", None)] if several else []
        along = map(first.coordinates, range(len(first.grid.shape)))
        return labelled(fields if leading else fields[0], tuple(along), first.attributes, leading)

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

    def _first(self) -> "StoredSolution":
        """Return the solution of the first problem; of its arrays maybe none."""
        return self.each()[0]

    def _picture(self) -> str:
        """Return the figure as an image, nothing without matplotlib."""
        try:
            drawing = _figures().figure(self.each()[0], dpi=_DPI)
        except ModuleNotFoundError:
            return ""
        return f"<img alt='solution' src='data:image/png;base64,{base64.b64encode(_png(drawing)).decode()}'>"


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
