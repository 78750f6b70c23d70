"""Held values in files and on the command line, what goes on from them, and what is refused."""

import json

import numpy as np
import pytest
from small_problems import MIXED

import mosaicdd as m

TIGHT = m.SolveSettings(rtol=1e-12)


def test_files_hold_nodes_and_values_and_are_solved_anew(tmp_path):
    rng = np.random.default_rng(1)
    mask = rng.random((33, 41)) < 0.05
    places = {
        "mask": m.Held(mask, rng.normal(size=mask.sum())),
        "function": m.Held(lambda x, y: (x > 0.3) & (y > 0.55), lambda x, y: x),
        "text": m.Held("x/2 + y < 0.1", "expr:y/2"),
    }
    given = m.Problem(m.Domain((32, 40), 0.02), "diffusion", {"a": "1 + x"}, MIXED | places)
    solution = m.solve(given, settings=TIGHT)
    solution.save(tmp_path / "out.h5")
    stored = m.read(tmp_path / "out.h5")
    assert m.compare(stored, "direct").max_error < 1e-11
    assert stored.balance().flows == pytest.approx(solution.balance().flows, rel=1e-12)
    assert m.compare(stored, "pyamg").max_error < 1e-8
    again = m.solve(stored.problem, settings=TIGHT)
    np.testing.assert_allclose(again.field, solution.field, atol=1e-12)


def test_the_command_line_holds_values(mosaicdd, tmp_path):
    path, points = tmp_path / "out.h5", tmp_path / "drain.csv"
    points.write_text("1.2,1.2\n1.34,0.8\n")
    levels = tmp_path / "levels.txt"
    levels.write_text("0.1 0.7 3\n0.9 0.49 2.2\n")
    solve = (
        "solve",
        "--cells",
        "64x48",
        "--spacing",
        "0.025",
        "--pde",
        "poisson",
        "--field",
        "f=1",
    )
    solve += ("--boundary", "0", "--side", "right=neumann:0.3", "--rtol", "1e-12")
    holds = (
        *("--hold", "river: 0.1,0.7 0.9,0.49=" + str(levels)),
        *(
            "--hold",
            "hypot(x-1.2,y-0.3)<=0.1=-1",
            "--hold",
            "hypot(x-1.2,y-0.8)<=0.1=expr:where(x==y,1,2)",
        ),
        *("--hold", f"drain:{points}=0.5"),
    )
    ended = mosaicdd(*solve, *holds, "-o", path)
    assert ended.code == 0, ended.err
    nearest_two = "3 + (x - 0.1)*(2.2 - 3)/0.8"
    sides = dict.fromkeys(["left", "bottom", "top"], m.Dirichlet(0.0)) | {"right": m.Neumann(0.3)}
    sides |= {
        "river": m.Held([(0.1, 0.7), (0.9, 0.49)], nearest_two),
        "held2": m.Held("hypot(x-1.2,y-0.3)<=0.1", -1.0),
        "held3": m.Held("hypot(x-1.2,y-0.8)<=0.1", "where(x==y,1,2)"),
        "drain": m.Held([(1.2, 1.2), (1.34, 0.8)], 0.5),
    }
    expected = m.solve(
        m.Problem(m.Domain((48, 64), 0.025), "poisson", {"f": 1.0}, sides), settings=TIGHT
    )
    stored = m.read(path)
    assert (
        abs(stored.field - expected.field).max() < 5e-3
    )  # along the line, as it has been rounded to nodes
    told = json.loads(mosaicdd("quantities", path, "--json").out)["balance"]
    assert [*told["flows"]] == [*expected.balance().flows]
    assert told["flows"]["held2"] == pytest.approx(expected.flow("held2"), rel=1e-2)
    assert told["relative"] < 1e-11
    for reference in ("direct", "pyamg"):
        compared = mosaicdd("compare", path, "--reference", reference, "--json")
        assert json.loads(compared.out)["max_error"] < 1e-8, compared.err
    again = mosaicdd("solve", "--config", path, "-o", tmp_path / "again.h5")
    assert again.code == 0, again.err
    np.testing.assert_array_equal(m.read(tmp_path / "again.h5").field, stored.field)
    config = tmp_path / "run.toml"
    config.write_text(mosaicdd(*solve, *holds, "-o", tmp_path / "third.h5", "--print-config").out)
    assert mosaicdd("solve", "--config", config).code == 0
    np.testing.assert_array_equal(m.read(tmp_path / "third.h5").field, stored.field)
    for bad, said in (
        (
            "9,0.1=1",
            "--hold: the point (9, 0.1) of what is held is outside of the domain, which goes from (0, 0) to (1.6, 1.2)",
        ),
        ("pit: x>9=1", "--hold: what is held as pit, x>9, is at none of the 3185 nodes"),
        ("0.1,0.1,2=1", "points of 2 and 3 numbers, a point of this domain has 2"),
        ("0.1,0.1=q", "values are a number, expr:... or a file, got 'q'"),
        ("q>1=1", "q is not allowed"),
        ("left: x>1=1", "has a name of its own, as river, no side's: got 'left'"),
        ("river.csv=1", "the file of points is missing"),
    ):
        ended = mosaicdd(*solve, "--hold", bad, "-o", tmp_path / "bad.h5")
        assert (ended.code, len(ended.err.splitlines())) == (2, 1), ended.err
        assert said in ended.err
        assert not (tmp_path / "bad.h5").exists()


DOMAIN = m.Domain((32, 32), 0.02)


DISK = m.Domain.from_distance("hypot(x - 0.32, y - 0.32) - 0.25", (32, 32), 0.02)


@pytest.mark.parametrize(
    ("domain", "where", "values", "error", "message"),
    [
        (DOMAIN, (0.1, -0.1), 1.0, ValueError, r"\(0.1, -0.1\) of what is held is outside of the domain, .* to \(0.64, 0.64\)"),
        (DISK, (0.02, 0.02), 1.0, ValueError, r"what is held as there, \(0.02, 0.02\), is at none of the 1089 nodes"),
        (DOMAIN, "x > 0.63 + 0.02", 1.0, ValueError, "which are 0.02 apart"),
        (DOMAIN, (1, 2, 3), 1.0, ValueError, r"has 3 coordinates, the domain 2: give \(x, y\)"),
        (DOMAIN, [1.0], 1.0, ValueError, "numbers of the shape \\(1,\\)"),
        (DOMAIN, (0.1, np.nan), 1.0, ValueError, "is not finite"),
        (DOMAIN, {"x": 1}, 1.0, TypeError, "must be numbers"),
        (DOMAIN, np.ones((3, 3), bool), 1.0, ValueError, r"the shape \(3, 3\), the domain has \(33, 33\) nodes"),
        (DOMAIN, "x > 0.6", "log(x - 2)", ValueError, "not finite"),
        (DOMAIN, (0.1, 0.1), np.ones(2), ValueError, r"values of the shape \(2,\), it has 1 nodes"),
        (DOMAIN, "x >= 0", 1.0, ValueError, "values of all nodes are given"),
    ],
)  # fmt: skip
def test_what_cannot_be_held_is_refused(domain, where, values, error, message):
    with pytest.raises(error, match=message):
        m.solve(m.Problem(domain, "poisson", {}, {"there": m.Held(where, values)}))


def test_who_cannot_hold_values_says_so():
    held = {"there": m.Held((0.3, 0.3), 1.0)}
    with pytest.raises(m.Unsupported, match=r"values (are )?held inside"):
        m.solve(m.Problem((64, 64), "laplace", {}, held), "laplace")


def test_an_interrupted_run_goes_on_with_the_same_place_only(mosaicdd, tmp_path):
    solve = (
        "solve",
        "--cells",
        "64x64",
        "--boundary",
        "0",
        "--rtol",
        "1e-12",
        "-o",
        tmp_path / "out.h5",
    )
    kept, other = ("--hold", "pipe: 0.1,0.5 0.9,0.5=1"), ("--hold", "pipe: 0.1,0.25 0.9,0.25=1")
    assert mosaicdd(*solve, *kept, "--max-iterations", "3").code == 1
    ended = mosaicdd(*solve, *other, "--resume", "--overwrite")
    assert (ended.code, len(ended.err.splitlines())) == (2, 1), ended.err
    assert mosaicdd(*solve, *kept, "--resume", "--overwrite").code == 0
