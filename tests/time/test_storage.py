"""What is stored: ``s du/dt``, where ``s`` is a number or a field at the nodes or per cell."""

import numpy as np
import pytest

import mosaicdd as m

INSULATED = m.Neumann(0.0)
LEFT_RIGHT = {
    "left": m.Dirichlet(1.0),
    "right": m.Dirichlet(0.0),
    "top": INSULATED,
    "bottom": INSULATED,
}
TIGHT = {"settings": m.SolveSettings(rtol=1e-12), "solver_share": 0}


def test_twice_the_storage_takes_twice_the_time():
    once = m.march(
        m.Problem((48, 64), "heat", {"f": "x"}, LEFT_RIGHT), "x*y", dt=0.01, steps=8, **TIGHT
    )
    problem = m.Problem((48, 64), "heat", {"f": "x", "s": 2.0}, LEFT_RIGHT)
    twice = m.march(problem, "x*y", dt=0.02, steps=8, **TIGHT)
    np.testing.assert_allclose(twice.field, once.field, atol=1e-11)


@pytest.mark.parametrize("method", ["euler", "bdf2", "crank-nicolson"])
@pytest.mark.parametrize("per_cell", [True, False])
def test_what_is_stored_in_an_insulated_domain_stays(method, per_cell):
    rng = np.random.default_rng(0)
    cells, nodes = (40, 56), (41, 57)
    s = np.exp(rng.standard_normal(cells if per_cell else nodes))
    series = m.march(
        m.Problem(cells, "heat", {"a": "1 + x", "s": s}, INSULATED),
        rng.standard_normal(nodes),
        dt=0.01,
        steps=4,
        method=method,
        **TIGHT,
    )
    share = [np.r_[0.5, np.ones(n - 2), 0.5] for n in nodes]
    weights = np.outer(*share) * s if not per_cell else around(s)
    stored = [(weights * series[i]).sum() for i in range(5)]
    np.testing.assert_allclose(stored, stored[0], atol=1e-9 * weights.sum())


def around(cells):
    """Return a quarter of the values of the cells around each node."""
    padded = np.pad(cells, 1)
    return (padded[1:, 1:] + padded[:-1, 1:] + padded[1:, :-1] + padded[:-1, :-1]) / 4


def test_what_is_stored_in_an_insulated_part_of_voxels_stays():
    rng = np.random.default_rng(0)
    mask = np.ones((6, 8, 10), bool)
    mask[2:4, :5, 3:] = False
    volumes = np.zeros((7, 9, 11))
    for corner in np.ndindex(2, 2, 2):
        volumes[tuple(slice(at, at + n) for at, n in zip(corner, mask.shape, strict=True))] += mask
    fields = {"s": np.exp(rng.standard_normal(volumes.shape))}
    problem = m.Problem(m.Domain.from_mask(mask, 0.1), "heat", fields, INSULATED)
    series = m.march(
        problem, rng.standard_normal(volumes.shape), dt=0.01, steps=2, method="euler", **TIGHT
    )
    amounts = [np.nansum(volumes * fields["s"] * series[i]) for i in range(3)]
    np.testing.assert_allclose(amounts, amounts[0], atol=1e-9 * volumes.sum())
    assert np.nanstd(series[2]) < 0.8 * np.nanstd(series[0])


def test_a_reaction_that_is_given_inside_alone_goes_on_beside_a_natural_outline():
    disk = m.Domain.from_distance("hypot(x - 0.4, y - 0.4) - 0.35", (24, 24), 0.8 / 24)
    y, x = np.mgrid[0:25, 0:25] * 0.8 / 24
    c = np.where(np.hypot(x - 0.4, y - 0.4) < 0.35, 0.5, np.nan)
    sides = {"outline": m.Neumann(0.3)}
    problems = [m.Problem(disk, "heat", {"s": np.exp(9 * x), "c": c}, sides) for c in (c, 0.5)]
    fields = [m.march(problem, 1.0, dt=0.01, steps=2, **TIGHT).field for problem in problems]
    np.testing.assert_allclose(*fields, atol=1e-10)


def test_it_is_a_scale_of_time_in_a_disk_too():
    def solved(s, dt):
        disk = m.Domain.from_distance("hypot(x - 0.4, y - 0.4) - 0.35", (48, 48), 0.8 / 48)
        y, x = np.mgrid[0:49, 0:49] * 0.8 / 48
        known = np.hypot(x - 0.4, y - 0.4) < 0.45  # nothing is known further out
        field = np.where(known, s, np.nan)
        problem = m.Problem(disk, "heat", {"s": field}, {"outline": m.Dirichlet(0.0)})
        return m.march(problem, 1.0, dt=dt, steps=4, **TIGHT).field

    np.testing.assert_allclose(solved(3.0, 0.03), solved(1.0, 0.01), atol=1e-10)


@pytest.mark.parametrize(
    ("s", "error", "message"),
    [
        (0.0, ValueError, "heat needs s > 0, got s 0"),
        (
            np.where(np.arange(33) == 7, -1.0, 1.0) * np.ones((33, 1)),
            ValueError,
            r"the field s must be positive everywhere; 33 of the 1089 values given are not, the first is -1 at node \(0, 7\)",
        ),
        (
            np.pad(np.ones((31, 32)), ((0, 1), (0, 0))),
            ValueError,
            r"the field s must be positive everywhere; 32 of the 1024 values given are not, the first is 0 at cell \(31, 0\)",
        ),
        (np.ones((32, 33)), ValueError, r"the field s has the shape \(32, 33\)"),
        (np.full((33, 33), np.nan), ValueError, "the field s"),
    ],
)
def test_what_is_no_storage_is_refused(s, error, message):
    with pytest.raises(error, match=message):
        m.march(m.Problem((32, 32), "heat", {"s": s}), 0.0, dt=0.1, steps=1)


def test_a_file_keeps_it_and_goes_on(tmp_path):
    s = np.exp(np.random.default_rng(0).standard_normal((33, 33)))
    problem = m.Problem((32, 32), "heat", {"s": s, "f": 1.0})
    series = m.march(problem, 0.0, dt=0.1, steps=3, output=tmp_path / "out.h5")
    stored = m.read(tmp_path / "out.h5")
    np.testing.assert_array_equal(stored.fields["s"], s)
    np.testing.assert_array_equal(stored.field, series.field)
