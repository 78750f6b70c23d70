"""First derivatives of a Lagrangian, some rows of nodes at a time, so that all of them stay in the cache."""

import functools
import math
from collections.abc import Callable, Collection, Mapping

import numpy as np
import torch

from mosaicdd.axes import ends, even, within
from mosaicdd.gradients.lagrangian import Lagrangian
from mosaicdd.gradients.nonlinear import lagrangian_of, to_first, with_first
from mosaicdd.gradients.parameters import Parameters
from mosaicdd.parallel.safe_norms import largest_of, safe_power
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.fields.fields import Part

_STRIP = 2**17  # nodes
_MOVE = 1e-5  # of a cell, that an outline moves for differences
_PROBE = 1e-6  # of a parameter, to see how far it moves the outline


def _signs(level: np.ndarray) -> list[np.ndarray]:
    """Return the signs of a level at the nodes, and in the middles of edges and cells."""
    every = [level, level[1:] + level[:-1], level[:, 1:] + level[:, :-1]]
    every.append(every[1][:, 1:] + every[1][:, :-1])
    return [np.sign(values) for values in every]


def _moved_by(level: np.ndarray, other: np.ndarray) -> float:
    """Return how many cells an outline moves at most from one level to another, whatever the units of these."""
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

    ``own``: these nodes, of the whole grid.
    """

    def __init__(self, parameters: Parameters, own: Part):
        self._parameters, self._own = parameters, own
        kind, reach = lagrangian_of(parameters), Lagrangian.reach(parameters)
        rows = max(1, _STRIP // math.prod(p.stop - p.start for p in own[1:]))
        self._strips: list[tuple[Part, Part, Lagrangian, torch.Tensor]] = []
        for part in even(own[0].stop - own[0].start, rows):
            first = own[0].start
            strip = (slice(first + part.start, first + part.stop), *own[1:])
            wide = tuple(
                slice(max(p.start - reach, 0), min(p.stop + reach, n))
                for p, n in zip(strip, parameters.grid.nodes, strict=True)
            )
            lagrangian = kind(parameters, strip, wide)
            counts = self.counting(strip, lagrangian.active[within(strip, wide)])
            self._strips.append((strip, wide, lagrangian, counts))

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

    def __call__(
        self,
        named: Mapping[str, torch.Tensor],
        by: Collection[str],
        u: torch.Tensor,
        v: torch.Tensor,
        w: torch.Tensor,
        add: Callable[[np.ndarray], np.ndarray] = lambda values: values,
    ) -> tuple[dict[str, torch.Tensor], np.ndarray]:
        """Return the derivatives by what is named, and how much the adjoint leaves of the functional's.

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
        fields, nodes = self._parameters.fields, self._parameters.grid.nodes
        of_shape = [name for name in self._parameters.of_shape if name in by]
        named = {
            name: value for name, value in named.items() if name not in self._parameters.of_shape
        }
        named = with_first(self._parameters, named)
        common = [name for name in by if name in self._parameters.numbers]
        by = [name for name in by if name not in common and name not in of_shape]
        gradient: dict[str, torch.Tensor] = {}
        shares = {name: torch.zeros((), dtype=torch.float64) for name in (*by, *common)}
        left, power = np.zeros(2), safe_power(largest_of(w.detach().numpy()))
        for strip, wide, lagrangian, counts in self._strips:
            cells = tuple(slice(p.start, p.stop - 1) for p in wide)
            here, numbers = dict[str, torch.Tensor](), set[str]()
            for name, value in named.items():
                if name in fields and value.ndim:
                    here[name] = value[wide if value.shape == nodes else cells]
                elif name in fields and name in by:
                    here[name] = value.expand([p.stop - p.start for p in wide])
                    numbers.add(name)
                else:
                    here[name] = value
            lagrangian.uniform = frozenset(numbers)
            before = {name: value.detach() for name, value in here.items()}
            here = before | {
                name: before[name].detach().requires_grad_() for name in by if name in named
            }
            rises = {
                name: torch.zeros((), dtype=torch.float64, requires_grad=True)
                for name in by
                if name not in named
            }
            at = u[wide].detach().requires_grad_()
            total = lagrangian(here, before, at, v[wide], w[wide], rises)
            leaves = [at, *((here if name in here else rises)[name] for name in by)]
            product, *slopes = torch.autograd.grad(total, leaves, materialize_grads=True)
            inside = within(strip, wide)
            for number, values in enumerate((product[inside] + w[strip], w[strip])):
                seen = power * torch.where(counts, values, 0.0).reshape(-1)
                left[number] += float(torch.dot(seen, seen))
            if common:  # which the equations of each node count once
                alone = torch.zeros_like(v[wide])
                alone[inside] = v[strip]
                leaves = [before[name].detach().requires_grad_() for name in common]
                here = before | dict(zip(common, leaves, strict=True))
                total = lagrangian(here, before, at.detach(), alone, w[wide], {})
                of_common = torch.autograd.grad(total, leaves, materialize_grads=True)
                for name, slope in zip(common, of_common, strict=True):
                    shares[name] = shares[name] + slope
            for name, slope in zip(by, slopes, strict=True):
                if name in fields:
                    slope = slope[inside]  # of cells as of their lower left nodes
                    if named[name].ndim:
                        self._put(gradient, name, strip, slope)
                        continue
                    slope = slope.sum()
                shares[name] = shares[name] + slope
        shapes = {name: tuple(values.shape) for name, values in named.items()}
        to_first(self._parameters, gradient, shapes, self._own, add)
        for name in of_shape:
            shares[name] = torch.tensor(self._by_shape(name, named, u, v), dtype=torch.float64)
        return shares | gradient, left

    def _by_shape(
        self, name: str, named: Mapping[str, torch.Tensor], u: torch.Tensor, v: torch.Tensor
    ) -> float:
        """Return the share of the own nodes of the derivative by a parameter of the shape.

        By differences of fourth order of the equations at the solution, which take no solve.

        `ValueError` on all ranks alike, if the outline passes a node, or the middle of an edge or a cell, there.
        """
        parameters, whole = self._parameters, self._parameters.whole
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
        fields, nodes, total = self._parameters.fields, self._parameters.grid.nodes, 0.0
        for strip, wide, lagrangian, _ in self._strips:
            cells = tuple(slice(p.start, p.stop - 1) for p in wide)
            here = {
                name: value[wide if value.shape == nodes else cells]
                if name in fields and value.ndim
                else value
                for name, value in named.items()
            }
            lagrangian.uniform = frozenset()
            at = v[wide].detach().requires_grad_()
            equations = lagrangian(here, here, u[wide], at, torch.zeros_like(at), {})
            (left,) = torch.autograd.grad(equations, at, materialize_grads=True)
            total += float((left[within(strip, wide)] * v[strip]).nansum())
        return total

    def counting(self, strip: Part, active: torch.Tensor) -> torch.Tensor:
        """Return at which nodes of a strip what is left is seen: at the ends of a periodic axis each has half of it."""
        counts, grid = active.clone(), self._parameters.grid
        periods = self._parameters.problem.conditions.periods(grid)
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


class OnDomain:
    """The equations in one domain, with an adjoint, planned where they are first needed.

    Of all nodes at once, as second derivatives need them, and in strips.
    """

    def __init__(self, parameters: Parameters):
        self.parameters = parameters

    @functools.cached_property
    def lagrangian(self) -> Lagrangian:
        """That of all nodes at once."""
        return lagrangian_of(self.parameters)(self.parameters, *[self.parameters.whole] * 2)

    @functools.cached_property
    def strips(self) -> InStrips:
        """The same, some rows at a time."""
        return InStrips(self.parameters, self.parameters.whole)
