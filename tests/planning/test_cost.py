"""The model of cost: rates, how it behaves, and that it is quick for very many ranks."""

import dataclasses
import json

import pytest

from mosaicdd.parallel.partition import fitting_dims
from mosaicdd.planning.cost import iteration_cost, memory_of_rank, solve_cost
from mosaicdd.planning.decomposition import Decomposition, best_bricks, row_wise
from mosaicdd.planning.plan import Job, make_plan
from mosaicdd.planning.rates import (
    Curve,
    Link,
    completed,
    rates_of_name,
    read_rates,
    write_rates,
)
from mosaicdd.schwarz.sizes import coarse_is_replicated


@pytest.fixture(params=["float64", "float32", "on a device"])
def rates(request):
    """Return rates of a processor, and of a device beside it, all links known."""
    dtype = request.param if request.param.startswith("float") else "float32"
    known, _ = completed(rates_of_name("default", dtype))
    if dtype == request.param:
        return known
    return dataclasses.replace(known, device="cuda", staging=Link(1e-5, 25e9), media=())


def planned(lattice, ranks):
    return Decomposition(lattice, fitting_dims(ranks, lattice.subdomains)[0])


def cost(lattice, ranks, rates, per_node=8, halo=1):
    decomposition = planned(lattice, ranks)
    order = row_wise(decomposition.dims, per_node)
    return iteration_cost(decomposition, order, rates, halo)


def test_a_larger_domain_takes_longer_on_as_many_ranks(make_lattice, rates):
    costs = [cost(make_lattice((k, k)), 4, rates).total for k in (16, 64, 256, 1000)]
    assert costs == sorted(costs)
    assert costs[-1] > 2 * costs[0]


def test_more_ranks_sweep_sooner_and_talk_more(make_lattice, rates):
    lattice = make_lattice((256, 256))
    costs = [cost(lattice, ranks, rates) for ranks in (1, 4, 16, 64, 256)]
    sweeps, gathers = [c.sweep for c in costs], [c.gather for c in costs]
    assert sweeps == sorted(sweeps, reverse=True)
    assert gathers == sorted(gathers)
    assert costs[0].gather == costs[0].halo == 0.0


def test_slower_links_never_make_an_iteration_faster(make_lattice, rates):
    lattice = make_lattice((256, 256))
    slow = {
        name: Link(10 * link.latency, link.bandwidth / 10)
        for name in ("within_node", "between_nodes", "gather")
        for link in [getattr(rates, name)]
    }
    assert (
        cost(lattice, 64, dataclasses.replace(rates, **slow)).total > cost(lattice, 64, rates).total
    )


def test_no_more_of_the_exchange_is_hidden_than_it_takes(make_lattice, rates):
    for ranks in (2, 16, 256):
        for halo in (1, 2, 3, 4):
            spent = cost(make_lattice((128, 128)), ranks, rates, halo=halo)
            assert 0 <= spent.hidden <= min(spent.halo, spent.sweep)


def test_a_deep_halo_exchanges_less_often_and_sweeps_more(make_lattice, rates):
    lattice = make_lattice((129, 129))
    shallow, deep = (cost(lattice, 64, rates, halo=halo) for halo in (1, 4))
    assert deep.halo < shallow.halo
    assert deep.sweep > shallow.sweep


def test_a_halo_deeper_than_the_blocks_is_refused(make_lattice, rates):
    with pytest.raises(
        ValueError, match=r"a halo of depth 3 needs blocks of 3 subdomains at least"
    ):
        cost(make_lattice((9, 9)), 16, rates, halo=3)


def test_memory_falls_with_ranks_and_the_shared_coarse_solve_does_not_grow(make_lattice, rates):
    lattice = make_lattice((2001, 2001))
    assert not coarse_is_replicated(lattice.subdomains[0] ** 2, 4)
    memories = [memory_of_rank(planned(lattice, ranks), rates) for ranks in (1, 4, 64, 1024)]
    totals, coarse = [m.total for m in memories], [m.coarse for m in memories]
    assert totals == sorted(totals, reverse=True)
    assert coarse[-1] * 900 < coarse[0]


def test_the_parts_of_a_solve_add_up(make_lattice, rates):
    decomposition = planned(make_lattice((128, 128)), 4)
    order = best_bricks(decomposition, 2)
    iteration = iteration_cost(decomposition, order, rates)
    once, twelve = (solve_cost(decomposition, iteration, rates, n) for n in (1, 12))
    assert twelve.total - once.total == pytest.approx(11 * iteration.total, rel=1e-12)


def test_suggested_replicas_keep_all_ranks_busy_where_messages_cost(make_lattice, rates):
    lattice = make_lattice((32, 32))
    made = make_plan(Job(lattice, 64, 8, problems=64), rates)
    assert made.suggestion.replicas > 1
    assert make_plan(Job(lattice, 64, 8), rates).suggestion.replicas == 1


def test_suggested_dims_and_halo_are_within_a_hundredth_of_the_fastest(make_lattice, rates):
    lattice = make_lattice((257, 65))
    made = make_plan(Job(lattice, 16, 16), rates)
    for dims in fitting_dims(16, lattice.subdomains):
        other = make_plan(Job(lattice, 16, 16), rates, dims)
        row = other.orders[0].iteration.total
        assert made.orders[0].iteration.total <= 1.01 * row
    by_depth = made.suggestion.halo_seconds
    assert by_depth[made.suggestion.halo] <= 1.01 * min(by_depth.values())


def test_a_hundred_thousand_ranks_are_all_counted(make_lattice, rates):
    lattice = make_lattice((8192, 8192))
    made = make_plan(Job(lattice, 10**5, 128, problems=3), rates)
    y, x = made.dims
    assert made.counts.messages == 2 * (y * (x - 1) + (y - 1) * x + 2 * (y - 1) * (x - 1))
    assert not made.replicated


def test_rates_come_back_from_their_file_as_they_were(tmp_path, rates):
    write_rates(tmp_path / "rates.json", rates)
    assert vars(read_rates(tmp_path / "rates.json")) == vars(rates)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"copy": -1.0}, "copy must be a positive number, got -1.0"),
        ({"copy": float("nan")}, "copy must be a positive number, got nan"),
        ({"sweep": {"amounts": [2, 1], "seconds": [1, 2]}}, "must rise"),
        ({"sweep": {"amounts": [1, 2], "seconds": [1]}}, "as many seconds as amounts"),
        ({"dtype": "float16"}, "dtype must be float32 or float64, got 'float16'"),
        ({"new": 1}, r"missing or unknown: \['new'\]"),
        ({"format": "mosaicdd rates 99"}, "not a rates file of this version"),
    ],
)
def test_impossible_rates_are_refused_with_the_file_s_name(tmp_path, change, message):
    path = tmp_path / "rates.json"
    write_rates(path, rates_of_name("default", "float64"))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=message) as refused:
        read_rates(path)
    assert str(refused.value).startswith(str(path))


def test_a_curve_is_linear_between_and_proportional_beyond():
    curve = Curve((10.0, 20.0), (1.0, 3.0))
    assert [float(curve(amount)) for amount in (1, 10, 15, 20, 40)] == [1.0, 1.0, 2.0, 3.0, 6.0]


def test_a_file_of_0_1_0_is_read(tmp_path, rates):
    path = tmp_path / "rates.json"
    write_rates(path, rates)
    path.write_text(json.dumps({"assumed": False} | json.loads(path.read_text())))
    assert vars(read_rates(path)) == vars(rates)


def test_links_that_were_not_measured_are_said_to_be_assumed():
    measured = rates_of_name("default", "float64")
    known, missing = completed(measured)
    assert missing == [
        n for n in ("within_node", "between_nodes", "gather") if getattr(measured, n) is None
    ]
    assert None not in (known.within_node, known.between_nodes, known.gather)
