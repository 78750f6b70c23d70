"""What commands and the library replace: what they have written themselves, never an input; and `--quiet`."""

import numpy as np
import pytest
from matplotlib.figure import Figure

import mosaicdd as m
from mosaicdd.report.curves import save_figure
from mosaicdd.storage.atomic import require_replaceable

CELLS = ("--cells", "64x64")
OWN = b"not of this package\n" * 1000


@pytest.fixture
def solved(mosaicdd, common_path, comm):
    """Return the file of a solve by all ranks."""
    path = common_path / "out.h5"
    ended = mosaicdd("solve", "-o", path, *CELLS, "--boundary", "expr:x", "--quiet")
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    comm.Barrier()
    return path


@pytest.mark.ranks(1, 2, 3)
def test_what_is_read_is_never_replaced(solved, mosaicdd, common_path, comm, monkeypatch):
    before = solved.read_bytes()
    link = common_path / "link.h5"
    if comm.rank == 0:
        link.symlink_to(solved)
    comm.Barrier()
    heat = ("--pde", "heat", "--steps", "1", "--dt", "1")
    for options in (
        ("--pde", "diffusion", "--field", f"f={solved}:/solution", "--boundary", "0"),
        ("--boundary", solved),
        ("--boundary", "0", "--side", f"left=dirichlet:{solved}:/boundary/left"),
        ("--boundary", "0", *heat, "--initial", f"{solved}:/solution"),
    ):
        for name in (solved, link):
            ended = mosaicdd("solve", "-o", name, *CELLS, *options, "--overwrite")
            assert ended.code == 2
            assert f"{name} is read and would be replaced; choose another name" in ended.err
    assert solved.read_bytes() == before


@pytest.mark.usefixtures("quick_layout")
def test_what_mosaicdd_has_written_is_replaced(solved, mosaicdd, tmp_path):
    assert mosaicdd("solve", "-o", solved, *CELLS, "--boundary", "expr:x").code == 0
    picture = tmp_path / "picture.png"
    picture.write_bytes(OWN)
    plot = ("plot", solved, "-o", picture, "--reference", "none")
    ended = mosaicdd(*plot)
    assert ended.code == 2
    assert "that mosaicdd has not written" in ended.err
    assert picture.read_bytes() == OWN
    assert mosaicdd(*plot, "--overwrite").code == 0
    assert mosaicdd(*plot, "--quiet").out == ""
    for suffix in ("pdf", "svg"):
        drawn = tmp_path / f"drawn.{suffix}"
        save_figure(Figure(), drawn)
        assert require_replaceable(drawn) == drawn


@pytest.mark.usefixtures("quick_layout")
def test_of_a_series_no_picture_is_drawn_beside_one_of_the_users(mosaicdd, tmp_path):
    path, film = tmp_path / "out.h5", tmp_path / "film.gif"
    heat = ("--pde", "heat", "--boundary", "0", "--initial", "1", "--steps", "2", "--dt", "0.1")
    assert mosaicdd("solve", "-o", path, "--cells", "32x32", *heat, "--quiet").out == ""
    (tmp_path / "u-002.png").write_bytes(OWN)
    assert mosaicdd("plot", path, "-o", tmp_path / "u-%03d.png").code == 2
    assert not (tmp_path / "u-000.png").exists()
    for _ in range(2):
        assert mosaicdd("plot", path, "-o", film).code == 0
    film.write_bytes(OWN)
    assert mosaicdd("plot", path, "-o", film).code == 2


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


def test_quiet_speaks_of_what_did_not_go_well(mosaicdd, tmp_path):
    few = ("--max-iterations", "1", "--quiet")
    ended = mosaicdd("solve", "-o", tmp_path / "out.h5", *CELLS, "--boundary", "expr:x*y*y", *few)
    assert ended.code == 1
    assert "diverged_max_iterations" in ended.out
