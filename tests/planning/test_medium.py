"""Plans in a medium: what is sent, what falls with the ranks, and rates that do not know."""

import dataclasses

import numpy as np
import pytest

from mosaicdd import Domain, Periodic, Problem, Solver
from mosaicdd.local_solvers.exact import nodes_of_media, values_given
from mosaicdd.parallel.halo import HaloExchange
from mosaicdd.planning.medium import plan_medium
from mosaicdd.planning.plan import Job
from mosaicdd.planning.rates import completed, rates_of_name, read_rates, write_rates
from mosaicdd.schwarz.settings import SolveSettings


@pytest.fixture
def rates():
    return completed(rates_of_name("default", "float64"))[0]


def plan(rates, cells, ranks=1, dims=None, sides=None, per_node=8):
    problem = Problem(Domain(cells), "diffusion", {"a": 1.0, "f": 1.0}, **(sides or {}))
    lattice = nodes_of_media(problem, problem.domain.grid())
    job = Job(lattice, ranks, per_node, 12, values_given=values_given(problem))
    return plan_medium(job, rates, dims)


@pytest.mark.ranks(2, 4, 6)
@pytest.mark.parametrize(
    ("cells", "sides"),
    [
        ((192, 256), {}),
        ((167, 150), {"sides": {"left": Periodic(), "right": Periodic()}}),
        ((48, 40, 64), {}),
    ],
    ids=["plane", "around", "space"],
)
def test_messages_and_bytes_are_those_of_an_iteration(comm, rates, monkeypatch, cells, sides):
    sent = np.zeros(2, np.int64)
    start = HaloExchange.start

    def counting(exchange, arrays):
        sent[:] += exchange.messages, exchange.words * arrays[0].element_size()
        start(exchange, arrays)

    made = plan(rates, cells, comm.size, sides=sides)
    a = np.exp(np.sin(np.arange(np.prod([n + 1 for n in cells])))).reshape([n + 1 for n in cells])
    a[..., -1] = a[..., 0]
    problem = Problem(Domain(cells), "diffusion", {"a": a, "f": 1.0}, **sides)

    def counted(iterations):
        settings = SolveSettings(rtol=1e-14, max_iterations=iterations, dims=made.dims)
        with Solver(problem, ranks=comm, settings=settings) as solver:
            sent[:] = 0
            assert solver(problem).iterations == iterations
        return comm.allreduce(sent.copy())

    monkeypatch.setattr(HaloExchange, "start", counting)
    assert (made.messages, made.bytes) == tuple(counted(3) - counted(2))


def test_no_rank_has_more_than_its_share_and_copies(rates):
    one, several = plan(rates, (4096, 4096)), plan(rates, (4096, 4096), 64)
    assert one.memory_over_share <= 1.0
    assert several.memory_over_share < 1.3
    assert several.memory.levels < 1.5 * one.memory.levels / 64
    assert (one.messages, one.bytes, one.gathered_bytes) == (0, 0, 0)
    assert one.efficiency == pytest.approx(1.0)
    assert several.levels[0].nodes == one.levels[0].nodes == 4095**2
    assert several.levels[-1].most == several.levels[-1].nodes < 5000


def test_an_iteration_takes_ever_less_on_more_ranks(rates):
    seconds = [
        sum(plan(rates, (4096, 4096), ranks, per_node=64).iteration.values())
        for ranks in (1, 4, 16, 64)
    ]
    assert all(np.diff(seconds) < 0)
    assert seconds[-1] < seconds[0] / 20


def test_a_larger_box_costs_as_many_times_more_as_it_has_nodes(rates):
    small, large = (plan(rates, (side,) * 3) for side in (128, 256))
    assert large.cost.iterate == pytest.approx(8 * small.cost.iterate, rel=0.05)
    assert large.memory.levels == pytest.approx(8 * small.memory.levels, rel=0.05)


def test_a_further_solve_spares_the_set_up(rates):
    made = plan(rates, (512, 512))
    assert made.again == pytest.approx(made.cost.total - made.cost.setup - made.cost.write)


def test_rates_of_media_are_read_back_and_may_be_missing(tmp_path, rates):
    path = tmp_path / "rates.json"
    write_rates(path, rates)
    assert read_rates(path).media == rates.media
    assert [known.axes for known in rates.media] == [2, 3]
    unknown = dataclasses.replace(rates, media=rates.media[:1])
    write_rates(path, unknown)
    assert read_rates(path).media == rates.media[:1]
    with pytest.raises(ValueError, match="not known for media on the axes zyx; mosaicdd bench"):
        plan(unknown, (64, 64, 64))
