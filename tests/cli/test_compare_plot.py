"""``compare`` and ``plot``: what they say and write of a solution file."""

import threading
from contextlib import contextmanager

import numpy as np
import pytest

from mosaicdd import read
from mosaicdd.cli import compare as reference

SOLVE = "solve --cells 192x128 --local-solver exact --rtol 1e-10"  # 3 wide, 2 high


@pytest.fixture
def solved(succeed, common_path):
    """Return a function that solves for boundary data and returns the file."""

    def run(boundary="gp:seed=0", name="out.h5", more=""):
        succeed(f"{SOLVE} -o {name} --boundary '{boundary}' {more}")
        return common_path / name

    return run


@pytest.mark.ranks(1, 2, 4)
def test_a_solution_agrees_with_the_references(report_of, solved):
    solved()
    # For the sine transform; pyAMG's relative residual of 1e-10 guarantees less: times
    # |A^-1| = 1 / (pi**2 (1/192**2 + 1/128**2)) = 1150 and |b| = 25 nodes' worth, per node 2e-8.
    for name, most in (("dst", 1e-8), ("pyamg", 2e-8)):
        report = report_of(f"compare out.h5 --reference {name}")
        errors = {"mae", "max_error", "relative_l2"}
        assert set(report) == {*errors, "reference", "reference_seconds", "solution_seconds"}
        assert report["reference"] == name
        assert report["mae"] <= most
        assert report["mae"] <= report["max_error"]


@pytest.mark.parametrize(
    ("expression", "fourth_derivative"),
    [("x**2 - y**2", 0.0), ("exp(x)*sin(y)", np.exp(3.0)), ("log((x+1)**2 + (y+1)**2)", 3.0)],
)
def test_an_expression_shows_the_discretisation_error_and_no_more(
    expression, fourth_derivative, error_of, solved
):
    error = error_of(solved(f"expr:{expression}"), f"expr:{expression}")
    # As in schwarz/test_discretisation: L**2 h**2 / 48 times the fourth derivative, with L the
    # shorter side; rounding and the iteration leave 1e-10 of values below 20.
    bound = 2.0**2 * (0.5 / 32) ** 2 / 48 * fourth_derivative
    assert bound / 100 <= error <= bound + 1e-7


@pytest.mark.filterwarnings("error")
def test_the_numbers_are_mean_maximum_and_relative_norm_of_the_difference(
    report_of, solved, refuse, succeed
):
    one, other = solved(name="one.h5"), solved("gp:seed=1", "other.h5")
    report = report_of(f"compare {one} --reference {other}")
    a, b = read(one).field, read(other).field
    assert report["mae"] == pytest.approx(np.abs(a - b).mean())
    assert report["max_error"] == pytest.approx(np.abs(a - b).max())
    assert report["relative_l2"] == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(b))
    assert succeed(f"compare {one} --reference dst").startswith("against dst: MAE ")
    report = report_of(f"compare {one} --reference {one}")
    assert report["mae"] == report["max_error"] == report["relative_l2"] == 0
    report = report_of(f"compare {solved('expr:0', 'zero.h5')} --reference dst")
    assert report["mae"] == report["max_error"] == 0
    assert report["relative_l2"] is None  # of zeros
    narrow = solved(name="narrow.h5", more="--cells 128x128")
    refuse(f"compare {one} --reference {narrow}", "has 128x128 cells ... 192x128")


@pytest.fixture
def shown(monkeypatch):
    """Return a list of what people are shown, and an event that is set when that begins."""
    calls, begun = [], threading.Event()

    @contextmanager
    def stage(title, *, quiet):
        calls.append((title, quiet))

        def show(fraction, note=""):
            calls.append((fraction, note))
            begun.set()

        yield show

    monkeypatch.setattr(reference, "stage", stage)
    monkeypatch.setattr(reference, "_TICK", 1e-3)
    return calls, begun


def test_while_a_long_reference_is_computed_people_see_how_long_it_takes(
    solved, shown, monkeypatch
):
    calls, begun = shown
    solution = read(solved())
    nodes = solution.field.size
    monkeypatch.setitem(reference._SECONDS_PER_NODE, "pyamg", 100.0 / (3 * nodes))
    with reference.waiting("pyamg", solution, 3, quiet=False):
        assert begun.wait(60)
    assert calls[0] == ("reference by pyamg", False)
    fraction, note = calls[1]
    assert 0 <= fraction < 1
    assert note.endswith("of about 100 s")


@pytest.mark.parametrize(("spec", "quiet"), [("pyamg", True), ("dst", False), ("other.h5", False)])
def test_scripts_see_nothing_and_short_work_is_not_shown(spec, quiet, solved, shown):
    calls, _ = shown
    with reference.waiting(spec, read(solved()), 10**6, quiet=quiet):
        pass
    assert calls == [(f"reference by {spec}", True)]


def test_an_equation_of_ones_own_is_given_by_its_file(
    mosaicdd, report_of, refuse, monkeypatch, tmp_path
):
    (tmp_path / "own.py").write_text(
        "from mosaicdd import EllipticOperator, Equation\n"
        "OWN = Equation('my-own', '-2 lap u = f', lambda: EllipticOperator(axx=2.0, ayy=2.0))\n"
    )
    compare, own = f"compare {tmp_path}/out.h5 --reference auto", f"--pde {tmp_path}/own.py:"
    monkeypatch.setattr("mosaicdd.problems.equations._own", {})
    solve = f"solve -o {tmp_path}/out.h5 --cells 12x8 --spacing 0.25 --boundary expr:x**2-y**2"
    assert mosaicdd(f"{solve} {own}OWN --rtol 1e-13").code == 0
    monkeypatch.setattr("mosaicdd.problems.equations._own", {})
    refuse(compare, "unknown pde 'my-own'")
    report = report_of(f"{compare} {own}OWN")
    assert report["reference"] == "dst"
    assert report["max_error"] < 1e-12
    refuse(f"{compare} {own}OWNER", "OWNER")


@pytest.mark.ranks(1, 2)
def test_a_plot_is_a_picture_beside_its_file(succeed, solved):
    picture = solved().with_suffix(".png")
    assert succeed(f"plot {solved()}") == f"wrote {picture}\n"
    # The signature of a PNG, and of one that is not blank: a blank one of this size takes 15 kB.
    content = picture.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(content) > 50_000


@pytest.mark.usefixtures("quick_layout")
def test_a_plot_can_be_a_drawing_with_a_reference_or_the_estimate_alone(succeed, solved, tmp_path):
    solved()
    for name, to, signature in (("a.pdf", "dst", b"%PDF"), ("a.svg", "dst", b"<?xml"), ("b.svg", "none", b"<?xml")):  # fmt: skip
        succeed(f"plot out.h5 -o {name} --reference {to}")
        assert (tmp_path / name).read_bytes().startswith(signature)
