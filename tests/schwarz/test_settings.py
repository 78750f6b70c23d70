"""Settings are checked once, at construction."""

import dataclasses

import pytest

from mosaicdd.schwarz.settings import SolveSettings


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
    "settings",
    [
        {"levels": 2, "sweep": "phases"},
        {"levels": 1, "sweep": "phases", "accelerate": "gmres"},
        {"accelerate": "gmres", "until_mae": 0.05},
        {"levels": 1, "accelerate": "chebyshev"},
    ],
)
def test_contradicting_settings_are_refused(settings):
    with pytest.raises(TypeError, match=r"need|those of two levels"):
        SolveSettings(**settings)


def test_settings_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SolveSettings().levels = 1
