"""The problem that options of a command describe."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mosaicdd.axes import coordinates
from mosaicdd.cli.options import NAMED_PLACE
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.equations import find_any_equation
from mosaicdd.problems.fields.expressions import Expression
from mosaicdd.problems.fields.fields import DIFFUSION
from mosaicdd.problems.fields.given import one_corner
from mosaicdd.problems.fields.wells import Wells
from mosaicdd.problems.operators.foils import Foil, Foils
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.outline import side_names
from mosaicdd.problems.sides.boundary import BoundarySpec, EdgeData, is_file
from mosaicdd.problems.sides.conditions import Condition, Dirichlet, values_of_spec
from mosaicdd.problems.sides.conditions import is_file as names_file
from mosaicdd.problems.sides.held import Held
from mosaicdd.problems.sides.parts import is_outline
from mosaicdd.problems.sides.sides import Sides
from mosaicdd.settings import argument, concerning, meant
from mosaicdd.storage.domain_file import placed, read_domain
from mosaicdd.storage.field_file import FieldFile
from mosaicdd.storage.inputs import BoundaryFile, read_place, read_values_at_points
from mosaicdd.storage.solution_file import stored_field

Pairs = tuple[tuple[str, str], ...]
_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("spacing", "origin", "domain", "boundary")),
    **dict.fromkeys(("field", "well", "foil", "side", "hold"), ()),
}


def read_problem(options: Mapping[str, Any]) -> Problem:
    """Return the problem of options by their names; nothing large is evaluated or read yet.

    A part of the outline of which neither the boundary nor a side says anything is a `ValueError`.
    """
    options = _DEFAULTS | dict(options)
    pde, axes, boundary = options["pde"], len(options["cells"]), options["boundary"]
    fields = _fields(options["field"])
    fields |= _foils(options["foil"], fields, pde, axes)
    fields |= _wells(options["well"], fields, pde, axes)
    if boundary is not None and _number(boundary) is not None:
        boundary = f"expr:{boundary}"
    data = _boundary(boundary)
    everywhere = {}
    if options["domain"] is not None and boundary is not None and boundary.startswith("expr:"):
        # At the nodes of the domain and on its outline only, wherever that is.
        everywhere = dict.fromkeys((*side_names(axes), "outline"), Dirichlet(boundary))
        data = None
    with argument("side"):
        conditions = {name: _with_files(name, part) for name, part in options["side"]}
        sides = Sides(everywhere | conditions | _held(options["hold"], axes), data, axes=axes)
    problem = Problem(_domain(options, fields), pde, fields, sides)
    if boundary is None:
        _require_sides(problem)
    return problem


def _domain(options: Mapping[str, Any], fields: Mapping[str, Any]) -> Domain:
    """Return the domain, with the corner that rasters have."""
    cells, spacing, origin, spec = (options[n] for n in ("cells", "spacing", "origin", "domain"))
    with argument("spacing"):
        if spacing is not None:
            Domain(cells, spacing)
    with argument("origin"):
        if origin is not None:
            Domain(cells, spacing, origin=origin)
    with argument("domain"):
        domain, mask = Domain(cells, spacing, origin=origin), None
        if spec is not None:
            domain, mask = read_domain(spec, cells, spacing, origin), placed(spec)
    with argument("field"):
        return replace(domain, origin=one_corner({**fields, "the domain": mask}, cells, origin))


@argument("boundary")
def _boundary(spec: str | None) -> EdgeData | None:
    """Return what holds on sides without a condition."""
    if spec is None:
        return None
    if not spec.strip():
        raise ValueError(
            "the text is empty: give a number, expr:.., gp:.. or a file (is a variable of the shell unset?)"
        )
    if not is_file(spec):
        return BoundarySpec(spec)
    _require_no_formula(spec)
    return BoundaryFile(spec)


@argument("field")
def _fields(pairs: Pairs) -> dict[str, Any]:
    return {name: field_of_spec(spec) for name, spec in pairs}


@argument("well")
def _wells(pairs: Pairs, fields: Mapping[str, Any], pde: str, axes: int) -> dict[str, Wells]:
    """Return the source: points with a strength, beside the field that it has."""
    if pairs and "f" not in find_any_equation(pde).fields:
        raise ValueError(f"{pde} has no source, and wells are one: take another --pde, as poisson")
    points: list[tuple[list[float], float | str]] = []
    for place, strength in pairs:
        point = _numbers(place)
        if len(point) != axes:
            raise ValueError(
                f"{place}={strength} is not of the form {coordinates(axes).replace(', ', ',')}=STRENGTH, with {axes} numbers as place"
            )
        number = _number(strength)
        points.append((point, strength if number is None else number))
    return {"f": Wells(points, fields.get("f", 0.0))} if points else {}


@argument("foil")
def _foils(pairs: Pairs, fields: Mapping[str, Any], pde: str, axes: int) -> dict[str, Foils]:
    """Return the diffusion with foils in it, by the names that the equation has for it."""
    if not pairs:
        return {}
    equation = find_any_equation(pde)
    if "a" not in equation.varying:
        raise ValueError(
            f"{pde} has no diffusion a that may vary, in which foils lie: take another --pde, as diffusion"
        )
    kinds: dict[str, Any] = {
        "resistance": lambda points, r: Foil(points, resistance=r),
        "conductance": lambda points, c: Foil(points, conductance=c),
        "layer": Foil.layer,
    }
    every = []
    for place, spec in pairs:
        points = [_numbers(point) for point in place.split()]
        kind, _, text = spec.partition(":")
        numbers = _numbers(text)
        if any(len(point) != axes for point in points):
            raise ValueError(
                f"{place} are no points {coordinates(axes).replace(', ', ',')} with a space between each two: as '0,0.5 1,0.5'"
            )
        if kind not in kinds or len(numbers) != 1 + (kind == "layer"):
            raise ValueError(
                f"{spec} is none of resistance:R, conductance:C and layer:THICKNESS,CONDUCTIVITY"
            )
        every.append(kinds[kind](points, *numbers))
    names = [name for name in DIFFUSION if name in fields] or ["a"]
    return {name: Foils(every, fields.get(name, equation.parameters["a"])) for name in names}


def _with_files(name: str, condition: Condition) -> Condition:
    """Return the condition of a side or an outline, with files for values that name one."""
    reader: Any = read_values_at_points if is_outline(name.partition("[")[0]) else FieldFile
    files = {n: reader(str(v)) for n, v in vars(condition).items() if names_file(v)}
    return replace(condition, **files)


@concerning("hold")
def _held(pairs: Pairs, axes: int) -> dict[str, Condition]:
    """Return what is held inside of the domain, by its names: of those without one ``held1``, ``held2``, .."""
    conditions: dict[str, Condition] = {}
    for number, (text, spec) in enumerate(pairs, start=1):
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
        values: Any = values_of_spec(spec)
        if names_file(values):
            values = read_values_at_points(str(values))
        conditions[name] = Held(where, values)
    return conditions


def _require_sides(problem: Problem) -> None:
    """Check that conditions on sides and outlines are given all round."""
    named = {part.name for part in problem.conditions.parts if part.whole}
    grid, shape = problem.domain.grid(), problem.domain.shape
    missing = [
        name
        for name, piece in problem.pieces(grid).items()
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


def field_of_spec(spec: str) -> float | str | FieldFile:
    """Say what a field is; a file is looked at, no more."""
    if (number := _number(spec)) is not None:
        return number
    if spec.startswith(("expr:", "lognormal:")):
        return spec
    _require_no_formula(spec)
    return FieldFile(spec)


def initial_of_spec(spec: str) -> float | str | FieldFile:
    """Say what initial values are, as `field_of_spec`; of a solution file alone its field, at the last of its times."""
    formula = spec.startswith(("expr:", "lognormal:"))
    return (None if formula else stored_field(spec)) or field_of_spec(spec)


def _number(spec: str) -> float | None:
    try:
        return float(spec)
    except ValueError:
        return None


def _numbers(text: str) -> list[float]:
    """Return numbers with commas between them; none if one is no number."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return []


def _require_no_formula(spec: str) -> None:
    """Check that what should name a file is no formula that lacks its ``expr:``, and no mistyped kind of values."""
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
