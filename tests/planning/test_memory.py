"""Memory that a plan states: what it grows with, and how evenly ranks share it."""

import pytest

from mosaicdd import Domain, Problem
from mosaicdd.parallel.partition import fitting_dims
from mosaicdd.planning.counts import Decomposition, count_levels, levels_on
from mosaicdd.planning.memory import levels_over_share, memory_of_levels, memory_of_subdomains
from mosaicdd.problems.discretisation.system import nodes_of_media


def levels(cells, ranks):
    """Return the levels of a medium, and the process grid that they lie on."""
    problem = Problem(Domain(cells), "diffusion", {"a": 1.0, "f": 1.0})
    boxes = nodes_of_media(problem, problem.domain.grid())
    dims = fitting_dims(ranks, boxes.counts)[0]
    return levels_on(boxes, dims, values_given=True), dims


def test_subdomains_take_less_on_more_ranks_and_the_shared_coarse_solve_does_not_grow(make_lattice):
    lattice = make_lattice((2001, 2001))
    planned = [Decomposition(lattice, dims) for dims in ((1, 1), (2, 2), (8, 8), (32, 32))]
    assert not planned[1].replicated
    memories = [memory_of_subdomains(each, "float64") for each in planned]
    totals = [memory["total"] for memory in memories]
    assert totals == sorted(totals, reverse=True)
    assert memories[-1]["coarse"] * 900 < memories[0]["coarse"]


def test_no_rank_has_more_than_its_share_of_levels_and_copies():
    (one, on_one), (several, _) = levels((4096, 4096), 1), levels((4096, 4096), 64)
    assert levels_over_share(one, 1) <= 1.0
    assert levels_over_share(several, 64) < 1.3
    assert memory_of_levels(several)["levels"] < 1.5 * memory_of_levels(one)["levels"] / 64
    counts = count_levels(one, on_one)
    assert (counts.messages, counts.bytes, counts.gathered_bytes) == (0, 0, 0)
    assert several[0].count == one[0].count == 4095**2
    assert several[-1].held().max() == several[-1].count < 5000


def test_a_larger_box_takes_as_many_times_more_as_it_has_nodes():
    small, large = (memory_of_levels(levels((side,) * 3, 1)[0]) for side in (128, 256))
    assert large["levels"] == pytest.approx(8 * small["levels"], rel=0.05)
