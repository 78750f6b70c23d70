"""What people see of long work: on a narrow terminal, and where there is none."""

import io
import re
import time
from contextlib import contextmanager

import numpy as np
import pytest
from rich.console import Console

import mosaicdd as m
from mosaicdd.report.progress import PlainLines, bar

NOTE = "step 21000, data 1.1e-07, PDE 2.2e-05, validation 3.3e-09, windows 4.4e-11, 12345 samples/s"


def test_80_columns_have_bar_per_cent_time_left_and_the_remark():
    terminal = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    with bar("training sdnet-concat", terminal) as show:
        show(0.25, NOTE)
        while "windows" not in terminal.file.getvalue():  # it is drawn ten times a second
            time.sleep(0.01)
    lines = re.split(r"[\r\n]|\x1b\[[0-9;?]*[a-zA-Z]", terminal.file.getvalue())
    second = next(number for number, line in enumerate(lines) if "windows" in line)
    first = max((line for line in lines[:second] if line), key=lines.index)
    assert first.startswith("training sdnet-concat ━━━")
    assert "25%" in first
    assert "-:--:--" in first  # no rate yet: rich's own mark of the time that is left
    assert lines[second].startswith("  step 21000, data 1.1e-07, PDE 2.2e-05, validation 3.3e-09")
    assert max(map(len, lines)) <= 80


def test_plain_lines_say_how_much_is_done_and_the_time_that_is_left(capsys):
    seconds = iter([0.0, 1.0, 5.0, 5.5, 20.0, 41.0])
    show = PlainLines("solving samples", lambda: next(seconds))
    for fraction in (0.0, 0.1, 0.15, 0.5, 1.0):
        show(fraction)
    assert capsys.readouterr().err.splitlines() == [
        "solving samples: 10%, 36 s left",  # a tenth in 4 seconds
        "solving samples: 50%, 19 s left",
        "solving samples: 100%",
    ]


def test_of_a_hundredth_of_the_work_no_time_is_told(capsys):
    seconds = iter([0.0, 0.0, 27.0])
    show = PlainLines("solving", lambda: next(seconds))
    show(0.0)
    show(0.01)
    assert capsys.readouterr().err == "solving: 1%\n"


def test_a_resumed_work_counts_from_where_it_began(capsys):
    seconds = iter([0.0, 0.0, 10.0])
    show = PlainLines("training", lambda: next(seconds))
    show(0.8)
    show(0.9, "step 9")
    assert capsys.readouterr().err == "training: 90%, 10 s left, step 9\n"


def test_a_solve_and_a_march_show_it_where_they_are_asked(monkeypatch):
    asked = []

    @contextmanager
    def shown(title, *, quiet):
        asked.append((title, quiet))
        yield lambda fraction, note="": asked.append(fraction)

    monkeypatch.setattr("mosaicdd.report.progress.shown", shown)
    a = np.ones((65, 65))
    a[20:40, 20:40] = 9
    medium = m.Problem((64, 64), "diffusion", {"a": a, "f": 1.0})
    assert m.solve(medium, progress=True).status == "converged_rtol"
    assert asked[0] == ("solving diffusion", False)
    assert 0 < max(asked[1:]) <= 1
    asked.clear()
    m.march(m.Problem((32, 32), "heat"), 1.0, dt=0.1, steps=2, progress=True)
    assert asked == [("marching heat", False), 0.5, 1.0]
    asked.clear()
    m.solve(medium, progress=False)
    assert not asked


def test_a_progress_that_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match=r"^progress must be a function of .*, or True, got str$"):
        m.solve(m.Problem((64, 64), "laplace"), progress="yes")
