"""Pretended processors: their turns, and what torch and numba take of them."""

import os
import subprocess
import sys

import processors
import pytest

_TAKEN = (
    "import torch, numba; print(torch.backends.cpu.get_cpu_capability(), numba.config.CPU_NAME)"
)


def test_each_has_its_turn():
    names = {*processors.can_be_pretended()}
    assert {processors.whose_turn(day) for day in range(12)} == names - {"two-threads"} >= {"this"}


def test_its_environment_is_what_libraries_take():
    if "haswell" not in processors.can_be_pretended():
        pytest.skip("no AVX2")
    environment = os.environ | processors.PROCESSORS["haswell"].environment
    taken = subprocess.run(
        [sys.executable, "-c", _TAKEN], env=environment, capture_output=True, text=True, check=True
    )
    assert taken.stdout.split() == ["AVX2", "haswell"]


def test_an_unknown_one_is_refused_in_one_line(capsys):
    with pytest.raises(SystemExit) as ended:
        processors.main("pentium")
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("no processor 'pentium' can be pretended here: take ")
