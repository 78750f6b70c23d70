"""What ``solve`` writes: shards, the interface alone, a window; on any number of ranks."""

import h5py
import numpy as np
import pytest

from mosaicdd import read

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
PROBLEM = "--cells 192x128 --boundary gp:seed=3,noise=0.1 --rtol 1e-10"
# Ranks add up in another order: a few units in the last place of values of order 1, per iteration.
ROUNDING = 1e-12


@pytest.fixture
def solve(report_of, common_path):
    """Return a function that solves to a named file: its path and the report."""

    def run(name, words=""):
        report = report_of(f"solve -o {name}.h5 {PROBLEM} {words}")
        return common_path / f"{name}.h5", report

    return run


def shards(path):
    return set(path.with_name(f"{path.name}.shards").iterdir())


@RANKS
def test_shards_equal_the_single_file_and_a_second_run_leaves_its_own_only(solve, comm):
    single, _ = solve("single")
    sharded, _ = solve("sharded", "--shards")
    one, other = read(single), read(sharded)
    np.testing.assert_array_equal(one.field, other.field)
    np.testing.assert_array_equal(one.boundary.named["left"], other.boundary.named["left"])
    np.testing.assert_array_equal(one.history["update"], other.history["update"])
    first = shards(sharded)
    comm.Barrier()
    solve("sharded", "--shards")
    second = shards(sharded)
    assert len(first) == len(second) == comm.size
    assert not first & second
    comm.Barrier()
    solve("sharded")
    assert not sharded.with_name("sharded.h5.shards").exists()


@pytest.mark.usefixtures("quick_layout")
def test_shards_are_compared_drawn_and_boundary_data_as_a_single_file_is(solve, error_of, succeed):
    (single, _), (sharded, _) = solve("single"), solve("sharded", "--shards")
    assert error_of(single, sharded) == error_of(sharded, single) == 0
    succeed(f"plot {sharded}")
    again, _ = solve("again", f"--boundary {sharded}")
    np.testing.assert_array_equal(read(again).field, read(single).field)


@pytest.mark.ranks(1, 2, 3)
def test_a_rank_that_cannot_write_its_shard_ends_all_and_keeps_the_file_before(
    solve, mosaicdd, comm, monkeypatch
):
    path, _ = solve("out", "--shards")
    before, names = path.read_bytes(), shards(path)
    comm.Barrier()
    if comm.rank == comm.size - 1:

        def full(*arguments):
            raise OSError("No space left on device")

        monkeypatch.setattr("mosaicdd.storage.shards.write_shard", full)
    ended = mosaicdd(f"solve -o {path} {PROBLEM} --boundary gp:seed=4 --shards")
    assert ended.code != 0
    assert "No space left" in ended.err
    assert path.read_bytes() == before
    assert shards(path) == names
    comm.Barrier()


@RANKS
def test_the_interface_alone_has_the_lines_of_the_field(solve, comm):
    path, report = solve("lines", "--keep interface --rtol 1e-13")
    whole, _ = solve("whole", "--rtol 1e-13")
    field = read(whole).field
    assert report["residual"] is None
    assert report["discrete_residual"] is None
    assert report["error_estimate"] > 0
    with h5py.File(path) as file:
        assert "solution" not in file
        assert "VTKHDF" not in file
        assert file.attrs["status"] == report["status"]
        assert len(file["boundary/top"]) == 193
        rows, columns = file["lines/0"][()], file["lines/1"][()]
    # Between the tiles, on the even lines, the field is the interface.
    np.testing.assert_array_equal(rows[::2], field[::32])
    np.testing.assert_array_equal(columns[::2], field[:, ::32].T)
    # At their centres it is T v, v is what converged: their difference is the last residual.
    np.testing.assert_allclose(rows[1::2, 16::32], field[16::32, 16::32], rtol=0, atol=1e-11)
    comm.Barrier()


def test_without_a_field_commands_say_what_is_missing(solve, refuse):
    path, _ = solve("lines", "--keep interface")
    for command in ("compare", "plot"):
        refuse(f"{command} {path}", "holds the interface only: /solution is missing")


@RANKS
@pytest.mark.parametrize("extra", ["", "--shards", "--certify 1e-10"])
@pytest.mark.parametrize(
    "window",
    [
        "0:3,0:2",
        "1.1:1.9,0.4:0.45",
        "2.99:3,1.99:2",
        pytest.param("2.5:3,1.6:2", marks=pytest.mark.nightly),
        pytest.param("0:0.01,0:2", marks=pytest.mark.nightly),
    ],
)
def test_a_window_is_cut_out_of_the_field(window, extra, solve, comm):
    path, report = solve("window", f"--window {window} {extra}")
    whole, _ = solve("whole", extra.replace("--shards", ""))
    h = 0.5 / 32
    (x0, x1), (y0, y1) = ([float(end) / h for end in axis.split(":")] for axis in window.split(","))
    rows = slice(int(np.floor(y0)), int(np.ceil(y1)) + 1)
    columns = slice(int(np.floor(x0)), int(np.ceil(x1)) + 1)
    field = read(whole).field[rows, columns]
    np.testing.assert_allclose(read(path).field, field, rtol=0, atol=ROUNDING)
    ends = [[part.start * h, (part.stop - 1) * h] for part in (columns, rows)]
    assert report["window"] == ends
    assert report["discrete_residual"] is None
    comm.Barrier()


@pytest.mark.usefixtures("quick_layout")
def test_a_window_compares_with_all_references_and_can_be_drawn(solve, report_of, refuse, succeed):
    part, _ = solve("part", "--window 1.1:1.9,0.4:1.3")
    whole, _ = solve("whole")
    for reference in ("dst", "pyamg", whole, part):
        assert report_of(f"compare {part} --reference {reference}")["mae"] < 1e-4
    succeed(f"plot {part}")
    refuse(f"compare {whole} --reference {part}", "holds another window")
