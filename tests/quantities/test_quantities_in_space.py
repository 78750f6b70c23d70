"""What people read off a solution in a box whose cells are no cubes."""

import numpy as np
import pytest

import mosaicdd as m

DOMAIN = m.Domain((20, 24, 32), {"x": 0.1, "y": 0.2, "z": 0.05})  # 3.2 x 4.8 x 1
AREAS = {
    "left": 4.8,
    "right": 4.8,
    "bottom": 3.2,
    "top": 3.2,
    "back": 3.2 * 4.8,
    "front": 3.2 * 4.8,
}
# Sums of 15,000 numbers, of a field that is right to 1e-11.
CLOSE = {"rel": 1e-8, "abs": 1e-8}


@pytest.fixture(scope="module")
def slope():
    return m.solve(m.Problem(DOMAIN, "laplace", None, m.Dirichlet("x + 2*y - 3*z")), rtol=1e-11)


def test_a_linear_field_flows_through_all_faces_alike(slope):
    along = {"right": 1, "top": 2, "front": -3, "left": -1, "bottom": -2, "back": 3}
    for side, derivative in along.items():
        assert slope.flow(side) == pytest.approx(-derivative * AREAS[side], **CLOSE)
    for flux, derivative in zip(slope.flux(), (-3, 2, 1), strict=True):
        inner = flux[(slice(1, -1),) * 3]
        np.testing.assert_allclose(inner, -derivative, atol=1e-7)
    for values, derivative in zip(slope.gradient(), (-3, 2, 1), strict=True):
        np.testing.assert_allclose(values, derivative, atol=1e-7)
    assert slope.energy() == pytest.approx((1 + 4 + 9) / 2 * 3.2 * 4.8, **CLOSE)


def test_means_integrals_and_values_are_those_of_a_linear_field(slope):
    assert slope.mean() == pytest.approx(1.6 + 4.8 - 1.5, **CLOSE)
    assert slope.integral({"z": (0, 0.5), "x": (0.05, 0.15)}) == pytest.approx(
        (0.1 + 4.8 - 0.75) * 0.5 * 0.1 * 4.8, **CLOSE
    )
    half = np.zeros(DOMAIN.cells, bool)
    half[:, :, :16] = True
    assert slope.mean(half) == pytest.approx(0.8 + 4.8 - 1.5, **CLOSE)
    highest = slope.max()
    assert highest.value == pytest.approx(3.2 + 2 * 4.8)
    assert highest.place == pytest.approx((3.2, 4.8, 0.0))
    distances, values = slope.along([(0, 0, 0), (3.2, 4.8, 1.0)])
    np.testing.assert_allclose(values, distances / distances[-1] * (3.2 + 9.6 - 3), atol=1e-7)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("around", [False, True])
def test_what_flows_in_is_what_flows_out_or_is_consumed(comm, around, common_path):
    rng = np.random.default_rng(0)
    a, f = np.exp(rng.standard_normal(DOMAIN.cells)), rng.standard_normal((21, 25, 33))
    sides = {"left": m.Dirichlet(1.0), "right": m.Neumann(0.5), "front": m.Robin(2.0, 1.0)}
    sides |= {"back": m.Neumann("x")}
    rest = m.Periodic() if around else m.Neumann(0.25)
    sides |= {"top": rest, "bottom": rest}
    problem = m.Problem(DOMAIN, "diffusion", {"a": a, "f": f, "c": 0.3}, sides)
    solution = m.solve(problem, ranks=comm, rtol=1e-11, output=common_path / "out.h5")
    balance = solution.balance()
    assert balance.flows["right"] == pytest.approx(-0.5 * AREAS["right"])
    assert balance.flows["back"] == pytest.approx(-1.6 * AREAS["back"])
    assert ("top" in balance.flows) != around
    u, volumes = solution.gather(), np.ones((1, 1, 1))
    for cells, step in zip(DOMAIN.cells, DOMAIN.grid().steps, strict=True):
        share = step * np.r_[0.5, np.ones(cells - 1), 0.5]
        volumes = volumes[..., None] * share
    volumes = volumes[0, 0, 0]
    assert balance.sources == pytest.approx((f * volumes).sum(), **CLOSE)
    assert balance.reaction == pytest.approx(0.3 * (u * volumes).sum(), **CLOSE)
    areas = np.einsum(
        "y,x->yx", *(s * np.r_[0.5, np.ones(n - 1), 0.5] for n, s in ((24, 0.2), (32, 0.1)))
    )
    assert balance.flows["front"] == pytest.approx(((2 * u[-1] - 1) * areas).sum(), **CLOSE)
    out = sum(balance.flows.values()) + balance.reaction - balance.sources
    assert abs(out) < 1e-8 * abs(balance.sources) + 1e-8 * AREAS["back"]
    if comm.rank == 0:
        stored = m.read(common_path / "out.h5")
        assert stored.balance().flows == pytest.approx(balance.flows, **CLOSE)
        assert stored.mean() == pytest.approx((u * volumes).sum() / (3.2 * 4.8), **CLOSE)
