"""Random problems of whatever goes together: fields, comparisons, flows and means beside what is put together apart.

Domains are rectangles, boxes, masks of nodes, cells and voxels, distances and polygons; equations have coefficients that are
numbers, per node or per cell, as arrays of numpy's, torch's or xarray's, with masks or none; sides have values, fluxes and
exchange, on parts, too, or are periodic; and values are held inside. `drawn_problems` has the draws, `own_equations` the matrices.
"""

from dataclasses import replace

import numpy as np
import pytest
from drawn_problems import KINDS, WHOLE_CELLS, drawn
from own_equations import OwnSolution

import mosaicdd as m

RTOL = 1e-11
# Of the largest value, or of all that flows: what is left of RTOL by a condition of some ten thousand.
LEFT = 1e-7

SEEDS = [
    *range(2 * len(KINDS)),
    *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2 * len(KINDS), 400)),
]
LARGE = [
    *range(1000, 1000 + len(KINDS)),
    *(pytest.param(s, marks=pytest.mark.nightly) for s in range(1000 + len(KINDS), 1100)),
]


def field_of(solution):
    return np.asarray(solution.gather() if hasattr(solution, "gather") else solution.field)


def require_fields_alike(field, own):
    np.testing.assert_array_equal(np.isfinite(field), np.isfinite(own.u))
    np.testing.assert_allclose(field, own.u, rtol=0, atol=LEFT * np.nanmax(abs(own.u)))


def require_errors_reported(solution, rng):
    """Check that a comparison reports what is put in, at one node of each kind, and at all together."""
    field = field_of(solution)
    there, zero = np.isfinite(field), np.nan_to_num(field)
    size = np.abs(zero).max()
    off = size * rng.uniform(0.1, 1.0, field.shape) * rng.choice([-1.0, 1.0], field.shape)
    found = m.compare(solution, zero + off)
    known = abs(off[there])
    assert found.max_error == pytest.approx(known.max())
    assert found.mae == pytest.approx(known.mean())
    assert found.difference_norm == pytest.approx(np.linalg.norm(known))
    for node in rng.permutation(np.argwhere(there))[:3]:
        wrong = zero.copy()
        wrong[tuple(node)] += off[tuple(node)]
        found = m.compare(solution, wrong)
        assert found.max_error == pytest.approx(abs(off[tuple(node)]))
        assert found.mae == pytest.approx(abs(off[tuple(node)]) / there.sum())


def require_flows_alike(solution, p, own):
    """Check balances, flows and, where volumes are of whole cells, means."""
    balance = solution.balance()
    size = max(1.0, abs(own.sources), sum(abs(flow) for flow in balance.flows.values()))
    assert balance.relative < LEFT
    assert balance.sources == pytest.approx(own.sources, abs=LEFT * size)
    assert balance.reaction == pytest.approx(own.reaction, abs=LEFT * size)
    natural = {n for n, each in p.sides.items() if all(c.kind in ("flux", "exchange") for c in each)}  # fmt: skip
    outlines = {n for n in balance.flows if n in ("outer", "outline") or n.startswith("hole")}
    for name in sorted(natural & {*balance.flows} - outlines):
        assert balance.flows[name] == pytest.approx(own.flows[name], abs=LEFT * size)
        assert solution.flow(name) == pytest.approx(own.flows[name], abs=LEFT * size)
    held = sum(flow for n, flow in balance.flows.items() if n not in natural | outlines)
    expected = own.held + sum(own.flows[n] for n in p.sides if n not in natural | {"outline"})
    assert held == pytest.approx(expected, abs=LEFT * size)
    if "outline" in p.sides:
        expected = own.flows["outline"] + own.through_outline
        assert solution.flow("outline") == pytest.approx(expected, abs=LEFT * size)
    if p.kind in WHOLE_CELLS:
        assert solution.mean() == pytest.approx(own.mean, abs=LEFT * np.nanmax(abs(own.u)))


def crossed(seed, *, large):
    """Draw a problem with velocities, a tensor along the axes, or a reaction per cell."""
    rng, more = np.random.default_rng([seed, 4]), ("velocity", "tensor", "reaction")[seed % 3]
    kinds = ("rectangle", "box", "voxels") if more == "velocity" else WHOLE_CELLS
    p = drawn(seed, large=large, kind=str(rng.choice(kinds)))
    letters, fields = "xyz"[: len(p.cells)], dict(p.fields)
    if more == "velocity":
        shapes = [p.nodes if rng.random() < 0.5 else () for _ in letters]
        fields |= {f"b{x}": rng.uniform(-9.0, 9.0, s) for x, s in zip(letters, shapes, strict=True)}
        fields.setdefault("c", 0.5)
        return replace(p, fields=fields, pde="advection-diffusion")
    if more == "tensor":
        del fields["a"]
        fields |= {f"a{x}{x}": 10 ** rng.uniform(-1.5, 1.5, p.cells) for x in letters}
    fields["c"] = 0.1 + rng.random(p.cells)
    return replace(p, fields=fields)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("seed", [*range(2000, 2009), *(pytest.param(s, marks=pytest.mark.nightly) for s in range(2009, 2200))])  # fmt: skip
def test_velocities_tensors_and_reactions_per_cell_are_those_of_matrices(seed, comm):
    p = crossed(seed, large=comm.size > 1)
    solution = m.solve(p.problem, "exact", ranks=comm, rtol=RTOL)
    assert solution.converged
    require_fields_alike(field_of(solution), OwnSolution(p))
    assert solution.balance().relative < LEFT
    rough = m.solve(p.problem, "exact", ranks=comm, rtol=1e-4)
    error = np.sqrt(np.nanmean(np.square(field_of(rough) - field_of(solution))))
    # Of grids that one factorisation in float32 solves it is the error itself, to some hundredths.
    assert error <= 1.05 * rough.error_estimate + 1e-12 * np.nanmax(abs(field_of(solution)))


@pytest.mark.parametrize("seed", SEEDS)
def test_solutions_flows_and_comparisons_are_those_of_matrices(seed, tmp_path):
    p = drawn(seed)
    solution = m.solve(p.problem, rtol=RTOL)
    own, rng = OwnSolution(p), np.random.default_rng(seed)
    assert solution.converged
    solution.save(tmp_path / "out.h5")
    for each in (solution, m.read(tmp_path / "out.h5")):
        require_fields_alike(field_of(each), own)
        require_flows_alike(each, p, own)
        require_errors_reported(each, rng)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("seed", LARGE)
def test_ranks_say_the_same(seed, comm, common_path):
    p = drawn(seed, large=True)
    path = common_path / "out.h5"
    solution = m.solve(p.problem, ranks=comm, rtol=RTOL)
    own, rng = OwnSolution(p), np.random.default_rng(seed)
    solution.save(path)
    comm.Barrier()
    for each in (solution, m.read(path)):
        require_fields_alike(field_of(each), own)
        require_flows_alike(each, p, own)
        require_errors_reported(each, rng)
