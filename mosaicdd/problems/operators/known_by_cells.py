"""Which fields may be per cell where a nonlinear equation couples the differences along the axes."""

from typing import TYPE_CHECKING

from mosaicdd.grid.grid import Grid
from mosaicdd.unsupported import Unsupported

if TYPE_CHECKING:
    from mosaicdd.problems.operators.nonlinear import Nonlinear


def require_known_by_cells(operator: "Nonlinear", grid: Grid) -> None:
    """Check them; raise `ValueError` of fields that are for nodes alone, `Unsupported` of a factor of flows that is not for cells."""
    if operator.two_point_flux:
        return
    if operator.in_cells:
        raise ValueError(
            f"the field {operator.in_cells[0]} is given per cell, {grid.shape}, in an equation that couples the differences "
            f"along the axes: there what multiplies all flows, as the equation's diffusion, may be, or what multiplies u "
            f"alone; give it at the nodes, {grid.nodes}"
        )
    factor = None if operator.factor is None else operator.fields[operator.factor]
    if factor is None:
        return
    if not operator.pure:
        raise Unsupported(
            f"the field {factor.name} multiplies all that cells have, in an equation that couples the differences along "
            "the axes and has a reaction: that would be multiplied, too; let the residual take it, and give it at the "
            f"nodes, {grid.nodes}"
        )
    if factor.number is None and not factor.per_cell(grid):
        raise Unsupported(
            f"the field {factor.name} multiplies all that cells have, in an equation that couples the differences along "
            f"the axes: give it as a number, or per cell, {grid.shape}"
        )
