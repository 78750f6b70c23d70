"""Settings are checked once, at construction."""

import dataclasses

import numpy as np
import pytest
import torch

from mosaicdd import SolveSettings
from mosaicdd.settings import argument, concerning
from mosaicdd.time.settings import TimeSettings


def test_an_error_names_the_argument_that_it_says_it_is_about_whatever_its_words_are():
    with pytest.raises(ValueError, match=r"^boundary: the side of the ship$"), argument("boundary"):
        raise ValueError("the side of the ship")
    with (
        pytest.raises(TypeError, match=r"^sides: not of this kind$"),
        argument("boundary"),
        concerning("sides"),
    ):
        raise TypeError("not of this kind")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("levels", 3),
        ("levels", "2"),
        ("sweep", "gauss-seidel"),
        ("sync", "never"),
        ("accelerate", "cg"),
        ("dtype", "float16"),
        ("batch_subdomains", 0),
        ("batch_subdomains", -1),
    ],
)
def test_an_unknown_value_is_refused_with_its_name(setting, value):
    with pytest.raises(ValueError, match=f"unknown {setting} |{setting} must be at least 1, got"):
        SolveSettings(**{setting: value})


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("rtol", "1e-3", "rtol must be a number, got '1e-3'"),
        ("certify", True, "certify must be a number, got True"),
        ("max_iterations", 2.5, "max_iterations must be a whole number, got 2.5"),
        ("halo_depth", "2", "halo_depth must be a whole number, got '2'"),
        ("dims", 4, r"dims must be ranks \(rows, columns\), in space .*, each 1 or more, got 4"),
        ("dims", (0, 2), r"each 1 or more, got \(0, 2\)"),
    ],
)
def test_what_is_no_number_is_refused_with_its_name(setting, value, message):
    with pytest.raises((TypeError, ValueError), match=message):
        SolveSettings(**{setting: value})


def test_steps_in_time_are_whole():
    with pytest.raises(TypeError, match=r"steps must be a whole number, got 2.5"):
        TimeSettings(steps=2.5, dt=0.1)


@pytest.mark.parametrize(
    "settings",
    [
        {"levels": 2, "sweep": "phases"},
        {"levels": 1, "sweep": "phases", "accelerate": "gmres"},
        {"accelerate": "gmres", "until_mae": 0.05},
        {"levels": 1, "accelerate": "chebyshev"},
        {"levels": 1, "accelerate": "quasi-newton"},
    ],
)
def test_contradicting_settings_are_refused(settings):
    with pytest.raises(TypeError, match=r"need|those of two levels"):
        SolveSettings(**settings)


def test_a_network_in_float32_limits_the_tolerance():
    settings = SolveSettings(network_dtype="float32")
    assert (settings.rtol, SolveSettings().rtol) == (1e-6, 1e-7)
    with pytest.raises(ValueError, match=r"rtol 1e-08 is below .* \(1e-06\); use network_dtype"):
        SolveSettings(network_dtype="float32", rtol=1e-8)


def test_settings_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SolveSettings().levels = 1


def test_devices_and_types_of_torch_and_numpy_are_words():
    given = SolveSettings(device=torch.device("cpu"), dtype=np.float32, halo_dtype=torch.float32)
    assert given == SolveSettings(device="cpu", dtype="float32", halo_dtype="float32")
    with pytest.raises(ValueError, match=r"unknown dtype 'int64'; known: float64, float32"):
        SolveSettings(dtype=torch.int64)
