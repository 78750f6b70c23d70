"""Constant coefficients by transforms: against a sparse factorisation of matrices made here, and what is not theirs."""

import functools
import itertools

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import mosaicdd as m
from mosaicdd.schwarz.local_solvers.exact import Exact
from mosaicdd.solvers.transforms.sine_system import SineSystem

PAIRS = {2: (("bottom", "top"), ("left", "right"))}
PAIRS[3] = (("back", "front"), *PAIRS[2])
KINDS = ("vv", "vn", "nv", "nn", "pp")  # values, natural, periodic
IN_PLANE = list(itertools.product(KINDS, KINDS))
IN_SPACE = list(itertools.product(KINDS, KINDS, KINDS))
A_FEW = [kinds for kinds in IN_SPACE if sum(map(KINDS.index, kinds)) % 5 == 3][::2]


def along(cells, kind):
    """Return stiffness and volumes of an axis, between its nodes; of a periodic one its last node is the first."""
    n = cells if kind == "pp" else cells + 1
    edge = scipy.sparse.diags_array(
        [-np.ones(cells), np.ones(cells)], offsets=[0, 1], shape=(cells, cells + 1)
    )
    edge, volumes = edge.toarray(), np.ones(cells + 1)
    volumes[[0, -1]] = 0.5
    if kind == "pp":
        edge[:, 0] += edge[:, -1]
        edge, volumes = edge[:, :-1], np.ones(n)
    return edge.T @ edge, volumes


class Reference:
    """A problem of constant coefficients, and its solution by a sparse factorisation."""

    def __init__(self, cells, kinds, *, steps, a, c, seed=0):
        axes, self.kinds = len(cells), kinds
        every = [along(n, kind) for n, kind in zip(cells, kinds, strict=True)]
        nodes = [len(volumes) for _, volumes in every]
        volumes = functools.reduce(np.multiply.outer, [v for _, v in every])
        matrix = c * scipy.sparse.diags_array(volumes.ravel())
        for axis, (stiffness, _) in enumerate(every):
            parts = [
                scipy.sparse.csr_array(stiffness) if axis == other else scipy.sparse.diags_array(v)
                for other, (_, v) in enumerate(every)
            ]
            matrix = matrix + a[axis] / steps[axis] ** 2 * functools.reduce(
                scipy.sparse.kron, parts
            )
        places = np.meshgrid(
            *(h * np.arange(n) for h, n in zip(steps, nodes, strict=True)), indexing="ij"
        )
        # Values on sides, which between periodic ones are the same all along.
        varies = [axis for axis, kind in enumerate(kinds) if kind != "pp"]
        value = "1" + "".join(f"+cos({'xyz'[axes - 1 - axis]}+1)" for axis in varies)
        known, given = np.zeros(nodes, bool), 1 + sum(np.cos(places[axis] + 1) for axis in varies)
        f = np.random.default_rng(seed).standard_normal(nodes)
        right, self.sides = volumes * f, {}
        for axis, (pair, kind) in enumerate(zip(PAIRS[axes], kinds, strict=True)):
            for end, (name, letter) in enumerate(zip(pair, kind, strict=True)):
                side = tuple(-end if axis == other else slice(None) for other in range(axes))
                if letter == "v":
                    known[side], self.sides[name] = True, m.Dirichlet(value)
                elif letter == "n":
                    flux = 0.3 + axis - end
                    across = volumes[side] / 0.5  # of the node's half along the axis
                    right[side] += flux * across / steps[axis]
                    self.sides[name] = m.Neumann(flux)
                else:
                    self.sides[name] = m.Periodic()
        self.floating = not known.any() and c == 0
        if self.floating:
            excess = right.sum() / volumes.sum()
            f, right = f - excess, right - excess * volumes
            known[(0,) * axes], given = True, np.zeros(nodes)
        u, inside, matrix = np.where(known, given, 0.0), ~known.ravel(), matrix.tocsr()
        right = (right.ravel() - matrix @ u.ravel())[inside]
        u[~known] = scipy.sparse.linalg.spsolve(matrix[inside][:, inside].tocsc(), right)
        if self.floating:
            u -= (u * volumes).sum() / volumes.sum()
        pad = [(0, int(kind == "pp")) for kind in kinds]
        self.u, f = np.pad(u, pad, mode="wrap"), np.pad(f, pad, mode="wrap")
        names = [f"a{2 * letter}" for letter in "xyz"[:axes][::-1]]
        fields = dict(zip(names, a, strict=True)) | {"c": c, "f": f}
        spacing = steps[0] if len(set(steps)) == 1 else steps
        self.problem = m.Problem(m.Domain(cells, spacing), "diffusion", fields, self.sides)

    def require(self, solution):
        """Require that a solution is the same, to rounding and as it says."""
        assert solution.status == "converged_rtol"
        assert (solution.report["accelerate"], solution.report["iterations"]) == ("sines", 1)
        error = np.abs(solution.gather() - self.u)
        # Rounding times the condition, some (2 n / pi)^2 along the longest axis of 50 cells, with a margin.
        assert error.max() < 1e-12 * np.abs(self.u).max()
        assert np.sqrt(np.mean(error**2)) <= max(solution.error_estimate, 1e-13 * np.ptp(self.u))


def in_plane(kinds, **other):
    """Return a reference on cells that are no squares, with diffusion that differs by axis and a reaction."""
    return Reference((19, 24), kinds, **({"steps": (0.1, 0.07), "a": (1.0, 2.5), "c": 0.7} | other))


def in_space(kinds, **other):
    """Return one in a box of cubes."""
    return Reference(
        (10, 9, 11), kinds, **({"steps": (0.1,) * 3, "a": (1.0, 2.5, 0.4), "c": 0.0} | other)
    )


@pytest.mark.parametrize("kinds", IN_PLANE, ids="-".join)
def test_fields_are_those_of_a_factorisation_for_all_sides_of_a_rectangle(kinds):
    reference = in_plane(kinds)
    reference.require(m.solve(reference.problem, rtol=1e-10))


@pytest.mark.parametrize("kinds", [("nn", "nn"), ("pp", "nn"), ("pp", "pp")], ids="-".join)
def test_where_no_value_is_given_the_mean_is_zero(kinds):
    reference = in_plane(kinds, c=0.0)
    assert reference.floating
    reference.require(m.solve(reference.problem, rtol=1e-10))


@pytest.mark.parametrize("kinds", A_FEW, ids="-".join)
def test_fields_are_those_of_a_factorisation_in_a_box(kinds):
    reference = in_space(kinds)
    reference.require(m.solve(reference.problem, rtol=1e-10))


@pytest.mark.nightly
@pytest.mark.parametrize("kinds", IN_SPACE, ids="-".join)
def test_fields_are_those_of_a_factorisation_for_all_sides_of_a_box(kinds):
    reference = in_space(kinds)
    reference.require(m.solve(reference.problem, rtol=1e-10))


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("kinds", [("vv", "nv"), ("pp", "vn"), ("nn", "pp")], ids="-".join)
def test_fields_are_the_same_on_any_ranks(kinds, comm):
    reference = Reference((37, 50), kinds, steps=(0.1, 0.07), a=(1.0, 2.5), c=0.0)
    reference.require(m.solve(reference.problem, rtol=1e-10, ranks=comm))


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("around", [False, True])
def test_fields_in_a_box_are_those_of_one_rank(around, comm):
    sides = {"left": m.Neumann("cos(y)"), "top": m.Neumann(1.0)}
    if around:
        sides |= dict.fromkeys(("back", "front"), m.Periodic())
    fields = {"a": 2.0, "f": "sin(x*y)"}
    problem = m.Problem(m.Domain((24, 32, 24), 0.1), "diffusion", fields, sides)
    solution, alone = m.solve(problem, ranks=comm), m.solve(problem)
    assert solution.report["accelerate"] == alone.report["accelerate"] == "sines"
    # Transforms of an axis are the same bits; sums of residuals differ, and decide nothing.
    np.testing.assert_allclose(solution.gather(), alone.field, rtol=0, atol=1e-13)


@pytest.mark.ranks(1, 2)
def test_a_solve_that_is_wrong_has_not_converged(comm, monkeypatch):
    reference = Reference((48, 32), ("nv", "nn"), steps=(0.1, 0.1), a=(1.0, 1.0), c=0.0)
    with m.Solver(reference.problem, ranks=comm) as solver:
        plan = next(iter(solver._setup.bound.planned.values()))
        assert isinstance(plan, SineSystem)
        right = plan._inverted
        monkeypatch.setattr(plan, "_inverted", lambda b: 0.6 * right(b))
        gaining = solver()
        assert gaining.converged
        assert gaining.report["iterations"] > 10
        monkeypatch.setattr(plan, "_inverted", lambda b: 0.1 * right(b))
        solution = solver()
    assert solution.status == "stagnated"
    assert solution.report["discrete_residual"] > 0.5
    assert solution.error_estimate > 0.5 * np.sqrt(np.mean(reference.u**2))


def test_sources_of_many_problems_are_solved_one_after_another():
    reference = in_plane(("vn", "pp"))
    f = np.stack([reference.problem.fields["f"], 2 * reference.problem.fields["f"] + 1])
    f[1, :, -1] = f[1, :, 0]
    both = m.solve(reference.problem.with_fields(f=f), rtol=1e-10)
    assert both.report["iterations"] == 1
    for number in range(2):
        alone = m.solve(reference.problem.with_fields(f=f[number]), rtol=1e-10)
        np.testing.assert_array_equal(both.field[number], alone.field)


def test_a_net_inflow_is_refused_as_by_multigrid():
    sides, messages = dict.fromkeys(("left", "right", "bottom", "top"), m.Neumann(0.0)), []
    for fields in ({"f": 1.0}, {"f": 1.0, "a": np.ones((16, 16))}):
        with pytest.raises(ValueError, match="what flows in must flow out") as refusal:
            m.solve(m.Problem(m.Domain((16, 16), 0.1), "diffusion", fields, sides))
        messages.append(str(refusal.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize(
    ("fields", "sides"),
    [
        ({"a": np.full((17, 17), 2.0)}, {"left": m.Neumann(0.0)}),
        ({"c": "1+x"}, {"left": m.Neumann(0.0)}),
        ({"bx": 1.0}, {"left": m.Neumann(0.0)}),
        ({"axx": 1.0, "ayy": 1.0, "axy": 0.5}, {"left": m.Neumann(0.0)}),
        ({}, {"left": m.Robin(1.0, 0.0)}),
        ({}, {"left[0:0.5]": m.Neumann(0.0)}),
    ],
    ids=["field", "reaction", "velocity", "mixed", "exchange", "part"],
)
def test_where_equations_differ_from_node_to_node_multigrid_solves(fields, sides):
    pde = "advection-diffusion" if "bx" in fields else "diffusion"
    solution = m.solve(m.Problem(m.Domain((16, 16), 0.1), pde, fields | {"f": 1.0}, sides))
    assert solution.report["accelerate"] == "multigrid"


def test_what_is_asked_of_subdomains_is_done_by_these():
    problem = m.Problem(m.Domain((64, 64), 0.1), "diffusion", {"a": 2.0, "f": 1.0})
    assert m.solve(problem).report["accelerate"] == "sines"
    asked = m.solve(problem, settings=m.SolveSettings(accelerate="gmres"))
    assert asked.report["accelerate"] == "gmres"
    np.testing.assert_allclose(asked.field, m.solve(problem).field, atol=1e-5)


@pytest.mark.ranks(1, 2)
def test_steps_in_time_are_one_solve_each(comm):
    hot = m.Problem(m.Domain((32, 48), 0.1), "heat", {"f": "sin(x)*cos(t)"}, m.Dirichlet("t*y"))
    how = {"dt": 0.05, "steps": 6, "every": 6, "ranks": comm}
    series = m.march(hot, 0.0, **how)
    assert series.report["iterations"] == 6
    by_subdomains = m.march(hot, 0.0, local_solver=Exact(), rtol=1e-12, solver_share=0.0, **how)
    assert by_subdomains.report["iterations"] > 12
    # Both solve the same steps, one to rounding, the other to its tolerance.
    np.testing.assert_allclose(series.gather()[-1], by_subdomains.gather()[-1], atol=1e-9)
    assert series.balance().relative < 1e-9
