"""Volumes, faces and lengths of cut cells: of second order, and fitting together exactly."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.problems.shapes.apertures import cut_cells, staircase
from mosaicdd.problems.shapes.outline import rectangle_outline


def level(n, offset=0.0):
    y, x = np.mgrid[: n + 2, : n + 2] / (n + 1)
    return np.hypot(x - 0.5 - offset, y - 0.47) - 0.31


def test_area_and_length_of_a_disk_are_of_second_order():
    areas, lengths = [], []
    for n in (20, 40, 80, 160):
        cover, segments = cut_cells(level(n), np.ones((n + 1, n + 1), bool))
        h = 1 / (n + 1)
        areas.append(abs(cover.volumes.sum() * h**2 - np.pi * 0.31**2))
        lengths.append(abs(segments.lengths.sum() * h - 2 * np.pi * 0.31))
    for errors in (areas, lengths):
        assert np.polyfit(np.log([20, 40, 80, 160]), np.log(errors), 1)[0] < -1.8, errors


@pytest.mark.parametrize("offset", [0.0, 0.013, 0.1])
def test_what_flows_out_of_a_volume_flows_through_faces_or_the_outline(offset):
    """The outward normals of a closed curve add up to nothing: Gauss' theorem for constants."""
    n = 24
    values = level(n, offset)
    cover, segments = cut_cells(values, np.ones((n + 1, n + 1), bool))
    up, right = cover.of_edges(0), cover.of_edges(1)
    # Through the faces of each node, per axis; zero with the outline's part (not tested one by one).
    flow = np.zeros((2, n, n))
    flow[0, :-1] += up
    flow[0, 1:] -= up
    flow[1, :, :-1] += right
    flow[1, :, 1:] -= right
    through = np.zeros((n, n))
    nodes = segments.nodes - 1
    inner = ((nodes >= 0) & (nodes < n)).all(axis=1)
    np.add.at(through, tuple(nodes[inner].T), segments.lengths[inner])
    whole = (cover.volumes > 0) & (cover.volumes < 1 - 1e-12)
    left = np.hypot(*flow)
    # A volume's outline is at least as long as the straight line that closes its faces.
    inside = np.s_[1:-1, 1:-1]
    assert (through[inside] >= left[inside] - 1e-12).all()
    assert (through[inside][~whole[inside]] == 0).all()


def test_an_outline_along_grid_lines_is_exact():
    n = 16
    y, x = np.mgrid[: n + 2, : n + 2]
    values = np.maximum(abs(x - 8) - 4, abs(y - 8) - 4).astype(float)
    cover, segments = cut_cells(values, np.ones((n + 1, n + 1), bool))
    assert cover.volumes.sum() == pytest.approx(64)
    assert segments.lengths.sum() == pytest.approx(32)
    assert abs(segments.distances).max() < 1e-12


def test_a_staircase_has_whole_volumes_and_faces():
    values = np.where(level(20) < 0, -1.0, 0.0)
    cover = staircase(values, np.ones((21, 21), bool))
    inside = values[1:-1, 1:-1] < 0
    np.testing.assert_array_equal(cover.volumes, inside)
    np.testing.assert_array_equal(cover.of_edges(0), inside[1:] & inside[:-1])
    np.testing.assert_array_equal(cover.of_edges(1), inside[:, 1:] & inside[:, :-1])


def test_a_side_has_the_length_that_is_inside():
    side = rectangle_outline(m.Domain((10, 10), 0.1).grid())["bottom"]
    piece = side.within(np.arange(11.0) - 6.3)
    assert piece.lengths.sum() == pytest.approx(6.3)
    assert piece.inside.sum() == 7
