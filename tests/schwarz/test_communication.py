"""What an iteration costs the network and the memory: counted, not believed."""

import collections
import gc
import itertools
import tracemalloc

import numpy as np
import pytest
import torch
from mpi4py import MPI

from mosaicdd import Problem, SolveSettings, solve
from mosaicdd.parallel.halo import HaloExchange
from mosaicdd.parallel.ranks import CommunicatorLifetime, SerialComm

SEVERAL = pytest.mark.ranks(2, 3, 4, 6)


class Counting(MPI.Intracomm):
    """A communicator that counts collectives and refuses to pickle."""

    collectives = 0

    def Allreduce(self, *arguments, **named):  # noqa: N802 - MPI's name
        Counting.collectives += 1
        return super().Allreduce(*arguments, **named)

    def Allgatherv(self, *arguments, **named):  # noqa: N802 - MPI's name
        Counting.collectives += 1
        return super().Allgatherv(*arguments, **named)

    def _pickles(self, *arguments, **named):
        raise AssertionError("an object is pickled")

    send = isend = recv = bcast = gather = allgather = allreduce = alltoall = _pickles
    Bcast = Gather = Gatherv = Allgather = Alltoall = Alltoallv = Alltoallw = Reduce = _pickles


@pytest.fixture
def observed(make_lattice, make_solver, make_ranks, problem, monkeypatch):
    """Return a function that solves and gives what was counted after each iteration."""

    def solve(iterations=20, **settings):
        exchanges = []
        start = HaloExchange.start
        monkeypatch.setattr(
            HaloExchange,
            "start",
            lambda self, arrays: (exchanges.append(self), start(self, arrays)),
        )
        ranks = make_ranks()
        lattice = make_lattice((24, 24))
        boundary, _ = problem(lattice)
        settings = {"rtol": 0.0, "max_iterations": iterations} | settings
        solver = make_solver(lattice, ranks=ranks, **settings)
        monkeypatch.setattr(type(ranks._life), "comm", Counting(ranks.comm))
        seen = []
        Counting.collectives = 0

        def note(*_):
            seen.append((Counting.collectives, len(exchanges)))

        monkeypatch.setattr(solver, "_assemble", lambda *_: (None, [None], ([0.0], [1.0], [False])))
        solver.solve(boundary, progress=note)
        return seen, exchanges

    return solve


# All ranks have the level that is small, 47 x 47 nodes of 95 x 95, as the sum of what each has of its right-hand side.
IN_A_MEDIUM = {"Allreduce": 4, "halo": 2}
"""What an iteration has in which no residual is computed anew."""


@SEVERAL
def test_an_iteration_in_a_medium_has_few_collectives_and_exchanges(comm, monkeypatch):
    counts = collections.Counter()

    def counted(name):
        def call(self, *arguments, **named):
            counts[name] += 1
            return getattr(MPI.Intracomm, name)(self, *arguments, **named)

        return call

    names = {name for name in vars(Counting) if name[0].isupper()} | {"Bcast"}
    several = type("Several", (MPI.Intracomm,), {name: counted(name) for name in names})
    whole = CommunicatorLifetime.comm.fget
    counting = lambda ends: ends if isinstance(ends, SerialComm) else several(ends)
    monkeypatch.setattr(CommunicatorLifetime, "comm", property(lambda self: counting(whole(self))))
    start = HaloExchange.start
    monkeypatch.setattr(
        HaloExchange, "start", lambda *given: (counts.update(halo=1), start(*given))[1]
    )
    a = np.random.default_rng(0).uniform(1.0, 10.0, (97, 97))
    medium = Problem((96, 96), "diffusion", {"a": a, "f": 1.0})

    def after(iterations):
        counts.clear()
        settings = SolveSettings(rtol=1e-14, max_iterations=iterations)
        assert solve(medium, ranks=comm, settings=settings).iterations == iterations
        return counts.copy()

    few, more = after(1), after(3)
    assert more - few == {name: 2 * times for name, times in IN_A_MEDIUM.items()}


@SEVERAL
@pytest.mark.parametrize("levels", [1, 2])
def test_an_iteration_has_one_collective_and_one_exchange_and_pickles_nothing(levels, observed):
    seen, exchanges = observed(levels=levels)
    # The first is judged when the second has been done, the last at once; between, each is one.
    for before, after in itertools.pairwise(seen[1:-1]):
        assert after[0] - before[0] == 1
        assert after[1] - before[1] == 1
    assert max(exchange.messages for exchange in exchanges) <= 8


@SEVERAL
@pytest.mark.parametrize("depth", [2, 3])
def test_deeper_halos_are_exchanged_less_often(depth, observed):
    seen, _ = observed(halo_depth=depth)
    assert seen[-2][0] - seen[1][0] == len(seen) - 3
    exchanges = seen[1 + 4 * depth][1] - seen[1][1]
    assert exchanges == 4


@pytest.fixture
def iterate_and_watch(make_lattice, make_solver, make_ranks, problem, monkeypatch):
    """Return a function: 50 iterations, with something called after the 10th and the 40th."""

    def run(levels, begin, end):
        lattice = make_lattice((24, 24))
        boundary, _ = problem(lattice)
        most = 50
        for name in ("_PATIENCE", "_AT_ROUNDING"):  # no end before
            monkeypatch.setattr(f"mosaicdd.schwarz.monitor.{name}", most)
        settings = {"levels": levels, "rtol": 0.0, "max_iterations": most}
        calls = {10: begin, 40: end}
        solver = make_solver(lattice, ranks=make_ranks(), **settings)
        solver.solve(boundary, progress=lambda number, *_: calls.get(number, int)())

    return run


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("levels", [1, 2])
def test_thirty_iterations_leave_python_s_memory_as_it_was(levels, iterate_and_watch):
    held = []

    def note():
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        iterate_and_watch(levels, note, note)
    finally:
        tracemalloc.stop()
    before, after = held
    # The history grows by four numbers an iteration, 4 kB. An array of the lattice nodes has 4 kB:
    # kept in every iteration, it would be 126 kB.
    assert after - before < 40_000


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("levels", [1, 2])
def test_thirty_iterations_leave_torch_s_memory_as_it_was(levels, iterate_and_watch):
    activities = [torch.profiler.ProfilerActivity.CPU]
    profiler = torch.profiler.profile(activities=activities, profile_memory=True)
    iterate_and_watch(levels, profiler.start, profiler.stop)
    assert abs(sum(event.self_cpu_memory_usage for event in profiler.key_averages())) < 5000
