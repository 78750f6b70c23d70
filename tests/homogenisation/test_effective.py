"""Effective conductivities, against sparse factorisations of the same network, and formulas."""

import numpy as np
import pytest
import scipy.ndimage
import scipy.sparse
import scipy.sparse.linalg
import torch

import mosaicdd as m
from mosaicdd.homogenisation import effective
from mosaicdd.homogenisation.effective_conductivity import FlowJudge
from mosaicdd.homogenisation.summary import hashin_shtrikman
from mosaicdd.solvers.multigrid.node_system import NodeEquations

SINGLE = 3e-7  # conductances are float32 numbers, right to 6e-8; of conductivities they are means


def expected(along, spacing, axis):
    """Return the conductivity by a sparse factorisation, voxel by voxel as defined; and the values."""
    shape, axes = along[0].shape, len(along)
    label, _ = scipy.ndimage.label(along[0] > 0)
    low, high = (np.unique(np.take(label, end, axis)) for end in (0, -1))
    there = np.isin(label, np.setdiff1d(np.intersect1d(low, high), [0]))
    number = np.full(shape, -1)
    number[there] = np.arange(there.sum())
    weight = [np.prod(spacing) / side**2 for side in spacing]
    size = there.sum()
    diagonal, b, entries = np.zeros(size), np.zeros(size), []
    for each in range(axes):
        here, beside = (
            [
                np.take(values, range(first, first + shape[each] - 1), each).ravel()
                for values in (number, along[each])
            ]
            for first in (0, 1)
        )
        both = (here[0] >= 0) & (beside[0] >= 0)
        i, j = here[0][both], beside[0][both]
        k = weight[each] / (0.5 / here[1][both] + 0.5 / beside[1][both])
        np.add.at(diagonal, i, k)
        np.add.at(diagonal, j, k)
        entries += [(i, j, -k), (j, i, -k)]
    faces = []
    for end, value in ((0, 1.0), (-1, 0.0)):
        i, k = np.take(number, end, axis).ravel(), np.take(along[axis], end, axis).ravel()
        i, k = i[i >= 0], 2 * weight[axis] * k[i >= 0]
        np.add.at(diagonal, i, k)
        b[i] += k * value
        faces.append((i, k))
    entries.append((np.arange(size), np.arange(size), diagonal))
    rows, columns, values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    matrix = scipy.sparse.csc_array((values, (rows, columns)), shape=(size, size))
    u = scipy.sparse.linalg.spsolve(matrix, b)
    i, k = faces[1]
    length = shape[axis] * spacing[axis]
    field = np.full(shape, np.nan)
    field[there] = u
    return (k * u[i]).sum() * length**2 / np.prod(np.multiply(shape, spacing)), field


def blobs(shape, fraction, seed=0, width=1.2):
    """Return a mask of so large a share of a smoothed noise."""
    white = np.random.default_rng(seed).standard_normal(shape)
    smooth = scipy.ndimage.gaussian_filter(white, width, mode="wrap")
    return smooth < np.quantile(smooth, fraction)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("shape", [(22, 30, 17), (61, 43)])
def test_a_medium_that_differs_along_axes_conducts_what_a_factorisation_says(comm, shape):
    rng, names = np.random.default_rng(1), "zyx"[-len(shape) :]
    conducts = blobs(shape, 0.7)
    along = [np.where(conducts, 10.0 ** rng.uniform(-2, 2, shape), 0.0) for _ in shape]
    spacing = (0.5, 2.0, 1.0)[-len(shape) :]
    medium = dict(zip(names, along, strict=True))
    result = m.effective(medium, spacing, rtol=1e-8, ranks=comm)
    assert list(result.axes) == list(names)
    assert result.converged
    for axis, name in enumerate(names):
        conductivity, _ = expected(along, spacing, axis)
        assert result[name].conductivity == pytest.approx(conductivity, rel=SINGLE)
        assert result[name].inflow == pytest.approx(conductivity, rel=SINGLE)
        assert result[name].tortuosity is None
        low, high = result[name].wiener
        assert low == 0 < conductivity < high == pytest.approx(along[axis].mean())
    assert result.volume_fraction == conducts.mean()
    assert result.hashin_shtrikman is None


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_what_floats_in_a_mask_is_left_out_and_said(comm):
    mask = blobs((24, 27, 31), 0.35, seed=3, width=1.0)
    result = m.effective(mask, 1e-6, axis="y", rtol=1e-8, ranks=comm)
    conductivity, field = expected([mask.astype(float)] * 3, (1.0,) * 3, 1)
    along = result["y"]
    assert along.status == "converged_rtol"
    assert along.conductivity == pytest.approx(conductivity, rel=SINGLE)
    assert along.tortuosity == pytest.approx(mask.mean() / conductivity, rel=SINGLE)
    assert 0 < along.floating == pytest.approx(1 - np.isfinite(field).sum() / mask.sum())
    assert "float" in str(along)


def test_the_field_is_that_of_the_network():
    mask = blobs((24, 27, 31), 0.35, seed=3, width=1.0)
    along = m.effective(mask, axis="y", rtol=1e-10, field=True)["y"]
    _, field = expected([mask.astype(float)] * 3, (1.0,) * 3, 1)
    np.testing.assert_allclose(along.field, field, atol=1e-6)


def winding(height, folds):
    """Return a channel of one voxel, from the face y = 0 to and fro to the other one, and its length."""
    mask = np.zeros((height, 2 * folds + 1), bool)
    mask[1:-1, ::2] = True
    mask[-2, 1::4] = mask[1, 3::4] = True
    mask[0, 0] = mask[-1, -1] = True
    return mask, mask.sum()


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("depth", [0, 11])
def test_a_path_that_winds_through_all_ranks_is_followed_to_its_end(comm, depth):
    mask, length = winding(34, 16)
    if depth:
        mask = np.stack([mask & (layer == 5) for layer in range(depth)], axis=2)
    y = mask.shape[0]
    along = m.effective(mask, axis="zy"[not depth], rtol=1e-8, ranks=comm)["zy"[not depth]]
    assert along.status == "converged_rtol"
    assert along.floating == 0
    assert along.conductivity == pytest.approx(y**2 / mask.size / length, rel=SINGLE)
    mask[17, 16] = False
    broken = m.effective(mask, axis="zy"[not depth], ranks=comm)["zy"[not depth]]
    assert broken.status == "no_path"
    assert broken.converged
    assert broken.conductivity == 0
    assert broken.tortuosity == np.inf
    assert broken.floating == 1
    assert "no path" in str(broken)


@pytest.mark.parametrize("shape", [(16, 23), (16, 9, 7)])
def test_layers_conduct_their_arithmetic_and_harmonic_means(shape):
    layers = np.where(np.arange(16) % 8 < 3, 5.0, 1.0)
    medium = np.broadcast_to(layers.reshape(-1, *[1] * (len(shape) - 1)), shape)
    result = m.effective(medium, rtol=1e-8)
    across, *along = result.axes.values()
    assert across.conductivity == pytest.approx(1 / np.mean(1 / layers), rel=SINGLE)
    assert across.wiener == pytest.approx((1 / np.mean(1 / layers), layers.mean()))
    for each in along:
        assert each.conductivity == pytest.approx(layers.mean(), rel=SINGLE)
    assert np.diag(result.tensor) == pytest.approx(list(result.conductivity.values()))


def test_a_checkerboard_tends_to_the_geometric_mean():
    # At the corners values vary as r^p with tan(p pi / 4) = 1 / 2 at a ratio of 4: energies are of order h^(2 p).
    errors = []
    for cells in (4, 8, 16, 32):
        square = np.indices((4, 4)).sum(axis=0) % 2
        medium = np.kron(np.where(square, 4.0, 1.0), np.ones((cells, cells)))
        result = m.effective(medium, axis="x", rtol=1e-8)
        low, high = result.hashin_shtrikman
        assert low < result["x"].conductivity < high
        errors.append(abs(result["x"].conductivity - 2))
    order = 4 / np.pi * np.arctan(1 / 2) * 2
    assert np.log2(np.divide(errors[:-1], errors[1:])) == pytest.approx(order, abs=0.1)


def test_bounds_of_two_phases_are_those_of_hashin_and_shtrikman():
    # Coated spheres: Maxwell's formula, k (2 k + i + 2 f (i - k)) / (2 k + i - f (i - k)) for a share f of inclusions i.
    k, i, f = 1.0, 10.0, 0.3
    maxwell = k * (2 * k + i + 2 * f * (i - k)) / (2 * k + i - f * (i - k))
    low, high = hashin_shtrikman(f, i, k, 3)
    assert low == pytest.approx(maxwell)
    k, i, f = i, k, 1 - f
    assert high == pytest.approx(k * (2 * k + i + 2 * f * (i - k)) / (2 * k + i - f * (i - k)))
    assert hashin_shtrikman(0.3, 1.0, 0.0, 2) == pytest.approx((0.0, 0.3 / 1.7))


@pytest.mark.parametrize("contrast", [1e4, 1e9])
def test_high_contrasts_are_right_or_not_converged(contrast):
    medium = np.where(blobs((40, 40), 0.5, width=0.7), contrast, 1.0)
    along = m.effective(medium, axis="x")["x"]
    conductivity, _ = expected([medium] * 2, (1.0, 1.0), 1)
    assert along.status == "converged_rtol"
    assert along.conductivity == pytest.approx(conductivity, rel=1e-5)
    assert along.balance <= 1e-5
    ended = m.effective(medium, axis="x", max_iterations=3)["x"]
    assert ended.status == "diverged_max_iterations"
    assert not ended.converged
    assert ended.iterations == 3
    assert ended.error > 1e-5 * ended.conductivity


@pytest.mark.ranks(1, 2, 4)
@pytest.mark.parametrize("iterations", [100, 1])
def test_flows_are_right_by_levels_of_single_precision_or_else_by_others(
    iterations, comm, monkeypatch
):
    """Of a ratio between those of fields and of flows; after one iteration flows do not agree."""
    digits = []

    def system_of(*of, **how):
        system = NodeEquations(*of, **how)
        digits.append(system.dtype)
        return system

    monkeypatch.setattr(effective, "NodeEquations", system_of)
    monkeypatch.setattr(effective, "_ITERATIONS", iterations)
    medium = np.where(blobs((40, 40), 0.5, width=0.7), 5e8, 1.0)
    along = m.effective(medium, axis="x", ranks=comm)["x"]
    conductivity, _ = expected([medium] * 2, (1.0, 1.0), 1)
    assert along.converged
    assert along.conductivity == pytest.approx(conductivity, rel=1e-5)
    assert digits == [torch.float32, torch.float64][: 1 + (iterations == 1)]
    digits.clear()
    m.effective(medium, axis="x", field=True, ranks=comm)
    assert digits == [torch.float64]


def test_grains_that_do_not_touch_are_right():
    grains = np.random.default_rng(0).random((20, 20, 20)) < 0.28
    for ratio in (1e3, 1e9):
        medium = np.where(grains, ratio, 1.0)
        along = m.effective(medium, axis="z", max_iterations=100)["z"]
        conductivity, _ = expected([medium] * 3, (1.0,) * 3, 0)
        assert along.converged
        assert abs(along.conductivity / conductivity - 1) <= 1e-5


def test_what_agrees_by_chance_only_is_not_taken_for_the_end(monkeypatch):
    medium = np.where(blobs((40, 40), 0.5, width=0.7), 1e4, 1.0)
    monkeypatch.setattr(FlowJudge, "confirms", lambda judge, x: True)
    along = m.effective(medium, axis="x", rtol=1e-6)["x"]
    conductivity, _ = expected([medium] * 2, (1.0, 1.0), 1)
    assert along.residual < 1e-4  # it ends at 1e-3 else
    assert along.conductivity - conductivity <= along.error + SINGLE * conductivity
    assert along.converged == (along.error <= 1e-6 * along.conductivity)


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_units_do_not_matter(scale):
    medium = np.where(blobs((20, 20), 0.6), 2.0, 1.0)
    usual = m.effective(medium, axis="y", rtol=1e-8)["y"]
    other = m.effective(scale * medium, scale, axis="y", rtol=1e-8)["y"]
    assert other.conductivity == pytest.approx(scale * usual.conductivity, rel=SINGLE)
    assert other.inflow == pytest.approx(scale * usual.inflow, rel=SINGLE)


@pytest.mark.parametrize(
    "given",
    [
        lambda mask: mask[:, ::-1][:, ::-1],
        lambda mask: np.asfortranarray(mask.astype(np.uint8)),
        lambda mask: torch.from_numpy(mask),
        lambda mask: mask.astype(int).tolist(),
        lambda mask: mask.astype(np.float16),
    ],
    ids=["view", "uint8", "torch", "list", "float16"],
)
def test_a_mask_is_taken_as_people_have_it(given):
    mask = blobs((20, 30), 0.8)
    usual = m.effective(mask, axis="y")["y"]
    assert m.effective(given(mask), axis="y")["y"].conductivity == pytest.approx(usual.conductivity)


@pytest.mark.ranks(1, 2, 3)
def test_a_file_is_read_by_all_ranks(comm, common_path):
    mask, path = blobs((20, 30), 0.8), common_path / "mask.npy"
    if comm.rank == 0:
        np.save(path, mask)
    comm.barrier()
    result = m.effective(np.load(path, mmap_mode="r"), ranks=comm)
    assert result.volume_fraction == mask.mean()
    assert result["x"].conductivity == pytest.approx(m.effective(mask)["x"].conductivity, rel=1e-5)


@pytest.mark.ranks(2)
def test_ranks_with_different_media_are_told(comm):
    with pytest.raises(ValueError, match="20x20 and 20x21 voxels"):
        m.effective(np.ones((20 + comm.rank, 20)), ranks=comm)


@pytest.mark.parametrize("place", range(3, 7))
@pytest.mark.parametrize("axes", [2, 3])
def test_a_sheet_conducts_wherever_it_lies(axes, place):
    """Coarse nodes on both sides of one can differ without an effect."""
    effective = m.effective(np.indices((11,) * axes)[0] == place)
    assert effective["x"].status == "converged_rtol"
    assert effective.conductivity["x"] == pytest.approx(1 / 11, rel=1e-5)
    assert effective.conductivity["zy"[3 - axes :][0]] == 0


def test_single_voxels_and_thin_media():
    assert m.effective(np.full((1, 1, 1), 3.0)).conductivity == pytest.approx(
        dict.fromkeys("zyx", 3.0)
    )
    bar = np.array([[[1.0], [2.0], [4.0]]])
    result = m.effective(bar, {"x": 1.0, "y": 2.0, "z": 5.0})
    assert result.conductivity == pytest.approx({"z": 7 / 3, "y": 3 / 1.75, "x": 7 / 3})


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize(
    ("medium", "options", "says"),
    [
        (
            np.where(np.eye(20) > 0, np.nan, 1.0),
            {},
            "finite and not negative, got nan and (19|9) more",
        ),
        (1.0 - 2 * np.eye(20), {}, "finite and not negative, got -1"),
        (np.ma.array(np.ones((20, 20)), mask=np.eye(20) > 0), {}, "not negative, got nan"),
        (np.ones(20), {}, "got 1 axes"),
        (np.ones((0, 20)), {}, "got 20x0"),
        (np.where(np.eye(20) > 0, 1e-35, 1.0), {}, "from 1e-35 to 1"),
        ({"x": np.ones((20, 20)), "y": np.ones((20, 21))}, {}, "got 20x20, 21x20"),
        ({"x": np.ones((20, 20)), "y": np.eye(20)}, {}, "along all axes or along none"),
        ({"x": np.ones((20, 20))}, {}, "no y"),
        (np.ones((20, 20)), {"axis": "z"}, "must be one of y, x, got 'z'"),
        (np.ones((20, 20)), {"spacing": (1, 2, 3)}, "2 sides, .y, x., got 3"),
        (np.ones((20, 20)), {"spacing": 0.0}, "positive number"),
        (np.ones((20, 20)), {"rtol": 0}, "rtol must be above 0"),
        (np.ones((20, 20)), {"max_iterations": 0}, "at least 1"),
    ],
)
def test_what_is_no_medium_is_refused(comm, medium, options, says):
    with pytest.raises(ValueError, match=says):
        m.effective(medium, ranks=comm, **options)


@pytest.mark.ranks(4, 6)
def test_ranks_that_do_not_fit_are_refused(comm):
    with pytest.raises(ValueError, match=rf"{comm.size} ranks do not fit 9x9 voxels.*at most 1"):
        m.effective(np.ones((9, 9)), ranks=comm)


def test_progress_is_shown():
    shown = []
    m.effective(
        blobs((20, 20), 0.8), progress=lambda fraction, note: shown.append((fraction, note))
    )
    assert shown[0][1].startswith("y: iteration 1, residual")
    assert [fraction for fraction, _ in shown] == sorted(fraction for fraction, _ in shown)
    assert shown[-1][0] <= 1
