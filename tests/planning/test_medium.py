"""Plans in a medium: what falls with the ranks and what does not, and rates that do not know."""

import dataclasses

import pytest

from mosaicdd.planning.assumed import assumed_rates, completed, rates_of_name
from mosaicdd.planning.medium import plan_medium
from mosaicdd.planning.plan import Job
from mosaicdd.planning.rates import read_rates, write_rates


@pytest.fixture
def rates():
    return completed(rates_of_name("default", "float64"))[0]


def plan(make_lattice, rates, side=64, ranks=1, dims=None):
    return plan_medium(Job(make_lattice((side, side)), ranks, 8, 16), rates, dims)


def test_elements_are_shared_out_and_the_coarse_problem_is_not(make_lattice, rates):
    one, four = plan(make_lattice, rates), plan(make_lattice, rates, ranks=4, dims=(2, 2))
    assert four.memory.elements < 0.3 * one.memory.elements
    assert four.memory.coarse == one.memory.coarse
    assert four.cost.setup < one.cost.setup
    assert four.iteration["coarse"] == one.iteration["coarse"]
    assert (one.messages, one.bytes, one.gathered_bytes) == (0, 0, 0)
    assert four.messages == 12  # each rank of 2 x 2 to three others
    assert four.gathered_bytes > 8 * four.coarse_unknowns


def test_a_larger_domain_costs_as_many_times_more_as_it_has_nodes(make_lattice, rates):
    small, large = (plan(make_lattice, rates, side) for side in (255, 511))
    assert large.cost.total > 3.5 * small.cost.total
    assert large.memory.elements == pytest.approx(
        (511 / 255) ** 2 * small.memory.elements, rel=0.01
    )


def test_a_further_solve_spares_the_set_up(make_lattice, rates):
    made = plan(make_lattice, rates)
    assert made.again == pytest.approx(made.cost.total - made.cost.setup - made.cost.write)


def test_rates_of_media_are_read_back_and_may_be_missing(tmp_path, rates, make_lattice):
    path = tmp_path / "rates.json"
    write_rates(path, rates)
    assert read_rates(path).medium == rates.medium
    unknown = dataclasses.replace(rates, medium=None)
    write_rates(path, unknown)
    assert read_rates(path).medium is None
    with pytest.raises(ValueError, match="are not known for media; mosaicdd bench measures them"):
        plan(make_lattice, unknown)
    with pytest.raises(ValueError, match="are not known for media"):
        plan(make_lattice, completed(assumed_rates("a30", "float64"))[0])
