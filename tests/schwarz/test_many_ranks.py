"""One to sixteen ranks: the same iterations, the same solution, whatever the depth of the halos."""

import numpy as np
import pytest
from mpi4py import MPI

from mosaicdd import Ranks

# As in test_ranks.py.
RELATIVE = 1e-12


def require_equal(solution, serial):
    """Check this rank's part, and the numbers of the whole, against the serial solution."""
    assert solution.status == serial.status == "converged_rtol"
    assert solution.iterations == serial.iterations
    scale = serial.field.abs().max().item()
    np.testing.assert_allclose(
        solution.field, serial.field[solution.place], rtol=0, atol=RELATIVE * scale
    )


@pytest.mark.ranks(4, 6, 16)
def test_any_number_of_ranks_up_to_sixteen(comm, make_lattice, make_solver, problem):
    lattice = make_lattice((20, 21))
    boundary, _ = problem(lattice)
    serial = make_solver(lattice).solve(boundary)
    for size in range(1, comm.size + 1):
        part = comm.Split(0 if comm.rank < size else MPI.UNDEFINED)
        if part != MPI.COMM_NULL:
            ranks = Ranks.of(part).fitted(lattice.subdomains)
            require_equal(make_solver(lattice, ranks=ranks).solve(boundary), serial)
            part.Free()
        comm.Barrier()


@pytest.mark.ranks(1, 2, 3, 4, 6, 16)
@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_halos_of_any_depth(
    depth, levels, make_lattice, make_solver, make_ranks, all_dims, problem
):
    lattice = make_lattice([3 * max(dims[axis] for dims in all_dims) + 3 for axis in (0, 1)])
    boundary, _ = problem(lattice)
    settings = {
        "levels": levels,
        "sweep": "additive",
        "rtol": 1e-6 if levels == 1 else 1e-10,
        "max_iterations": 40,
    }
    serial = make_solver(lattice, **settings).solve(boundary)
    for ranks in map(make_ranks, all_dims[:: max(1, len(all_dims) // 3)]):
        solution = make_solver(lattice, ranks=ranks, halo_depth=depth, **settings).solve(boundary)
        assert solution.iterations == serial.iterations
        np.testing.assert_allclose(
            solution.field,
            serial.field[solution.place],
            rtol=0,
            atol=RELATIVE * serial.field.abs().max().item(),
        )


@pytest.mark.ranks(2, 4)
def test_a_halo_deeper_than_a_rank_s_block_is_refused(
    make_lattice, make_solver, make_ranks, problem
):
    lattice = make_lattice((5, 5))
    with pytest.raises(ValueError, match="halo_depth=2"):
        make_solver(lattice, ranks=make_ranks(), halo_depth=3)
