"""Opened solution files: compared, drawn, labelled and shown by themselves."""

import sys

import numpy as np
import pytest
from stored_fields import store

import mosaicdd

Y, X = np.arange(25) / 32, np.arange(33) / 32
TRUTH = X**2 - Y[:, None] ** 2


@pytest.fixture
def path(tmp_path):
    """Return a file of two problems, of which the second is off by 1e-3."""
    told = {"local_solver": "<exact>", "error_estimate": 2e-5}
    results = [{"status": s, "iterations": 1} for s in ("converged_rtol", "stagnated")]
    fields = TRUTH, TRUTH + 1e-3
    edges = [TRUTH] * 2
    return store(tmp_path / "out.h5", fields, spacing=1 / 32, edges=edges, problems=results, **told)


def test_a_notebook_shows_what_is_known_and_a_picture(path):
    pytest.importorskip("matplotlib")
    shown = mosaicdd.read(path, 1)._repr_html_()
    for text in ("laplace", "32 x 24 cells", "&lt;exact&gt;", "stagnated", "2.0e-05"):
        assert text in shown
    assert "data:image/png;base64," in shown


def test_an_opened_solution_says_which_of_how_many_problems_it_is(path):
    shown = repr(mosaicdd.read(path, 1))
    assert shown.startswith("<solution of laplace on 32x24 cells in ")
    assert shown.endswith("out.h5: problem 1 of 2, stagnated>")
    assert "<td style='text-align:left'>1 of 2</td>" in mosaicdd.read(path, 1)._repr_html_()


def test_a_field_in_a_file_is_not_changed_by_who_looks_at_it(path):
    solution = mosaicdd.read(path)
    with pytest.raises(ValueError, match="read-only"):
        solution.field[:] = 1.0
    np.testing.assert_array_equal(solution.plane(0, 3), TRUTH[3])  # of what has been read
    np.testing.assert_array_equal(solution.field, TRUTH)


def test_it_is_drawn_with_a_reference_and_without(path, tmp_path):
    pytest.importorskip("matplotlib")
    alone = mosaicdd.read(path).plot()
    beside = mosaicdd.read(path).plot(tmp_path / "figure.png", reference="auto")
    assert len(beside.axes) == len(alone.axes) + 2
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_is_no_picture_and_plot_says_the_way_out(path, monkeypatch):
    monkeypatch.delattr("mosaicdd.report.figures", raising=False)
    for name in list(sys.modules):
        if name == "mosaicdd.report.figures" or name.partition(".")[0] == "matplotlib":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    solution = mosaicdd.read(path)
    assert "laplace" in solution._repr_html_()
    assert "<img" not in solution._repr_html_()
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'mosaicdd\[plot\]'"):
        solution.plot()


def test_coordinates_and_attributes_go_with_the_field(path):
    pytest.importorskip("xarray")
    array = mosaicdd.read(path, 1).to_xarray()
    assert array.dims == ("y", "x")
    np.testing.assert_array_equal(array.x, X)
    np.testing.assert_array_equal(array.values, TRUTH + 1e-3)
    assert array.attrs["status"] == "stagnated"


def test_without_xarray_the_way_out_is_said(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ModuleNotFoundError, match="pip install 'xarray'"):
        mosaicdd.read(path).to_xarray()
