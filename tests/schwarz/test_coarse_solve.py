"""The coarse problem solved by every rank as a whole, and by all ranks together."""

import numpy as np
import pytest

from mosaicdd.schwarz import coarse_space as coarse_solve

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)


@RANKS
@pytest.mark.parametrize("halo_depth", [1, 2])
def test_a_coarse_problem_too_large_for_one_rank_is_solved_by_all_to_the_same_field(
    halo_depth, make_lattice, make_solver, make_ranks, all_dims, problem, monkeypatch
):
    lattice = make_lattice((14, 15))
    boundary, _ = problem(lattice)
    settings = {"halo_depth": halo_depth, "rtol": 1e-9}
    replicated = make_solver(lattice, **settings).solve(boundary)
    monkeypatch.setattr(coarse_solve, "coarse_is_replicated", lambda nodes, ranks: ranks == 1)
    for ranks in map(make_ranks, all_dims):
        solution = make_solver(lattice, ranks=ranks, **settings).solve(boundary)
        assert solution.iterations == replicated.iterations
        # Transforms of 13 x 14 nodes in another order: a few eps of values below 4 each iteration.
        np.testing.assert_allclose(
            solution.field, replicated.field[solution.place], rtol=0, atol=1e-13
        )
