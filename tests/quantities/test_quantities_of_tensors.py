"""Flows, balances and energies of tensors with mixed derivatives, and of bilinear elements."""

import numpy as np
import pytest
from medium_by_cells import volumes_of

import mosaicdd as m

H = 0.2, 0.25
PLANE = m.Domain((96, 128), H)
BOX = m.Domain((24, 20, 32), {"x": 0.25, "y": 0.2, "z": 0.5})
TENSOR = {"axx": 2.0, "axy": 0.7, "ayy": 1.0}
SPATIAL = TENSOR | {"azz": 1.5, "axz": -0.4, "ayz": 0.3}
# Sums over nodes of a field that is right to 1e-11.
CLOSE = {"rel": 1e-8, "abs": 1e-8}


def rough(domain):
    """Return positive definite tensors that vary in place, from node to node."""
    nodes = [n + 1 for n in domain.cells]
    rng = np.random.default_rng(0)
    names = TENSOR if len(nodes) == 2 else SPATIAL
    spread = {name: rng.uniform(-0.3, 0.3, nodes) for name in names}
    return {name: values + (1.5 if name[1] == name[2] else 0.0) for name, values in spread.items()}


@pytest.mark.parametrize(("domain", "tensor"), [(PLANE, TENSOR), (BOX, SPATIAL)])
def test_a_linear_field_flows_as_the_tensor_says(domain, tensor):
    axes = len(domain.cells)
    slope = np.array([1.0, 2.0, -3.0][:axes])  # along x, y, z
    letters = "xyz"[:axes]
    matrix = np.array([[tensor["a" + "".join(sorted(i + j))] for i in letters] for j in letters])
    values = " + ".join(f"({s})*{letter}" for s, letter in zip(slope, letters, strict=True))
    problem = m.Problem(domain, "diffusion", tensor, m.Dirichlet(values))
    solution = m.solve(problem, rtol=1e-11)
    flux = -matrix @ slope
    sizes = np.array(domain.cells) * domain.grid().steps
    area = sizes.prod() / sizes[::-1]
    for axis, (low, high) in enumerate(
        [("left", "right"), ("bottom", "top"), ("back", "front")][:axes]
    ):
        assert solution.flow(high) == pytest.approx(flux[axis] * area[axis], **CLOSE)
        assert solution.flow(low) == pytest.approx(-flux[axis] * area[axis], **CLOSE)
    for across, expected in zip(solution.flux(), flux[::-1], strict=True):
        np.testing.assert_allclose(across[(slice(1, -1),) * axes], expected, atol=1e-7)
    assert solution.energy() == pytest.approx(slope @ matrix @ slope * sizes.prod() / 2, **CLOSE)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("name", ["plane", "box", "bilinear"])
def test_what_is_made_flows_out_and_is_stored_as_the_equations_say(comm, name, common_path):
    domain = BOX if name == "box" else PLANE
    rng = np.random.default_rng(1)
    f, volumes = rng.uniform(0, 1, [n + 1 for n in domain.cells]), volumes_of(domain)
    fields = {"a": rng.uniform(0.5, 2, domain.cells)} if name == "bilinear" else rough(domain)
    equation = "bilinear-diffusion" if name == "bilinear" else "diffusion"
    sides = {"left": m.Dirichlet(1.0), "right": m.Robin(2.0, 0.5), "top": m.Neumann(0.3)}
    sides["bottom"] = m.Neumann(0.0)
    if name == "box":
        sides |= {"back": m.Periodic(), "front": m.Periodic()}
    problem = m.Problem(domain, equation, fields | {"f": f}, sides)
    solution = m.solve(problem, ranks=comm, rtol=1e-12, output=common_path / "out.h5")
    balance = solution.balance()
    assert balance.relative < 1e-9
    u = solution.gather()
    lengths = volumes[..., 0] / (domain.grid().steps[-1] / 2)
    width = domain.cells[-1] * domain.grid().steps[-1]
    depth = np.prod(np.multiply(domain.cells, domain.grid().steps)[:-2])
    assert balance.flows["top"] == pytest.approx(-0.3 * width * depth, **CLOSE)
    exchanged = lengths * (2 * u[..., -1] - 0.5)
    assert balance.flows["right"] == pytest.approx(exchanged.sum(), **CLOSE)
    # Twice the energy is what is made, less what flows out, times the value there.
    if name != "bilinear":
        assert balance.sources == pytest.approx((f * volumes).sum(), **CLOSE)
        worth = (u * f * volumes).sum() - (exchanged * u[..., -1]).sum() - balance.flows["left"]
        along = volumes[..., -1, :] / (domain.grid().steps[-2] / 2)
        worth += 0.3 * (along * u[..., -1, :]).sum()
        assert solution.energy() == pytest.approx(worth / 2, **CLOSE)
    if comm.size == 1 and name == "plane":
        down, across = (H[1] * solution.flux()[0], H[0] * solution.flux()[1])
        flowing = np.diff(down, axis=0)[:, 1:-1] + np.diff(across, axis=1)[1:-1]
        np.testing.assert_allclose(flowing, (f * volumes)[1:-1, 1:-1], atol=1e-9)
    if comm.rank == 0:
        assert m.read(common_path / "out.h5").balance().flows == pytest.approx(
            balance.flows, **CLOSE
        )
