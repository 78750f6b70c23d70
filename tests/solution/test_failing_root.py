"""A file that the root cannot write is an error of all ranks of a program, which wait for nobody."""

import numpy as np
import pytest

import mosaicdd as m

pytestmark = pytest.mark.ranks(1, 2, 3)
PROBLEM = m.Problem(m.Domain((64, 64)), "laplace", sides=m.Dirichlet("sin(3*x) + y"))
HOT = m.Problem(m.Domain((64, 64)), "heat", {"f": "1"})


def test_a_checkpoint_of_a_solve(comm, lost):
    folder, lose = lost
    output = m.Output(folder / "out.h5", checkpoint_minutes=0)
    solver = m.Solver(PROBLEM, ranks=comm, output=output, settings=m.SolveSettings(rtol=1e-8))
    lose()
    with pytest.raises(OSError, match=r"out.h5.checkpoint.*does not exist"):
        solver()


@pytest.mark.parametrize("minutes", [0, 10], ids=["checkpoint", "series"])
def test_a_checkpoint_of_a_march_and_its_series(comm, lost, minutes):
    folder, lose = lost
    output = m.Output(folder / "out.h5", checkpoint_minutes=minutes)
    with pytest.raises(OSError, match=r"out.h5.*does not exist"):
        m.march(HOT, "x", dt=0.1, steps=3, ranks=comm, output=output, progress=lose)


def test_a_series_that_is_saved(comm, lost):
    folder, lose = lost
    series = m.march(HOT, "x", dt=0.1, steps=1, ranks=comm)
    lose()
    with pytest.raises(OSError, match="does not exist"):
        series.save(folder / "out.h5")


class OwnError(ValueError):
    """Python's own machinery can send it, but not make it again."""

    def __init__(self, number, *, unit):
        super().__init__(f"{number} {unit} are too many")
        self.how = lambda: number  # and this it cannot send


@pytest.mark.parametrize("rank", [0, 2])
def test_an_error_that_cannot_be_sent(comm, make_ranks, rank):
    def fail():
        if comm.rank == rank % comm.size:
            raise OwnError(3, unit="holes")

    with pytest.raises(ValueError, match="3 holes are too many"):
        make_ranks().run_on_all(fail)


def test_what_takes_parts_or_makes_them(comm, make_ranks):
    from mosaicdd.parallel.collect import collect

    part = np.zeros((300, 300)), (slice(0, 300), slice(0, 300))  # more than MPI sends unasked
    ranks = make_ranks()

    def sink(array, place):
        raise OSError(f"no room for {place}")

    with pytest.raises(OSError, match="no room"):
        collect(ranks, [part] * 3, float, sink)

    def parts():
        yield part
        if comm.rank == comm.size - 1:
            raise ArithmeticError("no more")
        yield part

    with pytest.raises(ArithmeticError, match="no more"):
        collect(ranks, parts(), float, lambda array, place: None)
