"""Effective conductivities of periodic cells, against sparse factorisations of the same network, and formulas."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.csgraph
import scipy.sparse.linalg

import mosaicdd as m

SINGLE = 1e-7  # conductances are float32 numbers, right to 6e-8


def tensor_of(along, spacing):
    """Return the tensor by a sparse factorisation, edge by edge as defined; and the values for each axis."""
    shape, axes = along[0].shape, len(along)
    number = np.arange(along[0].size).reshape(shape)
    lengths = np.multiply(shape, spacing)
    entries, seams = [], []
    for axis, k in enumerate(along):
        with np.errstate(divide="ignore"):
            resistance = 0.5 / k + 0.5 / np.roll(k, -1, axis)
        weights = (np.prod(spacing) / spacing[axis] ** 2 / resistance).ravel()
        i, j = number.ravel(), np.roll(number, -1, axis).ravel()
        entries += [(i, j, -weights), (j, i, -weights), (i, i, weights), (j, j, weights)]
        seam = (np.indices(shape)[axis] == shape[axis] - 1).ravel()
        seams.append((i[seam], j[seam], weights[seam]))
    rows, columns, values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    matrix = scipy.sparse.csc_array((values, (rows, columns)), shape=(number.size,) * 2)
    matrix.eliminate_zeros()
    part = scipy.sparse.csgraph.connected_components(matrix)[1]
    held = np.unique(part, return_index=True)[1]
    free = np.setdiff1d(np.flatnonzero(matrix.diagonal()), held)
    factors = scipy.sparse.linalg.splu(matrix[free][:, free].tocsc())
    tensor, fields = np.zeros((axes, axes)), []
    for axis in range(axes):
        b, u = np.zeros(number.size), np.zeros(number.size)
        i, j, k = seams[axis]
        np.add.at(b, i, -k)
        np.add.at(b, j, k)
        u[free] = factors.solve(b[free])
        for other, (i, j, k) in enumerate(seams):
            flow = (k * ((other == axis) + u[i] - u[j])).sum()
            tensor[other, axis] = flow * lengths[axis] * lengths[other] / lengths.prod()
        fields.append(u.reshape(shape))
    return tensor, fields


def slanting(shape, period=5, width=2):
    """Return where diagonal stripes are, over which conductivities along the axes depend on each other."""
    return np.indices(shape).sum(axis=0) % period < width


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("shape", [(20, 25), (15, 23), (15, 20, 10)])
def test_a_cell_has_the_tensor_of_a_factorisation(comm, shape):
    rng = np.random.default_rng(1)
    medium = np.where(slanting(shape), 20.0, 1.0) * 10.0 ** rng.uniform(-0.5, 0.5, shape)
    spacing = (0.5, 2.0, 1.0)[-len(shape) :]
    result = m.effective(medium, spacing, periodic=True, rtol=1e-8, ranks=comm)
    expected, _ = tensor_of([medium] * len(shape), spacing)
    assert result.converged
    np.testing.assert_allclose(result.tensor, expected, rtol=0, atol=SINGLE * expected.max())
    assert np.array_equal(result.tensor, result.tensor.T)
    assert abs(expected[0, 1]) > 0.05 * expected.max()
    assert result.voxels == shape


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("shape", [(20, 24), (10, 15, 12)])
def test_what_does_not_lead_to_the_next_cell_floats(comm, shape):
    rng, axes = np.random.default_rng(2), len(shape)
    there = rng.random(shape) < (0.68 if axes == 2 else 0.4)
    along = [np.where(there, 10.0 ** rng.uniform(-1, 1, shape), 0.0) for _ in shape]
    medium = dict(zip("zyx"[-axes:], along, strict=True))
    result = m.effective(medium, periodic=True, rtol=1e-8, ranks=comm)
    expected, _ = tensor_of(along, (1.0,) * axes)
    assert result.converged
    np.testing.assert_allclose(result.tensor, expected, rtol=0, atol=SINGLE * expected.max())
    assert all(0 < of_axis.floating < 1 for of_axis in result.axes.values())


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_channels_of_a_cell_are_known_from_what_closes_in_itself(comm):
    cell = np.zeros((20, 24))
    cell[3], cell[12, 2:22] = 1.0, 1.0  # one leads to the next cell, the other ends
    cell[:, 5] = 1.0  # and this leads along y, crossing both
    result = m.effective(cell, periodic=True, ranks=comm)
    np.testing.assert_allclose(np.diag(result.tensor), [1 / 24, 1 / 20], rtol=1e-6)
    cell[:, 5], cell[3] = 0.0, 1.0
    along_x = m.effective(cell, periodic=True, ranks=comm)
    assert along_x["y"].status == "no_path"
    np.testing.assert_allclose(along_x.tensor, np.diag([0.0, 1 / 20]), atol=1e-9)
    # A staircase that goes up by a cell when it has gone along by one: what flows in it flows along both.
    stairs = np.kron(np.eye(12), np.ones((1, 2)))
    stairs += np.roll(np.kron(np.eye(12), [[0, 1]]), 1, axis=0)
    tensor = m.effective(np.minimum(stairs, 1), periodic=True, ranks=comm).tensor
    np.testing.assert_allclose(tensor, tensor[0, 0] * np.array([[1, 2], [2, 4]]), rtol=1e-6)
    assert tensor[0, 0] == pytest.approx(12**2 / (12 * 24 * 36), rel=1e-6)


def test_layers_at_an_angle_conduct_by_the_formula():
    # Diagonal stripes are rotated layers with steps for sides, of which an error of the first order is left.
    arithmetic, harmonic = 2.5, 1.6
    both = (arithmetic + harmonic) / 2, (harmonic - arithmetic) / 2
    coarse, fine = (
        m.effective(np.where(slanting((n, n), n, n // 2), 4.0, 1.0), periodic=True).tensor
        for n in (60, 120)
    )
    np.testing.assert_allclose(2 * fine - coarse, [both, both[::-1]], rtol=1e-3)


@pytest.mark.parametrize("shape", [(18, 20), (9, 11)])
def test_the_field_is_that_of_the_network(shape):
    medium = 10.0 ** np.random.default_rng(0).uniform(-1, 1, shape)
    along = m.effective(medium, axis="x", periodic=True, rtol=1e-10, field=True)["x"]
    field = tensor_of([medium] * 2, (1.0, 1.0))[1][1]
    np.testing.assert_allclose(along.field, 0.5 + field - field.mean(), atol=1e-6)


@pytest.mark.parametrize("ratio", [1e4, 1e9])
def test_high_contrasts_are_right_or_not_converged(ratio):
    medium = np.where(np.random.default_rng(3).random((40, 40)) < 0.4, ratio, 1.0)
    result = m.effective(medium, periodic=True)
    expected, _ = tensor_of([medium] * 2, (1.0, 1.0))
    assert result.converged
    for name, value in zip("yx", np.diag(expected), strict=True):
        assert result[name].conductivity == pytest.approx(value, rel=1e-5)


def test_one_axis_alone_is_told_with_what_flows_across_it():
    medium = np.where(slanting((20, 25)), 20.0, 1.0)
    result = m.effective(medium, axis="x", periodic=True, rtol=1e-8)
    expected, _ = tensor_of([medium] * 2, (1.0, 1.0))
    assert result["x"].across["y"] == pytest.approx(expected[0, 1], rel=1e-6)
    np.testing.assert_allclose(result.tensor[:, 1], expected[:, 1], rtol=1e-6)
    assert np.isnan(result.tensor[0, 0])


def test_periodic_is_yes_or_no():
    with pytest.raises(TypeError, match="periodic"):
        m.effective(np.ones((8, 8)), periodic="x")


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_what_closes_in_itself_along_an_axis_lets_nothing_through_along_it(comm):
    # A band that leads to the next cell along x, and dead ends that hang on it across the end of the cell along y.
    cell = np.zeros((20, 24))
    cell[2:5] = 1.0
    cell[-6:, 7], cell[:3, 7] = 1.0, 1.0
    cell[-6, 7:20] = 1.0
    tensor = m.effective(cell, periodic=True, rtol=1e-3, ranks=comm).tensor
    assert np.array_equal(tensor == 0, [[True, True], [True, False]])


def test_what_aggregates_alone_solve_to_first_digits_is_iterated_on():
    balls = bytes.fromhex("2260006e00602606ee8e8202c18d02c1e9e100ac")
    there = np.unpackbits(np.frombuffer(balls, np.uint8)).reshape(5, 4, 8)
    result = m.effective(np.where(there, 1e9, 1.0), (7.0, 1.0, 6.0), periodic=True)
    assert result.converged
