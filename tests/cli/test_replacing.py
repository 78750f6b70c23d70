"""What commands and the library replace: what they have written themselves, never an input; and `--quiet`."""

import numpy as np
import pytest

import mosaicdd as m

OWN = b"not of this package\n" * 1000
SOLVE = "solve --cells 64x64"
HEAT = "--pde heat --steps 1 --dt 1"


@pytest.fixture
def solved(succeed, common_path, comm):
    """Return the file of a solve by all ranks."""
    assert succeed(f"{SOLVE} -o out.h5 --boundary expr:x --quiet") == ""
    comm.Barrier()
    return common_path / "out.h5"


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize(
    "words",
    [
        "--pde diffusion --field f=out.h5:/solution --boundary 0",
        "--boundary out.h5",
        "--boundary 0 --side left=dirichlet:out.h5:/boundary/left",
        f"--boundary 0 {HEAT} --initial out.h5:/solution",
    ],
)
def test_what_is_read_is_never_replaced(words, solved, refuse, by_one):
    by_one(solved.with_name("link.h5").symlink_to, solved)
    before = solved.read_bytes()
    for name in ("out.h5", "link.h5"):
        line = f"{name} is read and would be replaced; choose another name"
        refuse(f"{SOLVE} -o {name} {words} --overwrite", line)
    assert solved.read_bytes() == before


@pytest.mark.usefixtures("quick_layout", "solved")
def test_what_mosaicdd_has_written_is_replaced(succeed, refuse, tmp_path):
    succeed(f"{SOLVE} -o out.h5 --boundary expr:x")
    (tmp_path / "picture.png").write_bytes(OWN)
    plot = "plot out.h5 --reference none -o"
    refuse(f"{plot} picture.png", "that mosaicdd has not written")
    succeed(f"{plot} picture.png --overwrite")
    for name in ("picture.png", "drawn.pdf", "drawn.pdf", "drawn.svg", "drawn.svg"):
        assert succeed(f"{plot} {name} --quiet") == ""


@pytest.mark.usefixtures("quick_layout")
def test_of_a_series_no_picture_is_drawn_beside_one_of_the_users(succeed, refuse, tmp_path):
    heat = "--pde heat --boundary 0 --initial 1 --steps 2 --dt 0.1"
    succeed(f"solve -o out.h5 --cells 32x32 {heat}")
    (tmp_path / "u-002.png").write_bytes(OWN)
    refuse("plot out.h5 -o u-%03d.png", "u-002.png")
    for _ in range(2):
        succeed("plot out.h5 -o film.gif")
    (tmp_path / "film.gif").write_bytes(OWN)
    refuse("plot out.h5 -o film.gif", "film.gif")


@pytest.mark.ranks(1, 2, 3)
def test_neither_does_the_library_replace_them(solved, common_path, comm):
    own = common_path / "own.h5"
    if comm.rank == 0:
        own.write_bytes(OWN)
        np.save(common_path / "f.npy", np.ones((65, 65)))
    comm.Barrier()
    problem = m.Problem((64, 64), "poisson", {"f": 1.0})
    mapped = np.load(common_path / "f.npy", mmap_mode="r")
    with m.Solver(problem, ranks=comm) as solver:
        solution = solver()
    series = m.march(m.Problem((64, 64), "heat"), 1.0, dt=0.1, steps=1, ranks=comm)
    for write in (
        lambda: solution.save(own),
        lambda: series.save(own),
        lambda: m.solve(problem, ranks=comm, output=own),
        lambda: m.march(m.Problem((64, 64), "heat"), 1.0, dt=0.1, steps=1, ranks=comm, output=own),
    ):
        with pytest.raises(FileExistsError, match="that mosaicdd has not written"):
            write()
    assert own.read_bytes() == OWN
    with pytest.raises(ValueError, match="must end in"):
        m.solve(problem.with_fields(f=mapped), ranks=comm, output=mapped.filename)
    comm.Barrier()
    solution.save(own, overwrite=True)
    assert m.read(own).status == solution.status


def test_quiet_speaks_of_what_did_not_go_well(succeed):
    few = "--boundary expr:x*y*y --max-iterations 1 --quiet"
    assert "diverged_max_iterations" in succeed(f"{SOLVE} -o out.h5 {few}", code=1)
