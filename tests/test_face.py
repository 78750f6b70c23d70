"""The library's face: a dozen names, imported when they are used, with no MPI library at all."""

import subprocess
import sys

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
text = f"{type(solution.field).__name__} {solution.field.shape} {solution.status} "
text += f"{solution.field.sum():.6f}"
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
    assert set(mosaicdd.__all__) <= set(dir(mosaicdd))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        mosaicdd.nothing  # noqa: B018


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
        "'mosaicdd.schwarz.nonlinear.newton_engine'} & set(sys.modules)))"
    )
    assert run(program) == ["[]"]


@pytest.mark.limit(300)
def test_the_same_program_runs_without_mpi_and_on_four_ranks(mpiexec):
    alone = run(WITHOUT_MPI + "ranks = None" + PROGRAM)
    assert alone[0].startswith("1 ndarray (257, 257) converged_rtol ")
    # Every rank has the whole field; sums of 66049 values of size 1 agree to more than 6 digits.
    together = run(ON_ALL_RANKS + PROGRAM, launcher=(mpiexec, "-n", "4"))
    assert together[0] == alone[0].replace("1", "4", 1)
