"""``mosaicdd report``: what the page shows, and that it needs nothing beside it."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def runs(mosaicdd, tmp_path):
    """Return two solutions, the second not converged and on a disk."""
    good, bad = tmp_path / "good.h5", tmp_path / "bad & slow.h5"
    data = ("--pde", "poisson", "--field", "f=1", "--boundary", "0", "--local-solver", "exact")
    assert mosaicdd("solve", "-o", good, "--cells", "128x64", *data).code == 0
    shape = ("--domain", "expr:hypot(x-1,y-1)-0.9", "--max-iterations", "2")
    assert mosaicdd("solve", "-o", bad, "--cells", "128x128", *data, *shape).code == 1
    return good, bad


def test_the_page_shows_each_run_and_refers_to_nothing_outside_of_it(mosaicdd, runs):
    ended = mosaicdd("report", *runs)
    path = runs[0].with_suffix(".html")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"wrote {path}")
    text = path.read_text()
    for told in ("good.h5", "bad &amp; slow.h5", "converged_rtol", "diverged_max_iterations"):
        assert told in text
    assert "bad & slow" not in text
    # 2 x 1 of source 1 on a lattice of spacing 1 / 64; nodes with values have half volumes, and what flows out.
    assert re.search(r"<th>balance</th><td>out (\d[^,]*), sources \1, left over", text)
    assert text.count("data:image/png;base64,") == 4  # a field and its estimate, of each
    assert not re.search(r"(?:src|href)=['\"](?!data:)", text)


def test_a_picture_is_the_field_upside_down_and_transparent_where_there_is_none(mosaicdd, runs):
    output = runs[1].with_name("page.html")
    assert mosaicdd("report", runs[1], "-o", output).code == 0
    field = re.search(r"data:image/png;base64,([^']+)'", output.read_text())[1]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(field))).convert("RGBA"))
    assert pixels.shape == (129, 129, 4)
    y, x = np.mgrid[128:-1:-1, 0:129] / 64
    np.testing.assert_array_equal(pixels[..., 3] > 0, np.hypot(x - 1, y - 1) < 0.9)


def test_a_picture_is_as_wide_as_the_domain_and_one_of_next_to_no_errors_is_left_out(
    mosaicdd, tmp_path
):
    output = tmp_path / "small.h5"
    size = "--cells", "30x20", "--spacing", "25x10", "--pde", "diffusion", "--field", "f=1"
    exchange = "--side", "left=robin:expr:1+y/100,0.5", "--boundary", "0"
    assert mosaicdd("solve", "-o", output, *size, *exchange).code == 0
    assert mosaicdd("report", output).code == 0
    text = output.with_suffix(".html").read_text()
    assert text.count("data:image/png;base64,") == 1
    width, height = map(float, re.search(r"aspect-ratio: ([\d.]+) / ([\d.]+)", text).groups())
    assert width / height == pytest.approx(31 * 25 / (21 * 10))
    assert "left robin from 1 to 3, 0.5" in text


CUBED = """
from mosaicdd import NonlinearEquation

def residual(u, h):
    return u.centre**3 + (4 * u.centre - sum(u.neighbours)) / h**2

CUBED = NonlinearEquation("cubed", "-lap u + u^3 = f", residual)
"""


def test_a_page_has_a_balance_of_an_own_equation_where_its_file_is_named(
    mosaicdd, tmp_path, monkeypatch
):
    monkeypatch.setattr("mosaicdd.problems.equations._own", {})
    output, own = tmp_path / "own.h5", ("--pde", f"{tmp_path / 'cubed.py'}:CUBED")
    (tmp_path / "cubed.py").write_text(CUBED)
    source = ("--field", "f=1", "--boundary", "0")
    assert mosaicdd("solve", "-o", output, "--cells", "32x32", *own, *source).code == 0
    monkeypatch.setattr("mosaicdd.problems.equations._own", {})
    for given in ((), own):
        ended = mosaicdd("report", output, *given)
        assert (ended.code, ended.err) == (0, "")
        assert "cubed" in (text := output.with_suffix(".html").read_text())
        assert ("<th>balance</th>" in text) == bool(given)
