"""First derivatives of a Lagrangian, strip by strip, so that each fits the cache."""

import functools
import math
from collections.abc import Callable, Collection, Mapping

import numpy as np
import torch

from mosaicdd.axes import ends, even, sizes, within
from mosaicdd.gradients.lagrangian import Inputs, Lagrangian
from mosaicdd.gradients.nonlinear import lagrangian_of, to_first, with_first
from mosaicdd.gradients.parameters import Parameters
from mosaicdd.parallel.safe_norms import largest_of, safe_power
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.fields.fields import Part
from mosaicdd.solution.solution import Solution

_STRIP = 2**17  # nodes
_LEFT = 1e-5  # of the functional's derivatives that an adjoint may leave, at most
_MOVE = 1e-5  # of a cell, that an outline moves for differences
_PROBE = 1e-6  # of a parameter, to see how far it moves the outline


def _signs(level: np.ndarray) -> list[np.ndarray]:
    """Return the signs of a level at nodes and middles of edges and cells."""
    levels = [level, level[1:] + level[:-1], level[:, 1:] + level[:, :-1]]
    levels.append(levels[1][:, 1:] + levels[1][:, :-1])
    return [np.sign(values) for values in levels]


def _moved_by(level: np.ndarray, other: np.ndarray) -> float:
    """Return the largest distance, in cells, between the outlines of two levels of any units."""
    beside, slope = np.zeros(level.shape, bool), np.zeros(level.shape)
    for axis in range(level.ndim):
        low, high = ends(axis, level.ndim)
        rise, crossed = abs(level[high] - level[low]), (level[high] < 0) != (level[low] < 0)
        for end in (low, high):
            beside[end] |= crossed
            slope[end] = np.maximum(slope[end], rise)
    return float((abs(other - level)[beside] / slope[beside]).max(initial=0.0))


class InStrips:
    """The Lagrangian of a process's nodes, cut into strips; each has the derivatives at its own nodes.

    ``own``: these nodes, of the whole grid; by default all. What is planned is planned where it is first needed.
    """

    def __init__(self, parameters: Parameters, own: Part | None = None):
        self.parameters, self._own = parameters, own or parameters.whole

    @functools.cached_property
    def lagrangian(self) -> Lagrangian:
        """The Lagrangian of all nodes at once, as second derivatives need it."""
        whole = self.parameters.whole
        return lagrangian_of(self.parameters)(self.parameters, whole, whole)

    @functools.cached_property
    def _strips(self) -> list[tuple[Part, Part, Lagrangian, torch.Tensor]]:
        parameters, owned = self.parameters, self._own
        kind, reach, strips = lagrangian_of(parameters), Lagrangian.reach(parameters), []
        rows = max(1, _STRIP // math.prod(p.stop - p.start for p in owned[1:]))
        for part in even(owned[0].stop - owned[0].start, rows):
            first = owned[0].start
            strip = (slice(first + part.start, first + part.stop), *owned[1:])
            wide = tuple(
                slice(max(p.start - reach, 0), min(p.stop + reach, n))
                for p, n in zip(strip, parameters.grid.nodes, strict=True)
            )
            lagrangian = kind(parameters, strip, wide)
            counts = self.counting(strip, lagrangian.active[within(strip, wide)])
            strips.append((strip, wide, lagrangian, counts))
        return strips

    def require_values(self, u: np.ndarray) -> None:
        """Raise `ValueError` unless values of the whole grid are known wherever there are unknowns."""
        lacking = sum(
            int((kind.active.numpy()[within(strip, wide)] & np.isnan(u[strip])).sum())
            for strip, wide, kind, _ in self._strips
        )
        if lacking:
            raise ValueError(
                f"the solution lacks the values of {lacking} unknowns beyond natural outlines, where volumes reach: "
                "solve with keep='unknowns'"
            )

    def _around(self, named: Mapping[str, torch.Tensor], wide: Part) -> dict[str, torch.Tensor]:
        """Return data at wide nodes, or in the cells between them."""
        cells, nodes = tuple(slice(p.start, p.stop - 1) for p in wide), self.parameters.grid.nodes
        return {
            name: value[wide if value.shape == nodes else cells]
            if name in self.parameters.fields and value.ndim
            else value
            for name, value in named.items()
        }

    def __call__(
        self,
        named: Mapping[str, torch.Tensor],
        by: Collection[str],
        u: torch.Tensor,
        v: torch.Tensor,
        w: torch.Tensor,
        add: Callable[[np.ndarray], np.ndarray] = lambda values: values,
    ) -> tuple[dict[str, torch.Tensor], np.ndarray]:
        """Return the derivatives by named data, and the adjoint's residual.

        Of fields those at the own nodes, and in the cells above and to the right of them; of numbers and sides the
        share of the own nodes.

        Parameters
        ----------
        named
            All that the problem was given, whole.
        by
            Some of their names, and of outlines whose values are no numbers.
        u, v, w
            The solution, the adjoint, and the derivatives of the functional by each value, of the whole grid.
        add
            Adds up over processes; by default there is one.

        Returns
        -------
        dict, array
            The derivatives; two sums of squares: of what the equations of the adjoint leave, and of ``w``
            there; of both times a number where their squares need it.
        """
        parameters = self.parameters
        of_shape = [name for name in parameters.of_shape if name in by]
        named = {name: v for name, v in named.items() if name not in parameters.of_shape}
        named = with_first(parameters, named)
        common = [name for name in by if name in parameters.numbers]
        by = [name for name in by if name not in common and name not in of_shape]
        uniform = frozenset(n for n in by if n in parameters.fields and not named[n].ndim)
        gradient: dict[str, torch.Tensor] = {}
        shares = {name: torch.zeros((), dtype=torch.float64) for name in (*by, *common)}
        left, power = np.zeros(2), safe_power(largest_of(w.detach().numpy()))
        for strip, wide, lagrangian, counts in self._strips:
            before = {n: value.detach() for n, value in self._around(named, wide).items()}
            for name in uniform:
                before[name] = before[name].expand(sizes(wide))
            zero = torch.zeros((), dtype=torch.float64)
            leaves = {n: before.get(n, zero).detach().requires_grad_() for n in by}
            rises = {n: leaf for n, leaf in leaves.items() if n not in named}
            inputs_here = before | {n: leaf for n, leaf in leaves.items() if n in named}
            at = u[wide].detach().requires_grad_()
            total = lagrangian(Inputs(inputs_here, before, rises, uniform), at, v[wide], w[wide])
            variables = [at, *leaves.values()]
            product, *slopes = torch.autograd.grad(total, variables, materialize_grads=True)
            inside = within(strip, wide)
            for number, values in enumerate((product[inside] + w[strip], w[strip])):
                seen = power * torch.where(counts, values, 0.0).reshape(-1)
                left[number] += float(torch.dot(seen, seen))
            if common:  # which the equations of each node count once
                alone = torch.zeros_like(v[wide])
                alone[inside] = v[strip]
                numbers = [before[name].detach().requires_grad_() for name in common]
                inputs_here = before | dict(zip(common, numbers, strict=True))
                inputs = Inputs(inputs_here, before, uniform=uniform)
                total = lagrangian(inputs, at.detach(), alone, w[wide])
                of_common = torch.autograd.grad(total, numbers, materialize_grads=True)
                for name, slope in zip(common, of_common, strict=True):
                    shares[name] = shares[name] + slope
            for name, slope in zip(by, slopes, strict=True):
                if name in parameters.fields:
                    slope = slope[inside]  # of cells as of their lower left nodes
                    if named[name].ndim:
                        self._put(gradient, name, strip, slope)
                        continue
                    slope = slope.sum()
                shares[name] = shares[name] + slope
        shapes = {name: tuple(values.shape) for name, values in named.items()}
        to_first(self.parameters, gradient, shapes, self._own, add)
        for name in of_shape:
            shares[name] = torch.tensor(self._by_shape(name, named, u, v), dtype=torch.float64)
        return shares | gradient, left

    def _by_shape(
        self, name: str, named: Mapping[str, torch.Tensor], u: torch.Tensor, v: torch.Tensor
    ) -> float:
        """Return this process's share of the derivative by a parameter of the shape.

        By differences of fourth order of the equations at the solution, which take no solve.

        `ValueError` on all ranks alike, if the outline passes a node, or the middle of an edge or a cell, there.
        """
        parameters, whole = self.parameters, self.parameters.whole
        value, grid = parameters.of_shape[name], parameters.grid

        def moved(by: float) -> Domain:
            return parameters.domain_of({name: value + by})

        def level(by: float) -> np.ndarray:
            shape = moved(by).shape
            assert shape is not None
            return shape.level(grid, whole)

        probe = _PROBE * max(abs(value), grid.spacing)
        pace = _moved_by(level(0.0), level(probe)) / probe
        if not pace:
            return 0.0
        step = _MOVE / pace
        signs = [_signs(level(times * step)) for times in (-2, 2)]
        if not all(map(np.array_equal, *signs)):
            raise ValueError(
                f"the outline passes a node, or the middle of an edge or cell, at {name}={value:g}: there is no "
                "derivative by it; take another value"
            )
        total = 0.0
        for times, weight in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
            problem = parameters.problem.with_domain(moved(times * step))
            total += weight * InStrips(Parameters(problem), self._own).tested(named, u, v)
        return total / (12 * step)

    def tested(self, named: Mapping[str, torch.Tensor], u: torch.Tensor, v: torch.Tensor) -> float:
        """Return the sum of the adjoint times the equations of the own nodes, negative."""
        total = 0.0
        for strip, wide, lagrangian, _ in self._strips:
            data, at = self._around(named, wide), v[wide].detach().requires_grad_()
            equations = lagrangian(Inputs(data, data), u[wide], at, torch.zeros_like(at))
            (left,) = torch.autograd.grad(equations, at, materialize_grads=True)
            total += float((left[within(strip, wide)] * v[strip]).nansum())
        return total

    def counting(self, strip: Part, active: torch.Tensor) -> torch.Tensor:
        """Return at which nodes of a strip what is left is seen: at the ends of a periodic axis each has half of it."""
        counts, grid = active.clone(), self.parameters.grid
        periods = self.parameters.problem.conditions.periods(grid)
        for axis, (part, cells) in enumerate(zip(strip, periods, strict=True)):
            for end in () if cells is None else (0, cells):
                if part.start <= end < part.stop:
                    counts.select(axis, end - part.start).fill_(False)
        return counts

    def _put(
        self, gradient: dict[str, torch.Tensor], name: str, strip: Part, slope: torch.Tensor
    ) -> None:
        """Put the derivatives of a strip's values into those of all own ones."""
        first, last = strip[0].start - self._own[0].start, slope.shape[0]
        if name not in gradient:
            count = self._own[0].stop - self._own[0].start
            gradient[name] = slope.new_empty(count, *slope.shape[1:])
        gradient[name][first : first + last] = slope
        if first + last < len(gradient[name]) and strip[0].stop == self._own[0].stop:
            gradient[name] = gradient[name][: first + last]  # of cells, which are one row less


def require_converged(solution: Solution, what: str) -> None:
    """Raise `RuntimeError` unless it has."""
    if not solution.converged:
        raise RuntimeError(
            f"the {what} has not converged ({solution.status}): its gradient would be wrong; "
            "give more iterations or a larger tolerance"
        )


def require_solved(left: np.ndarray) -> None:
    """Raise `RuntimeError` if an adjoint contradicts its equations, by two sums of squares; see `InStrips`."""
    remains, asked = np.sqrt(left)
    if not remains <= _LEFT * asked:
        raise RuntimeError(
            f"the adjoint leaves {remains:.1e} of the functional's derivatives, more than {_LEFT * asked:.1e}: the "
            "solution is where the equation has no derivative, or rtol is too large; give smoother data, or a smaller one"
        )
