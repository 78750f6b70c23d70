"""Problems of all kinds from the command line: solved, kept in the file, compared with what the file says."""

import signal

import h5py
import numpy as np
import pytest

import mosaicdd as m

CELLS = (128, 160)
MEDIUM = "solve -o out.h5 --cells 160x128 --pde diffusion --rtol 1e-10 --boundary gp:seed=0"


@pytest.fixture
def stored(comm, common_path):
    """Return a function: arrays of the file out.h5."""
    return lambda *names: [m.read(common_path / "out.h5").fields[name] for name in names]


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("extra", [0, 1], ids=["cells", "nodes"])
def test_a_file_of_coefficients_is_solved_and_kept(write, report_of, error_of, stored, comm, extra):
    rng = np.random.default_rng(0)
    a, f = (np.exp(rng.standard_normal([n + more for n in CELLS])) for more in (extra, 1))
    write("a.npy", a)
    write("f.npy", f)
    report = report_of(f"{MEDIUM} --field a=a.npy --field f=f.npy --field c=expr:1+x")
    assert (report["status"], report["accelerate"]) == ("converged_rtol", "multigrid")
    assert report["parameters"]["a"].endswith("a.npy")
    assert report["discrete_residual"] <= 1e-10
    for kept, values in zip(stored("a", "f"), (a, f), strict=True):
        np.testing.assert_array_equal(kept, values)
    assert stored("c")[0].shape == f.shape
    comm.Barrier()
    assert error_of("out.h5") < 1e-7


@pytest.mark.ranks(1, 2, 3, 4)
def test_a_random_medium_is_the_same_on_any_ranks(succeed, stored, by_one, comm):
    a = "lognormal:seed=5,length=0.1,contrast=1e3"
    succeed(f"{MEDIUM} --field a={a} --field f=1")
    problem = m.Problem(m.Domain(CELLS, 1 / 64), "diffusion", {"a": a, "f": 1.0})

    def drawn():
        m.solve(problem, output="alone.h5")
        return m.read("alone.h5").fields["a"]

    np.testing.assert_array_equal(*stored("a"), by_one(drawn))
    comm.Barrier()


FLOW = MEDIUM.replace("diffusion", "advection-diffusion")


@pytest.mark.ranks(1, 2, 3)
def test_a_flow_is_solved_from_expressions_files_and_numbers(write, report_of, error_of, stored):
    by = np.random.default_rng(0).standard_normal([n + 1 for n in CELLS])
    write("by.npy", by)
    fields = "--field bx=expr:30*(1-y) --field by=by.npy --field a=0.5 --field c=2 --field f=1"
    report = report_of(f"{FLOW} {fields}")
    assert (report["status"], report["accelerate"]) == ("converged_rtol", "multigrid")
    np.testing.assert_array_equal(*stored("by"), by)
    assert error_of("out.h5") < 1e-7


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--cells 96x64 --pde quasilinear-diffusion --boundary expr:sin(x) --field k=expr:2+u", 1e-8),
        *((f"--cells 48x32 --spacing 25x10 --boundary 'expr:20 - x/100' --side top=neumann:0 --side bottom=robin:0.02,0.3 --pde {pde}", 1e-6)
          for pde in ("quasilinear-diffusion", "minimal-surface")),
        ("--cells 64x96 --pde minimal-surface --boundary expr:sin(3*x)*y --certify 1e-10", 1e-8),
    ],
    ids=["function", "flat cells", "flat cells of a surface", "surface"],
)  # fmt: skip
def test_what_is_not_linear_is_kept_for_compare(words, error, report_of, error_of):
    report = report_of(f"solve -o out.h5 --rtol 1e-10 {words}")
    assert report["status"].startswith("converged_")
    assert report["accelerate"] == "newton"
    assert report["discrete_residual"] <= 1e-10
    assert error_of("out.h5") < error


def test_a_signal_keeps_a_checkpoint_and_resume_goes_on(mosaicdd, signalled, tmp_path, strict_json):
    output = tmp_path / "out.h5"
    words = f"solve -o {output} --cells 160x160 --pde quasilinear-diffusion --boundary expr:sin(x)"
    words += " --field f=100 --rtol 1e-11 --json"
    done = signalled(signal.SIGTERM, words)
    part = strict_json(done.out)
    assert (done.code, part["status"]) == (1, "interrupted"), done.err
    assert output.with_suffix(".h5.checkpoint").exists()
    done = mosaicdd(f"{words} --resume")
    rest = strict_json(done.out)
    assert (done.code, rest["status"]) == (0, "converged_rtol"), done.err
    assert rest["iterations"] > part["iterations"]
    assert not output.with_suffix(".h5.checkpoint").exists()
    assert np.isfinite(m.read(output).field).all()


PAIRS = {
    "x": "--side left=periodic --side right=periodic --side top=neumann:1",
    "xy": " ".join(f"--side {name}=periodic" for name in ("left", "right", "top", "bottom")),
}
PERIODIC = "solve -o out.h5 --cells 100x64 --spacing 0.01 --pde poisson --boundary gp:seed=0"


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize("axes", PAIRS)
def test_a_file_holds_both_periodic_sides(axes, succeed, error_of, common_path, comm):
    said = succeed(f"{PERIODIC} --field f=expr:1e-4+sin(2*pi*x) {PAIRS[axes]} --rtol 1e-10")
    # 1e-4 beside the mean 2 / pi of the sine's size.
    assert ("1.6e-04 of sources and fluxes were left over" in said) == (axes == "xy")
    stored = m.read(common_path / "out.h5")
    np.testing.assert_array_equal(stored.field[:, 0], stored.field[:, -1])
    assert axes == "x" or np.array_equal(stored.field[0], stored.field[-1])
    assert stored.periodic == (axes == "xy", True)
    with h5py.File(common_path / "out.h5") as file:
        assert file["sides/left"].attrs["condition"] == "Periodic"
    comm.Barrier()
    assert error_of("out.h5") < 1e-8


@pytest.mark.usefixtures("quick_layout")
def test_a_picture_shows_the_error_on_periodic_sides(succeed, common_path):
    succeed(f"{PERIODIC} --field f=1 {PAIRS['x']}")
    assert m.read("out.h5").error_map.shape == (5, 7)  # every 16th node, none of them twice
    succeed("plot out.h5")
    assert (common_path / "out.png").stat().st_size > 10_000


@pytest.mark.ranks(1, 2)
def test_a_jump_is_in_the_file_and_what_it_is_asked(succeed, error_of, common_path, comm):
    sides = "--side left=periodic:1.5 --side right=periodic:1.5 --side bottom=neumann:0 --side top=neumann:0"
    field = "--field 'a=expr:1.5+sin(2*pi*x/1.125)*cos(9*y)'"
    succeed(f"solve -o out.h5 --cells 72x46 --pde diffusion --rtol 1e-11 {sides} {field}")
    assert error_of("out.h5") < 1e-8
    read = m.read(common_path / "out.h5")
    u = read.field
    np.testing.assert_allclose(u[:, -1] - u[:, 0], 1.5, rtol=0, atol=1e-10)
    (condition,) = {part.condition for part in read.sides.parts if part.name == "left"}
    assert condition == m.Periodic(1.5)
    assert read.flow("left") == pytest.approx(-read.flow("right"), rel=1e-8)
    assert abs(read.balance().left_over) < 1e-8
    across = (u[:, 1] + 1.5 - u[:, -2]) * 32
    np.testing.assert_allclose(read.gradient()[1][:, 0], across, rtol=0, atol=1e-8)
    with h5py.File(common_path / "out.h5") as file:
        assert set(np.unique(file["sides/right"][()])) == {1.5}
    comm.Barrier()
    succeed("quantities out.h5 --flow right --json")
    succeed("report out.h5 -o page.html")
    assert "left periodic 1.5" in (common_path / "page.html").read_text()
    comm.Barrier()
