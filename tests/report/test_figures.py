"""Pictures of solutions: what they must not hide, and that all shapes of domains have one."""

import io

import numpy as np
import pytest
from stored_fields import store

import mosaicdd as m

pytest.importorskip("matplotlib")
from matplotlib.colors import LogNorm
from matplotlib.image import imread

from mosaicdd.report.figures import figure

HISTORY = {"update": [1.0, 0.1, 0.01], "residual": [1.0, 0.2, 0.02], "mae": [], "seconds": []}


@pytest.fixture
def solved(tmp_path):
    """Return a function that stores a field as a solution, and reads it."""

    def make(field, *, problems=1, estimate=True, history=HISTORY, **more):
        if estimate:
            nodes = tuple(max(3, (n - 1) // 16 + 1) for n in field.shape)
            errors = np.random.default_rng(0).uniform(1e-6, 1e-4, (problems, *nodes))
            more |= {"error_estimate": 5e-5, "estimates": errors}
        told = {"status": "converged_rtol", "histories": [history] * problems}
        told["problems"] = [{"iterations": len(history["update"])}] * problems
        path = store(tmp_path / "out.h5", [field] * problems, spacing=1 / 16, **told | more)
        return m.read(path, problems - 1)

    return make


def smooth(ny, nx):
    y, x = (np.linspace(0, 3, n + 1) for n in (ny, nx))
    return np.sin(y)[:, None] + np.cos(x)


def titles(drawing):
    return [axes.get_title() for axes in drawing.axes if axes.get_title()]


def panel(drawing, title):
    return next(axes for axes in drawing.axes if axes.get_title().startswith(title))


def pixels(drawing, **options):
    """Return what is seen, ``(rows, columns, 3)``, from the top."""
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", **options)
    buffer.seek(0)
    return imread(buffer)[..., :3]


def seen_in(drawing, axes):
    """Return the pixels of one panel."""
    image = pixels(drawing)
    rows, columns = image.shape[:2]
    box = axes.get_position()
    top, bottom = round((1 - box.y1) * rows), round((1 - box.y0) * rows)
    return image[top + 2 : bottom - 2, round(box.x0 * columns) + 2 : round(box.x1 * columns) - 2]


@pytest.mark.parametrize(
    ("node", "dpi"),
    [
        ((60, 60), 60),
        pytest.param((1500, 777), 60, marks=pytest.mark.nightly),
        pytest.param((1940, 60), 60, marks=pytest.mark.nightly),
        pytest.param((1023, 1411), 60, marks=pytest.mark.nightly),
        pytest.param((1500, 777), 200, marks=pytest.mark.nightly),
    ],
)
def test_the_error_of_a_single_node_of_four_million_is_seen(node, dpi, solved):
    field = smooth(2000, 2000)
    reference = field - 1e-6
    reference[node] -= 1.0
    drawing = figure(solved(field), reference, dpi=dpi)
    axes = panel(drawing, "absolute difference")
    assert "largest 1.0e+00" in axes.get_title()
    (image,) = axes.images
    assert image.get_array().max() == pytest.approx(1.0, rel=1e-5)
    assert pixels(drawing).shape[1] == round(dpi * drawing.get_figwidth())
    # In the picture itself, too: the brightest colour, beside the ring that marks the place.
    brightest = np.array(image.cmap(1.0)[:3])
    distance = np.abs(seen_in(drawing, axes) - brightest).max(axis=-1)
    assert distance.min() < 0.01


def test_small_and_large_differences_are_seen_together(solved):
    field = smooth(64, 64)
    reference = field - np.logspace(-9, -1, 65)[:, None]
    axes = panel(figure(solved(field), reference), "absolute difference")
    (image,) = axes.images
    assert isinstance(image.norm, LogNorm)
    # Five decades below the largest, the rest is the floor.
    assert (image.norm.vmin, image.norm.vmax) == pytest.approx((1e-6, 1e-1))
    assert image.get_array().min() == pytest.approx(1e-6)


def test_a_large_field_is_shown_by_means_and_its_range_by_all_nodes(solved):
    field = np.random.default_rng(0).standard_normal((2001, 2001))
    solution = solved(field)
    axes = panel(figure(solution), "mosaicdd")
    (image,) = axes.images
    shown = image.get_array()
    assert shown.shape[0] < 500
    # Each block of at least 4 x 4 independent nodes: standard deviation 1/4 at most.
    assert shown.std() < 0.3
    assert shown.mean() == pytest.approx(field.mean(), abs=1e-3)
    assert f"{field.min():.4g} to {field.max():.4g}" in axes.get_title()
    assert image.get_clim() == (field.min(), field.max())


def test_the_estimated_error_needs_no_reference(solved):
    drawing = figure(solved(smooth(64, 96)))
    assert [title.split("\n")[0] for title in titles(drawing)] == [
        "mosaicdd (solution)",
        "estimated error, lattice nodes",
        "3 iterations",
    ]
    assert "rms 5.0e-05" in panel(drawing, "estimated error").get_title()


def test_the_history_shows_what_the_result_is_worth(solved):
    field = smooth(64, 64)
    drawing = figure(solved(field), field - 8e-4)
    axes = panel(drawing, "3 iterations")
    lines = {line.get_label(): line for line in axes.lines}
    assert {"update", "residual"} < set(lines)
    assert set(lines["error estimate 5.0e-05"].get_ydata()) == {5e-5}
    assert lines["difference, rms 8.0e-04"].get_ydata()[0] == pytest.approx(8e-4)
    assert axes.get_yscale() == "log"


def test_coordinates_far_from_the_origin_stand_in_full():
    domain = m.Domain((32, 48), 25.0, origin=(500_000, 4_200_000))
    drawing = m.solve(m.Problem(domain, "poisson", {"f": 1.0}), "exact").plot()
    drawing.canvas.draw()
    panel = drawing.axes[0]
    for axis, first in ((panel.xaxis, "500000"), (panel.yaxis, "4200000")):
        assert first in [label.get_text() for label in axis.get_ticklabels()]
        assert not axis.get_offset_text().get_text()


def test_every_colour_bar_has_a_label(solved):
    field = smooth(64, 64)
    drawing = figure(solved(field), field + 1e-3, "pyamg")
    labels = [bar.get_ylabel() for axes in drawing.axes for bar in axes.child_axes]
    assert labels == ["u", "u", "|u - pyamg|", "estimated error"]


def test_the_heading_says_which_problem_is_drawn(solved):
    heading = figure(solved(smooth(64, 96), problems=3)).get_suptitle()
    assert heading == "laplace, 96 x 64 cells, problem 2 (0 to 2)"
    fields = {"c": 2.5, "f": np.ones((65, 97))}
    solution = solved(smooth(64, 96), given=fields, pde="screened-poisson")
    assert figure(solution).get_suptitle() == "screened-poisson, c = 2.5, 96 x 64 cells"
    window = (0, 0), (33, 17)
    heading = figure(solved(smooth(64, 96), window=window)).get_suptitle()
    assert heading == "laplace, 96 x 64 cells, window of 17 x 33 nodes"


@pytest.mark.parametrize(
    ("cells", "stacked"),
    [
        ((16, 512), "y"),
        pytest.param((512, 16), "x", marks=pytest.mark.nightly),
        pytest.param((64, 96), None, marks=pytest.mark.nightly),
    ],
)
def test_long_domains_are_stacked_and_tall_ones_stand_side_by_side(cells, stacked, solved):
    field = smooth(*cells)
    drawing = figure(solved(field), field + 1e-3)
    pixels(drawing, dpi=50)  # places the panels
    maps = [axes.get_position() for axes in drawing.axes[:4]]
    same, other = {"y": ("x0", "y0"), "x": ("y0", "x0")}.get(stacked, (None, None))
    if stacked:
        assert np.ptp([getattr(box, same) for box in maps]) < 0.01
        assert len({round(getattr(box, other), 2) for box in maps}) == 4
    else:
        assert len({round(box.y0, 2) for box in maps}) == 2
    # None is squeezed: a panel's longer side takes a good part of the figure's width or height.
    lengths = [box.width if stacked == "y" else box.height for box in maps]
    assert min(lengths) > {"y": 0.7, "x": 0.6, None: 0.2}[stacked]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "state",
    [
        *("zero", "partly not a number", "window"),
        *(
            pytest.param(state, marks=pytest.mark.nightly)
            for state in ("equal", "not a number", "no history", "no estimate")
        ),
    ],
)
def test_nothing_at_all_can_be_drawn_too(state, solved):
    field, options = smooth(32, 48), {}
    if state == "zero":
        field = np.zeros_like(field)
    if state == "not a number":
        field = np.full_like(field, np.nan)
    if state == "partly not a number":
        field[5:9, 5:9] = np.nan
    if state == "no history":
        options = {"history": {"update": []}}
    if state == "no estimate":
        options = {"estimate": False}
    if state == "window":
        options = {"window": ((3, 4), (20, 40))}
    solution = solved(field, **options)
    offset = 0.0 if state in ("equal", "zero") else 1e-3
    reference = np.array(solution.field) + offset
    drawing = figure(solution) if state == "no estimate" else figure(solution, reference)
    assert pixels(drawing, dpi=30).std() > 0
