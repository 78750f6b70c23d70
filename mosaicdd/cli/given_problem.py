"""The problem that options of a command describe."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mosaicdd.cli.files_of_options import NAMED_PLACE
from mosaicdd.problems.sides.conditions import Condition, Periodic, values_of_spec
from mosaicdd.problems.sides.conditions import is_file as names_file
from mosaicdd.settings import concerning, meant

if TYPE_CHECKING:
    from mosaicdd.problems.fields.wells import Wells
    from mosaicdd.problems.operators.foils import Foils
    from mosaicdd.problems.problem import Problem
    from mosaicdd.storage.field_file import FieldFile
    from mosaicdd.storage.solution_file import StoredField


@dataclass(frozen=True)
class Description:
    """What options say of a problem, by the names of their parameters."""

    cells: tuple[int, ...]
    spacing: float | tuple[float, ...] | None = None
    origin: tuple[float, ...] | None = None
    domain: str | None = None
    pde: str = "diffusion"
    boundary: str | None = None
    given_fields: tuple[tuple[str, str], ...] = ()
    given_wells: tuple[tuple[str, str], ...] = ()
    given_foils: tuple[tuple[str, str], ...] = ()
    given_sides: tuple[tuple[str, Condition], ...] = ()
    given_holds: tuple[tuple[str, str], ...] = ()

    @property
    def bare(self) -> bool:
        """Whether nothing is said but the size of a rectangle, its place, and the equation."""
        named = self.given_fields, self.given_wells, self.given_foils, self.given_sides
        return not (
            self.boundary is not None or any(named) or self.given_holds or len(self.cells) != 2
        )


def given_problem(description: Description) -> "Problem":
    """Say what is to be solved; nothing large is evaluated or read yet.

    A part of the outline of which neither the boundary nor a side says anything is a `ValueError`.
    """
    from mosaicdd.problems.domain import Domain
    from mosaicdd.problems.fields.given import one_corner
    from mosaicdd.problems.problem import Problem
    from mosaicdd.problems.shapes.outline import side_names
    from mosaicdd.problems.sides.boundary import BoundarySpec, Data, is_file
    from mosaicdd.problems.sides.conditions import Dirichlet
    from mosaicdd.problems.sides.parts import is_outline
    from mosaicdd.problems.sides.sides import Sides
    from mosaicdd.settings import argument
    from mosaicdd.storage.domain_file import placed, read_domain
    from mosaicdd.storage.field_file import FieldFile
    from mosaicdd.storage.inputs import BoundaryFile, read_values_at_points

    cells, spacing, origin = description.cells, description.spacing, description.origin
    axes, spec, boundary = len(cells), description.domain, description.boundary

    def read(name: str, condition: Condition) -> Condition:
        if isinstance(condition, Periodic):
            return condition
        reader = read_values_at_points if is_outline(name.partition("[")[0]) else FieldFile
        files: dict[str, Any] = {
            n: reader(str(v)) for n, v in vars(condition).items() if names_file(v)
        }
        return replace(condition, **files)

    with argument("field"):
        fields: dict[str, float | str | FieldFile | Wells | Foils] = {
            name: given_field(spec) for name, spec in description.given_fields
        }
    beside = dict(fields)
    with argument("foil"):
        if description.given_foils:
            fields |= _with_foils(description.given_foils, fields, description.pde, axes)
    with argument("well"):
        if description.given_wells:
            fields["f"] = _wells(
                description.given_wells, fields.get("f", 0.0), description.pde, axes
            )
    data: Data | None = None
    with argument("boundary"):
        if boundary is not None:
            if not boundary.strip():
                raise ValueError(
                    "the text is empty: give a number, expr:.., gp:.. or a file (is a variable of the shell unset?)"
                )
            boundary = boundary if _number(boundary) is None else f"expr:{boundary}"
            if is_file(boundary):
                _require_no_formula(boundary)
            data = BoundaryFile(boundary) if is_file(boundary) else BoundarySpec(boundary)
    with argument("side"):
        conditions = {name: read(name, condition) for name, condition in description.given_sides}
        if spec is not None and boundary is not None and boundary.startswith("expr:"):
            # At the nodes of the domain and on its outline only, wherever that is.
            names = *side_names(axes), "outline"
            conditions = {name: Dirichlet(boundary) for name in names} | conditions
            data = None
        conditions |= _held(description.given_holds, axes)
        sides = Sides(conditions, data, axes=axes)
    with argument("spacing"):
        if spacing is not None:
            Domain(cells, spacing)
    with argument("origin"):
        if origin is not None:
            Domain(cells, spacing, origin=origin)
    with argument("domain"):
        domain = (
            Domain(cells, spacing, origin=origin)
            if spec is None
            else read_domain(spec, cells, spacing, origin)
        )
        mask = None if spec is None else placed(spec)
    with argument("field"):
        place = one_corner(beside | {"the domain": mask}, cells, origin)
        domain = replace(domain, origin=place)
    problem = Problem(domain, description.pde, fields, sides)
    if boundary is None:
        _require_sides(problem)
    return problem


def _wells(wells: tuple[tuple[str, str], ...], beside: object, pde: str, axes: int) -> "Wells":
    """Return points with a strength, and the source beside them."""
    from mosaicdd.lattice.axes import coordinates
    from mosaicdd.problems.equations import find_any_equation
    from mosaicdd.problems.fields.wells import Wells

    if "f" not in find_any_equation(pde).fields:
        raise ValueError(f"{pde} has no source, and wells are one: take another --pde, as poisson")
    points: list[tuple[list[float], float | str]] = []
    for place, strength in wells:
        point = _numbers(place)
        if len(point) != axes:
            raise ValueError(
                f"{place}={strength} is not of the form {coordinates(axes).replace(', ', ',')}=STRENGTH, with {axes} numbers as place"
            )
        number = _number(strength)
        points.append((point, strength if number is None else number))
    return Wells(points, beside)


def _with_foils(
    foils: tuple[tuple[str, str], ...], fields: Mapping[str, Any], pde: str, axes: int
) -> dict[str, "Foils"]:
    """Return the diffusion with foils in it, by the names that the equation has for it."""
    from mosaicdd.lattice.axes import coordinates
    from mosaicdd.problems.equations import find_any_equation
    from mosaicdd.problems.fields.fields import DIFFUSION
    from mosaicdd.problems.operators.foils import Foil, Foils

    equation = find_any_equation(pde)
    if "a" not in getattr(equation, "varying", ()):
        raise ValueError(
            f"{pde} has no diffusion a that may vary, in which foils lie: take another --pde, as diffusion"
        )
    kinds = {"resistance": 1, "conductance": 1, "layer": 2}
    every = []
    for place, spec in foils:
        points = [_numbers(point) for point in place.split()]
        kind, _, text = spec.partition(":")
        numbers = _numbers(text)
        if any(len(point) != axes for point in points):
            raise ValueError(
                f"{place} are no points {coordinates(axes).replace(', ', ',')} with a space between each two: as '0,0.5 1,0.5'"
            )
        if kinds.get(kind) != len(numbers):
            raise ValueError(
                f"{spec} is none of resistance:R, conductance:C and layer:THICKNESS,CONDUCTIVITY"
            )
        every.append(
            Foil.layer(points, *numbers) if kind == "layer" else Foil(points, **{kind: numbers[0]})
        )
    names = [name for name in DIFFUSION if name in fields] or ["a"]
    return {name: Foils(every, fields.get(name, equation.parameters["a"])) for name in names}


@concerning("hold")
def _held(holds: tuple[tuple[str, str], ...], axes: int) -> dict[str, "Condition"]:
    """Return what is held inside of the domain, by its names: of those without one ``held1``, ``held2``, .."""
    from mosaicdd.problems.sides.parts import Held
    from mosaicdd.storage.inputs import read_place, read_values_at_points

    conditions: dict[str, Condition] = {}
    for number, (text, spec) in enumerate(holds, start=1):
        named = NAMED_PLACE.fullmatch(text)
        name, place = (f"held{number}", text.strip()) if named is None else named.groups()
        if name in conditions:
            raise ValueError(f"{name} is the name of two places: give each its own")
        points = [_numbers(point) for point in place.split()]
        where: Any = place
        if all(points):
            counts = sorted({len(point) for point in points} | {axes})
            if len(counts) > 1:
                raise ValueError(
                    f"{place} has points of {' and '.join(map(str, counts))} numbers, a point of this domain has {axes}"
                )
            where = points
        elif Path(place).exists() or names_file(place):
            where = read_place(place, axes)
        values = values_of_spec(spec)
        conditions[name] = Held(
            where, read_values_at_points(str(values)) if names_file(values) else values
        )
    return conditions


def _require_sides(problem: "Problem") -> None:
    """Check that conditions on sides and outlines are given all round."""
    named = {part.name for part in problem.conditions.parts if part.whole}
    grid, shape = problem.domain.grid(), problem.domain.shape
    pieces = problem.pieces(grid)
    missing = [
        name
        for name, piece in pieces.items()
        if name not in named
        and (piece.inside is None or piece.inside.any())
        and problem.conditions.leaves(piece, name, grid)
    ]
    if shape is not None and "outline" not in named:
        outlines, _ = shape.outlines(grid, problem.conditions.periods(grid))
        missing += [name for name in outlines if name not in named]
    in_parts = {part.name for part in problem.conditions.parts if not part.whole}
    missing = [f"the rest of {name}" if name in in_parts else name for name in missing]
    if missing:
        raise ValueError(
            f"nothing is said of the sides {', '.join(missing)}: give their values by --boundary, as in "
            "--boundary 0 or --boundary 'expr:sin(x)', or each of them by --side"
        )


def given_field(spec: str) -> "float | str | FieldFile":
    """Say what a field is; a file is looked at, no more."""
    from mosaicdd.storage.field_file import FieldFile

    if (number := _number(spec)) is not None:
        return number
    if spec.startswith(("expr:", "lognormal:")):
        return spec
    _require_no_formula(spec)
    return FieldFile(spec)


def given_initial(spec: str) -> "float | str | FieldFile | StoredField":
    """Say what initial values are, as `given_field`; of a solution file alone its field, at the last of its times."""
    from mosaicdd.storage.solution_file import StoredField

    if StoredField.is_named(spec) and not spec.startswith(("expr:", "lognormal:")):
        return StoredField(spec)
    return given_field(spec)


def _number(spec: str) -> float | None:
    try:
        return float(spec)
    except ValueError:
        return None


def _numbers(text: str) -> list[float]:
    """Return numbers with commas between them; none if one is no number."""
    numbers = [_number(part) for part in text.split(",")]
    return [] if None in numbers else [number for number in numbers if number is not None]


def _require_no_formula(spec: str) -> None:
    """Check that what should name a file is no formula that lacks its ``expr:``, and no mistyped kind of values."""
    from mosaicdd.problems.fields.expressions import Expression

    if Path(spec).exists():
        return
    kind, colon, _ = spec.partition(":")
    if colon and (remark := meant(kind, ("expr", "gp", "lognormal"))):
        raise ValueError(f"{spec!r} is no file, and {kind!r} no kind of values{remark}")
    try:
        Expression(spec, variables=("x", "y", "z", "u", "t", "pi"))
    except ValueError:
        return
    raise ValueError(f"{spec!r} is no file; a formula is written 'expr:{spec}'")
