r"""Equations that are not linear: the residual at a node, and its derivatives by the nodes around it.

An equation says what its residual is at a node from the values on a *patch*, the node and its four
neighbours. The derivatives come by automatic differentiation; they make a linear operator between
neighbours, so that Newton's steps are problems in a medium, as `medium` has them:

$$J \delta = -F(u), \qquad J_{ij} = \partial F_i / \partial u_j.$$
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, pair
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.expressions import Expression
from mosaicdd.problems.fields import Field, Part
from mosaicdd.problems.medium import Conductances, require_sign

_STRIP = 2**17  # nodes whose patches are differentiated at a time: they stay in the cache

Function = Callable[[torch.Tensor], torch.Tensor]
"""A coefficient that depends on the solution."""


@dataclass(frozen=True)
class Patch:
    """Values at nodes and at their neighbours, tensors of one shape; ``up`` is where y is larger."""

    centre: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    left: torch.Tensor
    right: torch.Tensor

    @classmethod
    def of(cls, values: torch.Tensor) -> "Patch":
        """Cut the patches around the nodes inside an array ``(rows, columns)``."""
        middle = values[1:-1]
        return cls(
            middle[:, 1:-1], values[2:, 1:-1], values[:-2, 1:-1], middle[:, :-2], middle[:, 2:]
        )

    @property
    def neighbours(self) -> tuple[torch.Tensor, ...]:
        """All but the centre: up, down, left, right."""
        return self.up, self.down, self.left, self.right


Residual = Callable[..., torch.Tensor]
"""``residual(u, h, **fields)``: of the equation without its source, at the centres of patches.

``u`` is a `Patch` of values, ``h`` the spacing; fields are patches, too, and functions of ``u`` functions.
"""


class Nonlinear:
    """The left-hand side of a nonlinear equation for the fields of a problem.

    Parameters
    ----------
    residual
        See `Residual`.
    fields
        Node values by name.
    functions
        By name: expressions in ``u``, or functions of tensors.
    signs
        Which fields must be positive (True), or at least not negative (False).
    self_adjoint
        Whether its derivative is, as that of an energy.
    """

    reflective = False

    def __init__(
        self,
        residual: Residual,
        fields: Mapping[str, Field],
        functions: Mapping[str, Any],
        *,
        signs: Mapping[str, bool],
        self_adjoint: bool,
    ):
        self.fields = dict(fields)
        self._signs = signs
        self.self_adjoint = self_adjoint
        self._residual = residual
        self._given = dict(functions)
        self._functions = {name: _function(name, value) for name, value in functions.items()}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Nonlinear):
            return NotImplemented
        if self._residual is not other._residual or self._given != other._given:
            return False
        pairs = ((one, other.fields[name]) for name, one in self.fields.items())
        return self.fields.keys() == other.fields.keys() and all(
            one.values is two.values or (one.number is not None and one.number == two.number)
            for one, two in pairs
        )

    def __hash__(self) -> int:
        return hash((self._residual, *sorted(self.fields)))

    def require_shape(self, grid: Grid) -> None:
        """Check that fields belong to a grid, and serve all problems.

        Raises
        ------
        ValueError
            If they do not, with both shapes.
        """
        for field in self.fields.values():
            field.require_shape(grid)
            if field.problems > 1:
                raise ValueError(
                    f"the field {field.name} is of {field.problems} problems; problems that are solved "
                    "at once share their coefficients: solve them one by one"
                )

    def residual(self, grid: Grid, part: Part, u: np.ndarray) -> np.ndarray:
        """Return the residual at the nodes inside a part, times the squared spacing.

        Parameters
        ----------
        part
            The nodes of ``u``, ``(rows, columns)``; the outermost ones count as neighbours only.
        """
        rows, columns = u.shape
        values = np.empty((rows - 2, columns - 2))
        with torch.no_grad():
            for strip, patches in self._patches(grid, part, u):
                values[strip] = self._at(patches, grid).numpy()
        return values

    def derivative(self, grid: Grid, part: Part, u: np.ndarray) -> Conductances:
        """Return the derivative between the nodes of a part.

        Conductances of the outermost nodes, whose residuals are unknown, are those of the nodes beside
        them: on the edge of the domain, where there is no equation, nobody asks.

        Raises
        ------
        ValueError
            If it does not fall with every neighbour's value, so that there is no discrete maximum
            principle and no conductance.
        """
        rows, columns = u.shape
        partial = np.empty((5, rows, columns))  # by the centre, up, down, left, right
        inner = partial[:, 1:-1, 1:-1]
        for strip, patches in self._patches(grid, part, u):
            leaves = [value.clone().requires_grad_() for value in _parts(patches["u"])]
            given = patches | {"u": Patch(*leaves)}
            total = self._at(given, grid).sum()
            found = torch.autograd.grad(total, leaves, allow_unused=True)
            for one, gradient in zip(inner, found, strict=True):
                one[strip] = 0.0 if gradient is None else gradient.numpy()
        _require_monotone(inner[1:])
        for axis in (1, 2):
            ends = np.moveaxis(partial, axis, 0)
            ends[0], ends[-1] = ends[1], ends[-2]
        _, up, down, left, right = partial
        up[0], down[-1], right[:, 0], left[:, -1] = down[1], up[-2], left[:, 1], right[:, -2]
        reaction = np.zeros((rows, columns))
        reaction[1:-1, 1:-1] = inner.sum(axis=0)
        along = -up[:-1], -right[:, :-1]
        against = -down[1:], -left[:, 1:]
        if self.self_adjoint:
            along = pair((one + other) / 2 for one, other in zip(along, against, strict=True))
            return Conductances(*along, reaction)
        return Conductances(*along, reaction, *against)

    def _patches(
        self, grid: Grid, part: Part, u: np.ndarray
    ) -> Iterator[tuple[slice, dict[str, Patch]]]:
        """Yield strips of the nodes inside a part, and the patches there of all that varies."""
        rows, columns = part
        height = rows.stop - rows.start - 2
        step = max(1, _STRIP // (columns.stop - columns.start))
        for start in range(0, height, step):
            stop = min(start + step, height)
            nodes = slice(rows.start + start, rows.start + stop + 2), columns
            patches = {"u": Patch.of(torch.from_numpy(u[start : stop + 2]))}
            for name, field in self.fields.items():
                values = field.sample(grid, nodes)[0]
                if name in self._signs:
                    values = require_sign(values, field, nodes, positive=self._signs[name])
                patches[name] = Patch.of(torch.from_numpy(np.ascontiguousarray(values)))
            yield slice(start, stop), patches

    def _at(self, patches: dict[str, Patch], grid: Grid) -> torch.Tensor:
        given = {name: patch for name, patch in patches.items() if name != "u"}
        value = self._residual(patches["u"], grid.spacing, **given, **self._functions)
        return value * grid.spacing**2


class Linearised:
    """The derivative of a nonlinear operator at values that a rank holds, as a `Medium` of its own.

    Parameters
    ----------
    u
        Values at the nodes of ``part``.
    """

    reflective = False

    def __init__(self, operator: Nonlinear, u: np.ndarray, part: Part):
        self.self_adjoint = operator.self_adjoint
        self._operator, self._u, self._part = operator, u, part

    def conductances(self, grid: Grid, part: Part) -> Conductances:
        """Return the conductances between the nodes of a part, which ``u`` must surround."""
        wide = pair(
            slice(max(p.start - 1, 0), min(p.stop + 1, nodes))
            for p, nodes in zip(part, grid.nodes, strict=True)
        )
        there = pair(
            slice(w.start - own.start, w.stop - own.start)
            for w, own in zip(wide, self._part, strict=True)
        )
        found = self._operator.derivative(grid, wide, self._u[there])
        return found.part(
            *pair(
                slice(p.start - w.start, p.stop - w.start) for p, w in zip(part, wide, strict=True)
            )
        )


class LocalPart:
    """Node values of the domain of which a rank holds a part; a `Field` reads it as an array.

    Parameters
    ----------
    values
        At the nodes of ``part``.
    """

    def __init__(self, grid: Grid, values: np.ndarray, part: Part):
        self.shape = grid.nodes
        self._values, self._part = values, part

    def __getitem__(self, place: tuple) -> np.ndarray:
        """Return ``[..., rows, columns]`` of the domain."""
        wanted: Slices = place[-2:]
        return self._values[
            *(
                slice(w.start - p.start, w.stop - p.start)
                for w, p in zip(wanted, self._part, strict=True)
            )
        ]


def _parts(patch: Patch) -> tuple[torch.Tensor, ...]:
    return patch.centre, *patch.neighbours


def _require_monotone(partial: np.ndarray) -> None:
    """Check derivatives by neighbours, ``(4, rows, columns)``; NaN passes, as an iteration's end."""
    wrong = partial >= 0
    if wrong.any():
        raise ValueError(
            f"the equation's derivative by a neighbour is not negative at {int(wrong.sum())} of "
            f"{wrong.size} places (largest {np.nanmax(partial):.3g}): the grid is too coarse for it, or "
            "a coefficient that depends on the solution is not positive there"
        )


def _function(name: str, value: Any) -> Function:
    """Return a function of tensors from the text of an expression in ``u``, a number or a function."""
    if callable(value) and not isinstance(value, Expression):
        return value
    try:
        expression = Expression(str(value).removeprefix("expr:"), variables=("u", "pi"))
    except ValueError as error:
        raise ValueError(f"the field {name}: {error}") from error
    return lambda u: expression.of_tensors(u=u)
