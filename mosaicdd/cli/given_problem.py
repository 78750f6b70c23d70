"""The problem that options of a command describe."""

from dataclasses import replace
from typing import TYPE_CHECKING

from mosaicdd.problems.sides.conditions import Condition, Periodic
from mosaicdd.problems.sides.conditions import is_file as names_file

if TYPE_CHECKING:
    from mosaicdd.problems.problem import Problem
    from mosaicdd.storage.field_file import FieldFile


def given_problem(
    cells: tuple[int, int],
    spacing: float | None,
    spec: str | None,
    pde: str,
    given_fields: tuple[tuple[str, str], ...],
    boundary: str,
    given_sides: tuple[tuple[str, Condition], ...],
) -> "Problem":
    """Say what is to be solved; nothing large is evaluated or read yet."""
    from mosaicdd.problems.domain import Domain
    from mosaicdd.problems.problem import Problem
    from mosaicdd.problems.shapes.outline import SIDES
    from mosaicdd.problems.sides.boundary_spec import BoundarySpec, is_file
    from mosaicdd.problems.sides.conditions import Dirichlet
    from mosaicdd.problems.sides.edge_data import Data
    from mosaicdd.problems.sides.parts import is_outline
    from mosaicdd.problems.sides.sides import Sides
    from mosaicdd.settings import argument
    from mosaicdd.storage.domain_file import read_domain
    from mosaicdd.storage.field_file import FieldFile
    from mosaicdd.storage.inputs import BoundaryFile, read_values_at_points

    def read(name: str, condition: Condition) -> Condition:
        if isinstance(condition, Periodic) or not names_file(condition.values):
            return condition
        reader = read_values_at_points if is_outline(name) else FieldFile
        return replace(condition, values=reader(str(condition.values)))

    with argument("field"):
        fields = {name: given_field(spec) for name, spec in given_fields}
    with argument("boundary"):
        data: Data | None = BoundaryFile(boundary) if is_file(boundary) else BoundarySpec(boundary)
    with argument("side"):
        given = {name: read(name, condition) for name, condition in given_sides}
        if spec is not None and boundary.startswith("expr:"):
            # At the nodes of the domain and on its outline only, wherever that is.
            given = {name: Dirichlet(boundary) for name in (*SIDES, "outline")} | given
            data = None
        sides = Sides(given, data)
    with argument("domain"):
        domain = Domain(cells, spacing) if spec is None else read_domain(spec, cells, spacing)
    return Problem(domain, pde, fields, sides)


def given_field(spec: str) -> "float | str | FieldFile":
    """Say what a field is; a file is looked at, no more."""
    from mosaicdd.storage.field_file import FieldFile

    try:
        return float(spec)
    except ValueError:
        return spec if spec.startswith(("expr:", "lognormal:")) else FieldFile(spec)
