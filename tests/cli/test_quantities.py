"""``mosaicdd quantities``: flows, balance, mean and largest value of a file."""

import json

import pytest

import mosaicdd as m


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    path = tmp_path_factory.mktemp("quantities") / "out.h5"
    sides = {"left": m.Neumann(1.0), "right[0:0.5]": m.Dirichlet(0.0)}
    problem = m.Problem(m.Domain((48, 48), 1 / 48), "diffusion", {"f": 1.0, "a": "1+x"}, sides)
    m.solve(problem, output=path)
    return path


@pytest.mark.ranks(1, 2, 3)
def test_people_and_scripts_see_the_same(mosaicdd, solved):
    shown = mosaicdd("quantities", solved, "--flow", "left[0:0.5]")
    assert (shown.code, shown.err) == (0, "")
    for line in ("largest value", "out through left: -1", "out through left[0:0.5]: -0.5"):
        assert f"{line}" in shown.out
    report = json.loads(mosaicdd("quantities", solved, "--json").out)
    assert report["balance"]["sources"] == pytest.approx(1.0)
    assert report["balance"]["flows"]["left"] == pytest.approx(-1.0)
    assert report["balance"]["relative"] < 1e-6
    assert set(report) == {"max", "min", "mean", "integral", "balance", "parts", "energy"}


def test_where_nothing_flows_the_rest_is_told(mosaicdd, tmp_path):
    path = tmp_path / "surface.h5"
    disk = m.Domain.from_distance("hypot(x-0.4,y-0.4)-0.3", (48, 48), 1 / 60)
    m.solve(m.Problem(disk, "quasilinear-diffusion", {"k": "1"}, m.Dirichlet("x")), output=path)
    shown = mosaicdd("quantities", path)
    assert shown.code == 0
    assert "mean 0.4, integral" in shown.out
    assert (
        "no balance: quasilinear-diffusion is not linear, and its domain is no rectangle"
        in shown.out
    )
    assert mosaicdd("quantities", path, "--flow", "outline").code == 2
