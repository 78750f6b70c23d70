"""Boundary files of any origin."""

import h5py
import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.storage.inputs import BoundaryFile

FIELD = np.random.default_rng(0).standard_normal((5, 7))
GRID = m.Domain((4, 6), 0.1).grid()
EDGES = {"bottom": np.s_[..., 0, :], "top": np.s_[..., -1, :], "left": np.s_[..., 0], "right": np.s_[..., -1]}  # fmt: skip


def read(tmp_path, field, **changed):
    """Return what is read of a file of a field's edges, some of them others, or left out."""
    with h5py.File(tmp_path / "edges.h5", "w") as file:
        for name, place in EDGES.items():
            values = changed.get(name, field[place])
            if isinstance(values, str):
                file.create_group(f"boundary/{name}/{values}")
            elif values is not None:
                file[f"boundary/{name}"] = values
    return BoundaryFile(tmp_path / "edges.h5").boundaries(GRID)


@pytest.mark.parametrize("factors", [(1.0,), (1.0, 2.0, 3.0)], ids=["one", "a row per problem"])
def test_what_is_written_is_read_again(factors, tmp_path):
    fields = np.multiply.outer(factors, FIELD) if len(factors) > 1 else FIELD
    boundaries = read(tmp_path, fields)
    assert len(boundaries) == len(factors)
    for factor, boundary in zip(factors, boundaries, strict=True):
        for name, place in EDGES.items():
            np.testing.assert_array_equal(boundary.named[name], factor * FIELD[place])


def test_whole_and_single_precision_numbers_are_accepted(tmp_path):
    (boundary,) = read(tmp_path, np.ones((5, 7), "i2"), top=np.ones(7, "f4"))
    assert all(boundary.named[name].dtype == float for name in EDGES)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("bottom", np.append(FIELD[0, :-1], np.nan), "bottom has 1 of 7 .* not finite"),
        ("top", FIELD[-1] + 1.0, "top and left must be equal"),
        ("top", FIELD[-1, :-1], r"bottom \(7 nodes\) and top \(6\)"),
        ("top", "a", "top must hold real numbers"),
        ("left", FIELD[:, :2], "left must be one row"),
        ("left", 1.0, "left must be one row"),
        ("right", np.array([b"a", b"b", b"c", b"d", b"e"]), "right must hold real numbers"),
        ("right", FIELD[:, -1] + 1j, "right must hold real numbers"),
        ("right", None, "/boundary/right is missing"),
    ],
)
def test_unsound_edges_are_refused_with_file_and_edge(name, values, message, tmp_path):
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, FIELD, **{name: values})
    assert str(caught.value).startswith(str(tmp_path / "edges.h5"))


MANY = np.stack([FIELD, 2 * FIELD, 3 * FIELD])


@pytest.mark.parametrize(
    ("fields", "changed", "message"),
    [
        (np.where(np.arange(3)[:, None, None] == 1, np.nan, MANY), {}, "problem 1: boundary edge bottom has 7 of 7"),
        (MANY, {"left": np.ones((2, 5))}, "rows are bottom 3, top 3, left 2, right 3"),
        (MANY[:0], {}, "need a row per problem"),
        (MANY[:, :, :-1], {}, "problem 0: .* for 5x4 cells .* has 6x4"),
        (FIELD[:, :-1], {}, "for 5x4 cells .* has 6x4"),
    ],
    ids=["unsound", "other numbers", "none", "another grid", "another grid of one"],
)  # fmt: skip
def test_rows_of_problems_that_do_not_fit_are_refused(fields, changed, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, fields, **changed)


def test_a_truncated_file_is_refused(tmp_path):
    read(tmp_path, FIELD)
    path = tmp_path / "edges.h5"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="not a complete boundary file"):
        BoundaryFile(path).boundaries(GRID)


@pytest.mark.parametrize(
    ("given", "told"),
    [({"spacing": 0.2}, "give spacing 0.1x0.1"), ({"origin": (1.0, 0.0)}, "give origin 0,0")],
)
def test_values_on_the_edges_of_a_domain_elsewhere_are_refused(tmp_path, given, told):
    path, domain = tmp_path / "first.h5", m.Domain((16, 8), **{"spacing": 0.1} | given)
    m.solve(m.Problem(m.Domain((16, 8), 0.1), "poisson", None, m.Dirichlet("x"))).save(path)
    with pytest.raises(ValueError, match=told):
        m.solve(m.Problem(domain, "poisson", None, BoundaryFile(path)))
    with h5py.File(path) as file, h5py.File(tmp_path / "bare.h5", "w") as bare:
        file.copy("boundary", bare)
    bare = m.Problem(domain, "poisson", None, BoundaryFile(tmp_path / "bare.h5"))
    assert m.solve(bare).converged  # a file without a grid is of any
