"""The operator of a region most of whose nodes have the same equation."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.problems.discretisation.discretisation import Discretisation
from mosaicdd.problems.discretisation.region_equations import region_equations
from mosaicdd.problems.operators.medium import medium_of
from mosaicdd.schwarz.field_residual import CommonConductances

_HOLE = "0.3-sqrt((x-0.9)**2+(y-1.1)**2)"


@pytest.mark.parametrize("fields", [{"a": 1.0}, {"a": 0.7, "c": 3.0}, {"axx": 2.0, "ayy": 0.5}])
@pytest.mark.parametrize("outline", [None, m.Dirichlet(0.0), m.Robin(2.0, 1.0)])
def test_it_applies_what_the_conductances_do(fields, outline):
    """To rounding, in parts of the region, beside a hole and insulated and held sides."""
    cells = (96, 130)
    domain = m.Domain(cells, 1 / 64)
    sides = {"left": m.Dirichlet(0.0), "right": m.Neumann(0.0), "bottom": m.Neumann(0.0)}
    sides["top"] = m.Robin(3.0, 0.0)
    if outline is not None:
        domain = m.Domain.from_distance(_HOLE, cells, 1 / 64)
        sides["outline"] = outline
    equation = "diffusion" if "a" in fields else "anisotropic-diffusion"
    problem = m.Problem(domain, equation, fields, sides)
    grid = domain.grid(1 / 64)
    discretisation = Discretisation(problem, medium_of(problem.operator), grid)
    equations = region_equations(discretisation, tuple(slice(0, n) for n in grid.nodes))
    conductances = equations.conductances
    common = CommonConductances.of(conductances, equations.active)
    u = np.random.default_rng(0).standard_normal(grid.nodes) * equations.active
    exact = conductances.each(np.asarray).apply(u)
    for rows, columns in ((slice(1, 96), slice(1, 130)), (slice(40, 57), slice(33, 100))):
        ring = tuple(slice(p.start - 1, p.stop + 1) for p in (rows, columns))
        found = common.apply(u[ring], (rows, columns))
        there = tuple(slice(p.start - 1, p.stop - 1) for p in (rows, columns))
        assert abs(found - exact[there]).max() < 1e-13 * abs(exact).max()
