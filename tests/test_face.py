"""The library's face: a dozen names, imported when they are used, with no MPI library at all."""

import configparser
import inspect
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import mosaicdd

# Stands in for a machine without MPI: mpi4py is not there.
WITHOUT_MPI = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "mpi4py":
            raise ImportError("no MPI here")

sys.meta_path.insert(0, Blocker())
"""
ON_ALL_RANKS = "from mpi4py import MPI\nranks = MPI.COMM_WORLD\n"
PROGRAM = """
import mosaicdd as m
problem = m.Problem((256, 256), "laplace", sides=m.Dirichlet("exp(x)*sin(y)/50"))
solution = m.solve(problem, ranks=ranks)
field = solution.gather()
assert (solution.field == field).all()
text = f"{type(field).__name__} {field.shape} {solution.status} {field.sum():.6f}"
texts = [text] if ranks is None else ranks.allgather(text)
if ranks is None or ranks.rank == 0:
    print(len(texts), *sorted(set(texts)))
"""


def run(program, launcher=()):
    ended = subprocess.run(
        [*launcher, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def test_all_names_are_there_and_listed():
    for name in mosaicdd.__all__:
        assert getattr(mosaicdd, name) is not None
    assert set(dir(mosaicdd)) == {*mosaicdd.__all__, "__doc__", "__file__"}
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        mosaicdd.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="'open'; it is 'read' now"):
        mosaicdd.open  # noqa: B018


def test_solve_takes_what_a_solver_and_its_call_take():
    planned, called, once = (
        inspect.signature(function).parameters
        for function in (mosaicdd.Solver, mosaicdd.Solver.__call__, mosaicdd.solve)
    )
    (wanted,) = typing.get_args(
        planned["wanted"].annotation
    )  # by name: window, keep, points, output
    for name in {*planned, *called} - {"self", "problem", "wanted"}:
        expected = planned.get(name, called.get(name))
        assert (once[name].default, once[name].kind) == (expected.default, expected.kind), name
    assert set(once) == {*planned, *called, *wanted.__annotations__} - {"self", "wanted"}


def test_its_types_are_shipped():
    assert (Path(mosaicdd.__file__).parent / "py.typed").is_file()
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[1] / "setup.cfg")
    assert "py.typed" in setup["options.package_data"]["mosaicdd"]


def test_to_import_it_or_its_settings_imports_neither_mpi_nor_torch():
    program = (
        "import sys, mosaicdd as m; m.SolveSettings(), m.Output('x'), m.Dirichlet();"
        "print(sorted({'torch', 'mpi4py', 'h5py'} & set(sys.modules)))"
    )
    assert run(program) == ["[]"]


def test_a_solve_does_not_wait_for_what_it_does_not_use():
    program = (
        "import sys, mosaicdd as m; m.solve(m.Problem(m.Domain((64, 64)), 'laplace'));"
        "print(sorted({'scipy.stats', 'scipy.interpolate', 'pyamg', 'rich', 'matplotlib',"
        "'mosaicdd.solvers.newton.newton_engine'} & set(sys.modules)))"
    )
    assert run(program) == ["[]"]


@pytest.mark.nightly
@pytest.mark.limit(300)
def test_the_same_program_runs_without_mpi_and_on_two_ranks(mpiexec):
    alone = run(WITHOUT_MPI + "ranks = None" + PROGRAM)
    assert alone[0].startswith("1 ndarray (257, 257) converged_rtol ")
    # Every rank has the whole field; sums of 66049 values of size 1 agree to more than 6 digits.
    together = run(ON_ALL_RANKS + PROGRAM, launcher=(mpiexec, "-n", "2"))
    assert together[0] == alone[0].replace("1", "2", 1)
