"""Multigrid on a GPU: fields are those of the processor; without a GPU on one that is pretended, see `pretended_gpu`."""

import numpy as np
import pytest
import torch
from media import MEDIA

import mosaicdd as m
from mosaicdd import Ranks
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.solvers.monitor import ResidualMonitor
from mosaicdd.solvers.multigrid import aggregates
from mosaicdd.solvers.multigrid import vector_operations as compiled
from mosaicdd.solvers.multigrid import vector_operations as sums
from mosaicdd.solvers.multigrid import vector_operations as vectors
from mosaicdd.solvers.multigrid.conjugate_gradients import FlexibleGradients
from mosaicdd.solvers.multigrid.level_partition import LevelBox, LevelPartition
from mosaicdd.solvers.multigrid.node_system import NodeEquations
from mosaicdd.solvers.settings import CONVERGED, StoppingRule

CELLS, BOX = (45, 52), (8, 10, 12)
TIGHT = m.SolveSettings(rtol=1e-11)
SIDES = {
    "left": m.Dirichlet("y"),
    "right": m.Robin(2.0, "x"),
    "top": m.Neumann(0.0),
    "bottom": m.Neumann("x"),
}
ROUND = {
    "left": m.Periodic(),
    "right": m.Periodic(),
    "top": m.Neumann(0.0),
    "bottom": m.Dirichlet(1.0),
}


def problem(kind, sides, *, cells=CELLS, domain=None, several=(), pde="diffusion", **more):
    rng = np.random.default_rng(0)
    nodes = tuple(n + 1 for n in cells)
    fields = {"a": MEDIA[kind](nodes, rng), "f": rng.standard_normal((*several, *nodes)), **more}
    return m.Problem(domain or m.Domain(cells, 1 / cells[-1]), pde, fields, sides)


def two_phases():
    """Return a problem of such a contrast that levels are float64, too, and aggregates are taken."""
    a = np.where(np.random.default_rng(0).random(CELLS) < 0.5, 1.0, 1e9)
    return m.Problem(m.Domain(CELLS, 1 / 52), "diffusion", {"a": a, "f": 1.0}, m.Dirichlet("x"))


def in_space():
    rng = np.random.default_rng(0)
    a = np.exp(rng.standard_normal([n + 1 for n in BOX]))
    return m.Problem(m.Domain(BOX, 1 / 12), "diffusion", {"a": a, "f": 1.0}, m.Dirichlet("x*y"))


DISK = m.Domain.from_distance(lambda x, y: np.hypot(x - 0.5, y - 0.45) - 0.4, CELLS, 1 / 52)
PROBLEMS = {
    "values": lambda: problem("noise", m.Dirichlet("sin(3*x) + y*y")),
    "sides": lambda: problem("noise", SIDES),
    "aggregates": two_phases,
    "periodic": lambda: problem("smooth", ROUND),
    "velocity": lambda: problem(
        "noise", SIDES, cells=(75, 80), pde="advection-diffusion", bx=20.0, by="x"
    ),  # of more nodes than are factorised at once
    "several": lambda: problem("noise", m.Dirichlet(0.0), several=(3,)),
    "a shape": lambda: problem("noise", m.Dirichlet("x*y"), domain=DISK),
    "insulated": lambda: m.Problem(
        m.Domain(CELLS, 1 / 52), "diffusion", {"a": "1 + x", "f": "x - 0.5"}, m.Neumann(0.0)
    ),
    "a tensor": lambda: m.Problem(
        m.Domain(CELLS, 1 / 52), "diffusion", {"axx": "2 + x", "axy": 1.0, "ayy": 2.0, "f": "x"}
    ),
    "in space": in_space,
}
REST = ("values", "insulated", "a shape", "periodic")  # which do what others do


def same(solution, expected):
    """Say whether fields of as many iterations are the same but for rounding.

    Rounding may cost one step more or less at the end; of biconjugate gradients a step is two iterations.
    """
    found, known = solution.gather(), expected.gather()
    assert solution.report["accelerate"] == "multigrid"
    assert {solution.status, expected.status} <= set(CONVERGED)
    step = 2 if solution.report["pde"] == "advection-diffusion" else 1
    assert abs(solution.iterations - expected.iterations) <= step
    assert np.nanmax(abs(found - known)) <= 1e-10 * (np.nanmax(known) - np.nanmin(known))
    return True


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.nightly if name in REST else ()) for name in PROBLEMS],
)
def test_fields_of_a_gpu_are_those_of_the_processor(name, request):
    expected = m.solve(PROBLEMS[name](), settings=TIGHT)
    request.getfixturevalue("on_gpu")
    assert same(m.solve(PROBLEMS[name](), settings=TIGHT.with_changes(device="cuda")), expected)


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize(
    "name",
    [
        "sides",
        *(
            pytest.param(name, marks=pytest.mark.nightly)
            for name in ("velocity", "aggregates", "periodic")
        ),
    ],
)
def test_ranks_with_gpus_send_what_those_without_do(comm, name, request):
    expected = m.solve(PROBLEMS[name](), ranks=comm, settings=TIGHT)
    request.getfixturevalue("on_gpu")
    settings = TIGHT.with_changes(device="cuda")
    assert same(m.solve(PROBLEMS[name](), ranks=comm, settings=settings), expected)


def solver_of(device):
    """Return what solves for the nodes inside a square of a medium."""
    a = np.exp(np.random.default_rng(0).standard_normal((2, 71, 71)))
    conductances = Conductances((a[0, :-1], a[1, :, :-1]), np.zeros((71, 71)))
    blocks = LevelBox(Ranks.alone(), LevelPartition([[(1, 69)]] * 2, 2), device)
    return FlexibleGradients(NodeEquations(blocks, conductances, (0, 0)))


def test_a_cycle_is_one_call_for_which_the_host_does_not_wait(on_gpu):
    if on_gpu is None:
        pytest.skip("this GPU counts no calls")
    known, solver = solver_of("cpu"), solver_of("cuda:0")
    for seed in range(2):
        b = np.random.default_rng(seed).standard_normal((69, 69))
        for each in (known, solver):
            each._cycle.right_hand_side.copy_(each.system.vector(b))
        before = on_gpu.calls, on_gpu.waits
        solver._cycle()
        assert (on_gpu.calls, on_gpu.waits) == (before[0] + 1, before[1])
        known._cycle()
        values = (each.system.values(each._cycle.values) for each in (known, solver))
        np.testing.assert_allclose(*values, rtol=0, atol=1e-5)


def test_an_iteration_waits_for_a_few_numbers(on_gpu):
    if on_gpu is None:
        pytest.skip("this GPU counts no waiting")
    solver = solver_of("cuda:0")
    system, waits = solver.system, []
    b, x = system.vector(np.ones((69, 69))), system.vector()

    def entered(*numbers):
        waits.append(on_gpu.waits)

    judge = ResidualMonitor(
        StoppingRule(1e-3, 0.0, 50), None, entered, None, lambda *_: None, lambda x: 0.0
    )
    assert solver(b, x, 69.0, judge) == "converged_rtol"
    assert len(waits) > 3
    assert max(np.diff(waits)) <= 6


@pytest.mark.parametrize("name", ["aggregates", "velocity", "a shape", "in space"])
def test_fields_do_not_depend_on_how_a_device_rounds(name, monkeypatch):
    def otherwise(sum_):
        total = 0.0 if sum_.base is None else sum_.base
        for first, second in reversed(sum_.products):
            total = total + first * second
        sum_.out.copy_(total if sum_.scale is None else total * sum_.scale)

    expected = m.solve(PROBLEMS[name](), settings=TIGHT)
    for module in (aggregates, compiled, sums, vectors):
        monkeypatch.setattr(module, "kernels", lambda: None)
    monkeypatch.setattr(sums.Sum, "__call__", otherwise)
    solution = m.solve(PROBLEMS[name](), settings=TIGHT)
    assert same(solution, expected)
    assert (solution.field != expected.field).any()


def test_what_a_gpu_would_not_take_is_said(on_gpu):
    if on_gpu is None:
        pytest.skip("this GPU is no pretended one")
    there, here = torch.zeros(3, device="cuda:0"), torch.zeros(3)
    for mixed in (
        lambda: there + here,
        lambda: torch.add(here, here, out=there),
        lambda: there.index_select(0, torch.zeros(1, dtype=int)),
    ):
        with pytest.raises(RuntimeError, match="mixed"):
            mixed()
    with pytest.raises(RuntimeError, match="numpy"):
        there.numpy()
    with pytest.raises(RuntimeError, match="capturing"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        float(there.sum())
    assert there.copy_(here + 2).tolist() == [2.0] * 3
