"""Domains that are insulated all round: a reaction that is zero everywhere holds no level, however it is given."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.parallel import machine
from mosaicdd.problems.fields.evaluated import Sliced

N = 32
BOX = m.Domain((N, 2 * N), 1 / N)
INSULATED = {side: m.Neumann() for side in ("left", "right", "top", "bottom")}
NOTHING = {
    "array": np.zeros((N + 1, 2 * N + 1)),
    "expression": "0*x",
    "function": lambda x, y: 0 * x * y,
    "number": 0.0,
    "held by a rank": Sliced.on_part(
        BOX.grid().nodes, np.zeros((N + 1, 2 * N + 1)), (slice(0, N + 1), slice(0, 2 * N + 1))
    ),
}
DISK = m.Domain.from_distance("hypot(x - 0.5, y - 0.5) - 0.4", (N, N), 1 / N)


def refusal(*arguments):
    with pytest.raises(ValueError, match="no value is given on any side") as failure:
        m.solve(m.Problem(*arguments))
    return str(failure.value)


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize("c", NOTHING.values(), ids=NOTHING)
def test_sources_that_cannot_flow_out_are_refused(comm, c):
    problem = m.Problem(BOX, "diffusion", {"c": c, "f": 1.0}, INSULATED)
    with pytest.raises(ValueError, match=r"100\.0% of the sources and fluxes are left over"):
        m.solve(problem, ranks=comm)


@pytest.mark.parametrize("pde", ["quasilinear-diffusion", "poisson-boltzmann"])
@pytest.mark.parametrize("c", NOTHING.values(), ids=NOTHING)
def test_so_are_equations_that_are_not_linear(pde, c):
    assert "give a value, robin, or the field c" in refusal(BOX, pde, {"c": c, "f": 1.0}, INSULATED)


def test_so_are_shapes():
    c = np.where(np.hypot(*(np.mgrid[: N + 1, : N + 1] / N - 0.5)) > 0.45, 1.0, 0.0)  # outside
    fields, sides = {"c": c, "f": 1.0}, {"outline": m.Neumann()}
    for pde in ("diffusion", "quasilinear-diffusion"):
        refusal(DISK, pde, fields, sides)


def test_a_reaction_at_one_node_holds_the_level():
    c = np.zeros((N + 1, 2 * N + 1))
    c[7, 9] = 1.0
    f = 5.0 * c
    solution = m.solve(m.Problem(BOX, "diffusion", {"c": c, "f": f}, INSULATED))
    assert solution.converged
    assert abs(solution.field - 5.0).max() < 1e-8


def test_a_field_that_the_memory_has_no_room_for_is_refused_unless_a_file_takes_its_strips(
    monkeypatch, tmp_path
):
    problem = m.Problem(m.Domain((2048, 2048)), "laplace", sides=m.Dirichlet("x"))
    interfaces, field = 4 * 2 * 2049**2 // 16 * 8, 8 * 2049**2
    monkeypatch.setattr(machine, "_usable", lambda: interfaces + field // 2)
    with pytest.raises(ValueError, match=r"needs at least .* an output, which takes the field"):
        m.Solver(problem)
    m.Solver(problem, output=tmp_path / "out.h5").close()
    m.Solver(problem, keep="interface").close()
