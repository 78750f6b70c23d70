"""Generated problems: solved to the discrete equation, each independent of the others."""

import numpy as np
import pytest
from drawn_data import generate_dataset, generation

import mosaicdd as m
from mosaicdd import GenerationSettings
from mosaicdd.storage.dataset_file import Dataset

SUBDOMAINS = {"squares": (8, 0.125, 2), "cubes": (4, 0.25, 3)}


def generate(samples=20, kind="squares", **changes):
    return generate_dataset(generation(*SUBDOMAINS[kind], samples=samples, windows=240, **changes))


@pytest.fixture(scope="module", params=SUBDOMAINS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def drawn(kind):
    return generate(kind=kind)


@pytest.fixture(scope="module")
def dataset():
    return generate()


def test_samples_do_not_depend_on_how_many_are_drawn(kind, drawn):
    more = generate(300, kind)  # more than one batch of solutions
    for name in ("boundary", "solution", "hyperparameters"):
        np.testing.assert_array_equal(getattr(more, name)[:20], getattr(drawn, name))
    other = generate(kind=kind, seed=1)
    assert (np.abs(other.boundary - drawn.boundary).max(axis=1) > 1e-3).all()


def test_a_file_has_what_was_drawn(drawn, tmp_path):
    drawn.write(tmp_path / "data.h5")
    read = Dataset.read(tmp_path / "data.h5")
    assert (read.subdomain, read.content_hash) == (drawn.subdomain, drawn.content_hash)


def test_multigrid_and_factorisation_agree(dataset):
    direct = generate(method="direct")
    # Relative residual 1e-10, |b| about 5, |A^-1| at most 8**2 / (2 pi**2) = 3.3.
    for name in ("solution", "window_solution"):
        np.testing.assert_allclose(getattr(direct, name), getattr(dataset, name), atol=2e-9)


@pytest.mark.parametrize("of", ["", "window_"])
def test_solutions_solve_the_difference_equation_with_their_boundary(drawn, of):
    boundary, solution = (getattr(drawn, of + name) for name in ("boundary", "solution"))
    left = 0.0
    for axis in range(1, solution.ndim):
        inner = tuple(slice(None) if i in (0, axis) else slice(1, -1) for i in range(solution.ndim))
        left = left + np.diff(solution[inner], 2, axis)
    assert np.abs(left).max() < 1e-8  # 1e-10 |b|, with |b| about 20 for the larger problems
    np.testing.assert_array_equal(solution[:, *drawn.subdomain.perimeter.T], boundary)
    assert boundary.std() > 0.3


def test_windows_come_from_more_than_one_larger_problem(dataset):
    assert dataset.window_boundary.shape == (240, 32)  # 225 from the first, 15 from the second
    assert np.abs(dataset.window_boundary[225:]).max() > 0


def test_hyperparameters_lie_in_their_range(dataset):
    assert dataset.hyperparameter_names == ("length_scale",)
    assert 0.03 <= dataset.hyperparameters.min() < 0.06
    assert 0.5 < dataset.hyperparameters.max() <= 1.0


def test_progress_counts_to_the_end(tmp_path):
    fractions = []
    settings = generation(samples=300, windows=1, method="direct")
    m.generate(tmp_path / "data.h5", settings, progress=fractions.append)
    assert fractions == [1 / 3, 2 / 3, 1.0]  # a part of windows, two of samples


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": 3}, "hold out 0"),
        ({"validation": 1.0}, r"in \(0, 1\)"),
        ({"length_scale": (1.0, 0.1)}, "least < greatest"),
        ({"noise": -1.0}, "noise"),
        ({"windows": 0}, "windows"),
        ({"method": "guess"}, "known: amg, direct"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        GenerationSettings(**{"samples": 20, **changes})


def test_amplitudes_are_drawn_beside_length_scales_where_they_vary(dataset):
    assert dataset.hyperparameter_names == ("length_scale",)
    varied = generate(samples=64, amplitude=(0.5, 2.0), noise=0.0)
    assert varied.hyperparameter_names == ("length_scale", "amplitude")
    amplitude = varied.hyperparameters[:, 1]
    assert (amplitude.min() >= 0.5, amplitude.max() <= 2.0) == (True, True)
    # A Sobol sequence of 64 points: as many below the middle of the logarithms, which is 1, as above.
    assert (amplitude < 1).sum() == 32
    one, two = (generate(samples=20, amplitude=(a, a), noise=0.0) for a in (1.0, 2.0))
    np.testing.assert_allclose(two.boundary, 2.0 * one.boundary)
