"""Marches that go on: from a checkpoint with another number of steps, and from a field of one that has ended."""

import h5py
import interrupted_marches
import numpy as np
import pytest

import mosaicdd as m

CELLS = (12, 16)
HEAT = m.Problem(CELLS, "heat", {"f": "expr:x + t"})
SHELL = ("solve", "--pde", "heat", "--cells", "16x12", "--field", "f=expr:x + t", "--boundary", "0")
SHELL += ("--dt", "0.01")
TIGHT = m.SolveSettings(rtol=1e-12)


def interrupted(path, after, steps=12, every=4, problem=HEAT, **how):
    how |= {"steps": steps, "dt": 0.01, "every": every, "solver_share": 0, "settings": TIGHT}
    interrupted_marches.interrupted(problem, "x*y", after, path, **how)


def resumed(path, steps, every=4, problem=HEAT, **how):
    output = m.Output(path, resume=True)
    how = {"every": every, "solver_share": 0, "settings": TIGHT} | how
    return m.march(problem, "x*y", dt=0.01, steps=steps, output=output, **how)


def test_fewer_steps_than_are_done_are_refused(tmp_path):
    path = tmp_path / "heat.h5"
    interrupted(path, 0.5)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"resume: .* is 6 steps on, and steps=4 are asked for: "):
        resumed(path, 4)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert resumed(path, 12).report["steps"] == 12


def test_the_shell_refuses_it_in_one_line(tmp_path, mosaicdd):
    path = tmp_path / "heat.h5"
    interrupted(path, 0.5)
    how = ("--initial", "expr:x*y", "--every", "4", "--solver-share", "0", "--rtol", "1e-12")
    ended = mosaicdd(*SHELL, "-o", path, *how, "--resume", "--steps", "4")
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert "is 6 steps on, and --steps 4 are asked for" in ended.err


def test_as_many_steps_as_are_done_end_with_the_last_field(tmp_path):
    path = tmp_path / "heat.h5"
    interrupted(path, 0.5)
    series = resumed(path, 6)
    whole = m.march(HEAT, "x*y", dt=0.01, steps=6, every=4, settings=TIGHT, solver_share=0)
    np.testing.assert_array_equal(series.times, whole.times)
    np.testing.assert_array_equal(series.field, whole.field)


@pytest.mark.parametrize("steps", [23, 22, 21, 13])
def test_chosen_steps_of_a_checkpoint_meet_another_end(steps, tmp_path):
    path, how = tmp_path / "heat.h5", {"tolerance": 0.1, "every": 32}
    settled = m.Problem(CELLS, "heat", {"f": "1 + 0*t"})
    interrupted(path, 12 / 32, steps=32, problem=settled, **how)
    with h5py.File(tmp_path / "heat.h5") as file:
        lengths = file["history/step"][()]
    assert lengths[-1] > 0.01  # longer than what divides the new numbers of steps
    series = resumed(path, steps, problem=settled, **how)
    assert series.times[-1] == pytest.approx(0.01 * steps, rel=1e-12)
    assert series.steps["step"].sum() == pytest.approx(0.01 * steps, rel=1e-12)


@pytest.fixture
def series(tmp_path):
    """Return the file of a march that has ended, with five times."""
    path = tmp_path / "old.h5"
    m.march(HEAT, "x*y", dt=0.01, steps=8, every=2, output=path)
    return path


def test_the_field_at_a_time_is_taken_from_the_shell(series, mosaicdd, tmp_path):
    for spec, frame in ((series, 4), (f"{series}:2", 2)):
        new = tmp_path / "new.h5"
        ended = mosaicdd(*SHELL, "-o", new, "--initial", spec, "--steps", "2")
        assert ended.code == 0, ended.err
        np.testing.assert_array_equal(m.read(new, frame=0).field, m.read(series, frame=frame).field)
        same = m.march(HEAT, m.read(series, frame=frame).field, dt=0.01, steps=2)
        np.testing.assert_array_equal(m.read(new).field, same.field)


def test_several_problems_go_on_together(tmp_path, mosaicdd):
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    initial = np.random.default_rng(0).uniform(size=(2, 13, 17))
    m.march(HEAT, initial, dt=0.01, steps=2, output=old)
    assert mosaicdd(*SHELL, "-o", new, "--initial", old, "--steps", "1").code == 0
    for number in range(2):
        first = m.read(new, number, frame=0).field
        np.testing.assert_array_equal(first, m.read(old, number).field)


REFUSED = {
    "{old}:/solution": "initial has 5 times, of which one is needed",
    "{old}:9": "holds times 0 to 4, not number 9",
    "{steady}:1": "is no series, it has no time number 1",
    "{window}": "holds a window of (13, 9) of (13, 17) nodes",
    "{gone}": "the solution file is missing",
}


@pytest.mark.parametrize("spec", REFUSED)
def test_what_is_no_field_at_one_time_is_refused(spec, series, mosaicdd, tmp_path):
    names = {name: tmp_path / f"{name}.h5" for name in ("steady", "window", "gone")}
    m.solve(m.Problem(CELLS, "poisson", {"f": 1.0})).save(names["steady"])
    window = {"x": (0, 8 / 64)}
    m.march(HEAT, 0.0, dt=0.01, steps=1, window=window, output=names["window"])
    new = tmp_path / "new.h5"
    given = spec.format(old=series, **names)
    ended = mosaicdd(*SHELL, "-o", new, "--initial", given, "--steps", "1")
    assert (ended.code, len(ended.err.splitlines()), new.exists()) == (2, 1, False)
    assert REFUSED[spec] in ended.err


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (("--spacing", "0.1"), "coordinates 0.015625 apart along y, the grid has a spacing of 0.1"),
        (("--origin", "3,4"), "begins at (0, 0) by its coordinates, the domain at (3, 4)"),
    ],
)
def test_a_field_of_another_place_is_refused(how, message, series, mosaicdd, tmp_path):
    new = tmp_path / "new.h5"
    ended = mosaicdd(*SHELL, "-o", new, "--initial", series, "--steps", "1", *how)
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert message in ended.err


def test_all_times_of_a_series_are_no_initial_values(series):
    labelled = m.read(series).to_xarray()
    with pytest.raises(ValueError, match="initial has 5 times"):
        m.march(HEAT, labelled, dt=0.01, steps=1)
    with (
        h5py.File(series) as file,
        pytest.raises(ValueError, match="initial has 5 times"),
    ):
        m.march(HEAT, file["solution"], dt=0.01, steps=1)
    one = m.march(HEAT, labelled.isel(time=2), dt=0.01, steps=1)
    np.testing.assert_array_equal(one[0], m.read(series, frame=2).field)


def test_a_march_that_has_ended_says_how_to_go_on(series):
    with pytest.raises(FileNotFoundError, match=r"resume: .*is missing; .* --initial OLD.h5"):
        resumed(series, 20, every=2)
