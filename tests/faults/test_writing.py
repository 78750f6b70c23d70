"""Writing that cannot be done: one line, a code that is not 0, and the file before is whole."""

import os
import resource
import subprocess
import sys
from contextlib import contextmanager

import pytest

import mosaicdd as m
from mosaicdd.schwarz import engine
from mosaicdd.schwarz.engine import Engine

SMALL = ("--cells", "64x64", "--local-solver", "exact")
LARGE = ("--cells", "512x512", "--local-solver", "exact")  # 2 MB
ROOM = 2**20  # bytes


@pytest.fixture
def disk(tmp_path):
    """Return a folder that is a file system of its own, and a function that mounts it again."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(*options):
        return subprocess.run(
            ["mount", "-t", "tmpfs", *options, "tmpfs", folder], capture_output=True, check=False
        ).returncode

    if sys.platform != "linux" or os.geteuid() != 0 or mount("-o", f"size={ROOM}"):
        pytest.skip("mounting a file system is not permitted here")
    yield folder, mount
    subprocess.run(["umount", folder], check=True)


@contextmanager
def file_size_limit():
    """Let no file grow above `ROOM`; Python ignores the signal, so that writing fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fails_in_one_line(ended, *words):
    assert ended.code != 0
    assert ended.out == ""
    assert ended.err.startswith("Error: ")
    assert len(ended.err.splitlines()) == 1, ended.err
    assert all(word in ended.err for word in words), ended.err


@pytest.mark.limit(60)
@pytest.mark.parametrize("checkpoints", [(), ("--checkpoint-minutes", "0")], ids=str)
def test_on_a_full_disk_the_solution_before_stays_whole(checkpoints, mosaicdd, disk):
    folder, _ = disk
    output = folder / "out.h5"
    assert mosaicdd("solve", "-o", output, *SMALL).code == 0
    before = output.read_bytes()
    ended = mosaicdd("solve", "-o", output, *LARGE, *checkpoints, "--json")
    fails_in_one_line(ended, str(output), "No space left")
    assert output.read_bytes() == before
    left = {"out.h5", "out.h5.checkpoint"} if checkpoints else {"out.h5"}
    assert set(os.listdir(folder)) <= left


MARCH = ("--pde", "heat", "--boundary", "expr:x", "--steps", "3", "--dt", "0.1")


@pytest.mark.limit(60)
@pytest.mark.parametrize("kept", [False, True], ids=["nothing", "checkpoint"])
def test_on_a_full_disk_a_march_names_the_file_and_what_is_left(kept, mosaicdd, disk):
    folder, mount = disk
    output, checkpoint = folder / "out.h5", folder / "out.h5.checkpoint"
    if kept:
        mount("-o", f"remount,size={3 * ROOM}")  # 1.5 MB of frames, 0.5 to 1 MB of levels
    cells = ("--cells", "256x256", "--checkpoint-minutes", "0" if kept else "10")
    ended = mosaicdd("solve", "-o", output, *cells, *MARCH, "--json")
    fails_in_one_line(ended, str(output), "No space left")
    assert ended.code == 1
    if kept:
        assert f"the last checkpoint is {checkpoint}" in ended.err
    assert set(os.listdir(folder)) == ({"out.h5.frames", "out.h5.checkpoint"} if kept else set())


@pytest.mark.limit(60)
def test_on_a_full_disk_datasets_and_trainings_name_the_file(mosaicdd, disk, tmp_path):
    folder, _ = disk
    data = (
        "--samples",
        "300",
        "--windows",
        "1",
        "--cells",
        "16",
        "--size",
        "0.25",
        "--method",
        "direct",
    )
    ended = mosaicdd("generate", folder / "data.h5", *data, "--json")
    fails_in_one_line(ended, str(folder / "data.h5"), "No space left")
    assert ended.code == 1
    assert mosaicdd("generate", tmp_path / "data.h5", *data, "--json").code == 0
    (folder / "filler").write_bytes(bytes(ROOM - 3 * 4096 - folder_size(folder)))
    how = (
        "--epochs",
        "1",
        "--batch-size",
        "90",
        "--validations",
        "9",
        "--optimizer",
        "adamw",
        "--json",
    )
    ended = mosaicdd("train", tmp_path / "data.h5", "-o", folder / "model.h5", *how)
    fails_in_one_line(ended, str(folder / "model.h5"), "No space left")
    assert ended.code == 1
    assert "model.h5" not in os.listdir(folder)


def folder_size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_second_of_two_marches_with_one_output_is_refused(mosaicdd, tmp_path):
    output = tmp_path / "out.h5"
    hot = m.Problem((32, 32), "heat", {"f": "1"})
    seen = []

    def second(done, note):
        ended = mosaicdd("solve", "-o", output, "--cells", "32x32", *MARCH)
        fails_in_one_line(ended, "--output", "another run writes the same output")
        seen.append(ended.code)

    assert m.march(hot, "x", dt=0.1, steps=2, output=output, progress=second).converged
    assert seen
    assert set(seen) == {2}
    assert os.listdir(tmp_path) == ["out.h5"]
    assert len(m.read(output).times) == 3


@pytest.mark.limit(60)
def test_above_a_limit_of_file_sizes_the_solution_before_stays_whole(mosaicdd, tmp_path):
    output = tmp_path / "out.h5"
    assert mosaicdd("solve", "-o", output, *SMALL).code == 0
    before = output.read_bytes()
    with file_size_limit():
        ended = mosaicdd("solve", "-o", output, *LARGE, "--json")
    fails_in_one_line(ended, str(output), "File too large")
    assert output.read_bytes() == before
    assert os.listdir(tmp_path) == ["out.h5"]


@pytest.mark.limit(60)
def test_a_folder_that_is_read_only_is_refused_before_any_work(mosaicdd, disk, monkeypatch):
    folder, mount = disk
    mount("-o", "remount,ro")
    monkeypatch.setattr(Engine, "solve_many", lambda *_, **__: pytest.fail("work was begun"))
    ended = mosaicdd("solve", "-o", folder / "out.h5", *SMALL, "--json")
    fails_in_one_line(ended, "--output", "read-only")
    assert ended.code == 2


@pytest.mark.limit(60)
def test_a_folder_that_becomes_read_only_keeps_the_solution_before(mosaicdd, disk, monkeypatch):
    folder, mount = disk
    output, estimate = folder / "out.h5", engine.estimate_errors
    assert mosaicdd("solve", "-o", output, *SMALL).code == 0
    before = output.read_bytes()

    def estimate_and_close(*arguments, **options):  # the last step before the field is written
        mount("-o", "remount,ro")
        return estimate(*arguments, **options)

    monkeypatch.setattr(engine, "estimate_errors", estimate_and_close)
    fails_in_one_line(mosaicdd("solve", "-o", output, *SMALL, "--json"), "read-only")
    assert output.read_bytes() == before


@pytest.mark.limit(100)
def test_two_jobs_with_one_output_leave_one_complete_file(mosaicdd, tmp_path):
    output = tmp_path / "out.h5"
    command = [sys.executable, "-m", "mosaicdd.cli.main", "solve", "-o", output, *LARGE]
    assert mosaicdd("solve", "-o", output, *SMALL).code == 0
    jobs = [
        subprocess.Popen([*command, "--boundary", f"gp:seed={seed}"], stdout=subprocess.DEVNULL)
        for seed in (1, 2)
    ]
    while any(job.poll() is None for job in jobs):
        m.read(output)  # raises if it is not complete
    assert [job.returncode for job in jobs] == [0, 0]
    assert os.listdir(tmp_path) == ["out.h5"]
    seed = m.read(output).attributes["command_line"][-1]
    alone = tmp_path / "alone.h5"
    assert mosaicdd("solve", "-o", alone, *LARGE, "--boundary", f"gp:seed={seed}").code == 0
    assert (m.read(output).field == m.read(alone).field).all()
