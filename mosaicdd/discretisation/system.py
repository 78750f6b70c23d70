"""The discrete equations of a problem on a grid, and the protocol of methods that solve problems.

What equations are decides who solves them (`Method.method`): those that are the same at all nodes of a rectangle or box
transforms, as products of waves along the axes are their eigenvectors; other linear ones multigrid; and those that are not
linear Newton's method. An iteration on subdomains (`local_solvers`) is another method.

Another way to solve is a `Method` whose ``method`` is a name of its own, and a subclass of `solvers.base_engine.BaseEngine`
that `solvers.base_engine.engine_of` returns for this name: it plans in ``_prepare``, and in ``_solve_many`` it makes each
problem's outcome by ``_outcome``, from its own status and the evidence that it measured. Beside that it gives what differs
from `BaseEngine`'s defaults: how many ``unknowns`` there are, what of the data to ``check`` before, and the interface that a
checkpoint holds.
"""

from typing import Any, Self, Unpack

from mosaicdd.axes import times
from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.discretisation.nonlinear_equations import NonlinearDiscretisation
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.partition import NodeBoxes
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.medium import Medium, medium_of
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.outline import side_names
from mosaicdd.tensors import Tensors
from mosaicdd.unsupported import Unsupported

MULTIGRID = 110
"""Bytes for each node at least: couplings, levels, and the vectors of one iteration."""

PER_PROBLEM = 16
"""Bytes for each node of each of several problems: its field, and what is kept until that is handed out."""

WAVES = 64
"""Bytes for each node where coefficients are numbers: heights of waves, eigenvalues, right-hand side and residual."""

EQUATIONS_IN_SPACE = 70
"""More of them in boxes where sides are natural or periodic, or cells no multiples: the equations of all nodes."""

_FEWEST = {False: 4, True: 8}
"""Nodes of a box along each axis, by whether nodes are coupled across cells."""

_MANY = 16
"""The same of large grids, whose boxes are counted one by one where a shape is shared out evenly."""

_DIRECTED = {2: 70, 3: 110}
"""More of them with a velocity, by axes: couplings and weights differ in both directions."""

_IN_SPACE = {True: 800, False: 1600}
"""Bytes for each node of Newton's steps in boxes, by whether the derivative is symmetric; most are those of flows."""

Ends = tuple[tuple[bool, bool] | None, ...]
"""Per axis whether values are given at the low and at the high end, else fluxes; None between periodic sides."""


class GridSource:
    """The source of a problem on a grid.

    Parameters
    ----------
    problem
        That has a source; `update` puts another of the same domain in its place.
    """

    def __init__(self, problem: Problem, grid: Grid):
        self.problem, self.grid = problem, grid
        self.version = 0

    def update(self, problem: Problem) -> None:
        """Take the source of another problem from now on."""
        self.problem = problem
        self.version += 1


class Method:
    """A method that solves a problem on a grid: its properties and its needs."""

    name: str  # what a result reports: the name or the file it was asked for by
    operator: Any  # whose equation it solves
    # Of the problem; None, if there is none and one that comes needs another solver
    source: GridSource | None
    linear = True  # whether what it makes of perimeter values is linear in them
    method = "shared"  # the name of what runs it; see `solvers.base_engine.engine_of`
    exact = False  # whether it gives the solution of the discrete equation to rounding
    two_point_flux = False  # whether it solves several problems one after another
    source_ghosts = 2  # nodes around those that a rank owns at which its source is sampled, at most
    between_nodes = False  # whether it has values between the nodes of the grid

    def boxes(self, grid: Grid, periodic: tuple[bool, ...]) -> NodeBoxes:
        """Return the boxes of nodes that ranks get whole; `ValueError` if they do not fit the grid."""
        raise NotImplementedError

    def subdomains(self, grid: Grid) -> int | None:
        """Return the number of subdomains solved at once; None of a method on the whole grid."""
        return None

    def bytes_per_node(self, itemsize: int, problems: int, *, certified: bool) -> float:
        """Return the bytes for each node that problems take at least, beside fields; values have ``itemsize`` bytes."""
        raise NotImplementedError

    def in_precision(self, name: str) -> Self:
        """Return the same with a network, not linear, evaluated in another precision; else `Unsupported`."""
        raise Unsupported(
            f"network_dtype={name!r} is for a network that is not linear, {self.name} is none; leave it out"
        )

    def guarded(self) -> "Method":
        """Return an exact method where this one would have to extrapolate; itself, if it nowhere does."""
        return self

    def require_sound(self) -> None:
        """Check what an answer that nothing certifies depends on; `ValueError` if the answer would be wrong."""

    def plan_points(self, **tensors: Unpack[Tensors]) -> Any:
        """Prepare the solve at points that are not fixed, one for each perimeter; `Unsupported` if there are none."""
        raise Unsupported(f"{self.name} has values at grid nodes only; interpolate the field")


class GridSystem(Method):
    """The discrete equations of a problem on a grid.

    Attributes
    ----------
    operator
        The medium, or what has conductances as one; or what is not linear, whose derivative is one.
    source
        Of the problem, which may be zero.
    discretisation
        Of the problem; None where values are given on all sides of a rectangle.
    planned
        What was planned for a medium on a partition, by whoever solves.
    """

    name = "exact"
    exact = True
    two_point_flux = True
    source: GridSource

    def __init__(self, operator: Any, source: GridSource, discretisation: Any = None):
        self.operator, self.source = operator, source
        self.discretisation = discretisation
        self.planned: dict[tuple[Any, ...], Any] = {}

    def boxes(self, grid: Grid, periodic: tuple[bool, ...]) -> NodeBoxes:
        """Return boxes of nodes that are as wide as the ghost nodes of a sweep; larger ones where there are many."""
        return _boxes(self.operator, grid, periodic)

    def bytes_per_node(self, itemsize: int, problems: int, *, certified: bool) -> float:
        """Return the bytes of multigrid, and of each problem's source or start and its field."""
        directed = 0 if self.operator.self_adjoint else _DIRECTED[len(self.source.grid.shape)]
        return MULTIGRID + directed + PER_PROBLEM * problems


class LinearSystem(GridSystem):
    """Linear equations."""

    method = "multigrid"


class SeparableSystem(LinearSystem):
    """Linear equations that are the same at all nodes of a rectangle or box.

    ``ends``: of the axes, see `separable_ends`.
    """

    method = "sines"

    def __init__(self, medium: LinearSystem, ends: Ends):
        super().__init__(medium.operator, medium.source, medium.discretisation)
        self.ends = ends

    def bytes_per_node(self, itemsize: int, problems: int, *, certified: bool) -> float:
        """Return the bytes of transforms, and of each of several problems."""
        in_space = len(self.source.grid.shape) == 3 and self.discretisation is not None
        return WAVES + EQUATIONS_IN_SPACE * in_space + PER_PROBLEM * problems


class NonlinearSystem(GridSystem):
    """Equations that are not linear."""

    linear = False
    method = "newton"
    source_ghosts = 12  # as many as Newton's method holds of values, and one more

    def bytes_per_node(self, itemsize: int, problems: int, *, certified: bool) -> float:
        """Return the bytes of a step; in space with the flows through six sides, and their places."""
        if len(self.source.grid.shape) == 2:
            return super().bytes_per_node(itemsize, problems, certified=certified)
        return _IN_SPACE[self.operator.self_adjoint] + 16 * problems


def system_of(problem: Problem, grid: Grid) -> GridSystem:
    """Return the equations of a problem, of the kind that is solved soonest."""
    if not problem.operator.linear:
        return nonlinear_system(problem, grid)
    system, ends = linear_system(problem, grid), separable_ends(problem)
    return system if ends is None else SeparableSystem(system, ends)


def linear_system(problem: Problem, grid: Grid) -> LinearSystem:
    """Return the equations of a linear problem: of the nodes inside where these are all unknowns, else by sums of flows."""
    if values_given(problem):
        _require_inner_nodes(grid)
        return LinearSystem(_medium(problem), GridSource(problem, grid))
    return flow_system(problem, grid)


def flow_system(problem: Problem, grid: Grid) -> LinearSystem:
    """Return the equations of a linear problem by sums of flows, whatever its sides are."""
    _require_even(problem, grid)
    medium = _medium(problem)
    return LinearSystem(medium, GridSource(problem, grid), Discretisation(problem, medium, grid))


def nonlinear_system(problem: Problem, grid: Grid) -> NonlinearSystem:
    """Return the equations of a problem that is not linear; `TypeError` if it is."""
    operator = problem.operator
    if operator.linear:
        raise TypeError(f"{problem.equation.name} is linear")
    _require_even(problem, grid)
    source = GridSource(problem, grid)
    if problem.plain and not operator.by_flows:
        _require_inner_nodes(grid)
        return NonlinearSystem(operator, source)
    return NonlinearSystem(operator, source, NonlinearDiscretisation(problem, grid))


def _medium(problem: Problem) -> Medium:
    return medium_of(problem.operator, problem.hindrance or "the cells are no multiples of 16")


def values_given(problem: Problem) -> bool:
    """Say whether the unknowns of a linear problem are all nodes inside the grid."""
    return problem.plain and not _is_mixed(problem.operator)


def _require_inner_nodes(grid: Grid) -> None:
    if min(grid.shape) < 2:
        raise ValueError("the values of all nodes are given; take 2 cells or more per axis")


def _require_even(problem: Problem, grid: Grid) -> None:
    """Raise `Unsupported` for couplings across an odd number of cells between periodic sides."""
    wraps = zip(grid.shape, problem.conditions.periodic, strict=True)
    if _is_mixed(problem.operator) and any(around and cells % 2 for cells, around in wraps):
        raise Unsupported(
            "with a mixed derivative, axy, or bilinear elements periodic sides have even numbers of cells between them, "
            f"here there are {times(grid.shape)} cells: give one more or one less"
        )


def nodes_of_media(problem: Problem, grid: Grid) -> NodeBoxes:
    """Return the boxes of nodes that ranks get whole, without evaluating anything."""
    return _boxes(problem.operator, grid, problem.conditions.periodic)


def _boxes(operator: Any, grid: Grid, periodic: tuple[bool, ...]) -> NodeBoxes:
    size = _MANY if min(grid.shape) >= _MANY**2 else _FEWEST[_is_mixed(operator)]
    return NodeBoxes.of_size(grid, periodic, size)


def _is_mixed(operator: EllipticOperator | Medium | Nonlinear) -> bool:
    """Say whether an operator couples nodes across cells, as a mixed derivative does."""
    if not operator.linear:
        return not operator.two_point_flux
    return operator.couples_corners


def separable_ends(problem: Problem) -> Ends | None:
    """Return the kinds of conditions at the axes' ends, where waves are eigenvectors; else None.

    They do without a velocity and mixed derivatives, where each side has one condition, which is no exchange, and
    nothing is held inside.
    """
    axes, conditions = len(problem.domain.cells), problem.conditions
    names = side_names(axes)
    if problem.domain.shape is not None or not _is_uniform(problem.operator):
        return None
    has_values = [[True, True] for _ in range(axes)]
    for part in conditions.parts:
        if part.inside or not part.whole:
            return None
        if part.name not in names:  # an outline, which a rectangle has not
            continue
        if part.condition.exchanges:
            return None
        axis, end = names[part.name]
        has_values[axis][end] = part.condition.fixed
    ends = tuple(
        None if around else (low, high)
        for around, (low, high) in zip(conditions.periodic, has_values, strict=True)
    )
    counts = zip(problem.domain.cells, ends, strict=True)
    has_unknowns = all(cells > 1 or (end is not None and not all(end)) for cells, end in counts)
    return ends if has_unknowns else None


def _is_uniform(operator: EllipticOperator | Medium | Nonlinear) -> bool:
    """Say whether an operator is the same everywhere, and unchanged by reflections."""
    if operator.constant:
        return operator.reflective and operator.c >= 0
    if not operator.linear or operator.couples_corners or operator.foils:
        return False
    return operator.self_adjoint and all(f.number is not None for f in operator.fields.values())
