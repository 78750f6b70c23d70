"""``plan`` and ``bench`` as a user calls them."""

import pytest

from mosaicdd.planning.rates import rates_of_name, read_rates, write_rates


@pytest.mark.ranks(1, 2)
def test_a_plan_in_json_is_complete(mosaicdd, strict_json):
    ended = mosaicdd("plan", "--cells", "2048x1024", "--ranks", "6", "--problems", "12", "--json")
    assert ended.code == 0
    report = strict_json(ended.out)  # printed by the first rank alone
    assert report["cells"] == [2048, 1024]
    assert report["dims"][0] * report["dims"][1] == report["ranks"] == 6
    assert set(report) == {
        *("cells", "ranks", "ranks_per_node", "iterations", "problems", "dims"),
        *("subdomains_per_rank", "coarse_solve", "memory_bytes_per_rank", "per_iteration"),
        *("orders", "best_order", "efficiency", "seconds", "suggestion", "rates"),
    }
    memory = report["memory_bytes_per_rank"]
    assert memory.pop("total") == sum(memory.values())
    seconds = report["seconds"]
    assert seconds.pop("total") == pytest.approx(sum(seconds.values()), rel=1e-12)
    assert [order["name"].split()[0] for order in report["orders"]] == ["row-wise", "bricks"]


def test_a_plan_for_people_says_what_is_assumed(mosaicdd):
    arguments = ("plan", "--cells", "2048x2048", "--ranks", "32", "--ranks-per-node", "4")
    measured = mosaicdd(*arguments)
    assert "measured on" in measured.out
    assert "ASSUMED, not measured: between nodes" in measured.out


@pytest.mark.ranks(1, 2)
def test_a_plan_in_a_medium_in_json_is_complete(mosaicdd, strict_json):
    arguments = ("plan", "--cells", "2048x1024", "--ranks", "6", "--problems", "3", "--medium")
    ended = mosaicdd(*arguments, "--json")
    assert ended.code == 0
    report = strict_json(ended.out)
    assert (report["iterations"], report["rates"]["local_solver"]) == (12, "multigrid")
    assert report["levels"][0]["nodes"] == 2047 * 1023
    for parts in ("memory_bytes_per_rank", "iteration", "seconds"):
        assert report[parts].pop("total") == pytest.approx(sum(report[parts].values()), rel=1e-12)
    assert report["seconds_again"] < sum(report["seconds"].values())


@pytest.mark.parametrize(
    ("given", "solves"),
    [
        (("--side", "left=neumann:1"), True),
        (("--side", "left=robin:1,0"), False),
        (("--medium", "--side", "left=neumann:1"), False),
    ],
)
def test_a_plan_says_the_memory_of_transforms_where_they_solve(
    mosaicdd, strict_json, given, solves
):
    arguments = ("plan", "--cells", "1024x1024", "--ranks", "4", *given)
    report = strict_json(mosaicdd(*arguments, "--json").out)
    assert ("bytes_by_transforms" in report) == solves
    if solves:
        assert report["bytes_by_transforms"] < report["memory_bytes_per_rank"]["total"]
    assert ("by transforms" in mosaicdd(*arguments).out) == solves


@pytest.mark.parametrize(
    ("given", "nodes"),
    [
        (("--side", "left=periodic", "--side", "right=periodic"), 2048 * 1025),
        (("--side", "left=neumann:1"), 2049 * 1025),
        (("--domain", "expr:hypot(x-4,y-4)-3"), 2049 * 1025),
        (("--medium", "--spacing", "25x10"), 2047 * 1023),
    ],
)
def test_a_plan_knows_sides_and_domains(mosaicdd, strict_json, given, nodes):
    arguments = ("plan", "--cells", "2048x1024", "--ranks", "4", "--dims", "2x2", *given)
    ended = mosaicdd(*arguments, "--json")
    assert ended.code == 0, ended.err
    report = strict_json(ended.out)
    assert report["rates"]["local_solver"] == "multigrid"
    assert report["levels"][0]["nodes"] == nodes
    shared = len(report["levels"]) - 1
    around = "left=periodic" in given
    assert report["per_iteration"]["messages"] == 2 * shared * (20 if around else 12)


def test_a_plan_of_a_box(mosaicdd, strict_json):
    arguments = ("plan", "--cells", "96x64x128", "--ranks", "6", "--dims", "1x2x3")
    report = strict_json(mosaicdd(*arguments, "--json").out)
    assert (report["cells"], report["dims"]) == ([96, 64, 128], [1, 2, 3])
    assert report["levels"][0]["nodes"] == 95 * 63 * 127
    assert "96x64x128 cells on 6 ranks (1x2x3)" in mosaicdd(*arguments).out


def test_a_plan_of_cubes_counts_what_26_neighbours_are_sent(mosaicdd, strict_json):
    arguments = ("plan", "--cells", "96x64x128", "--ranks", "8", "--dims", "2x2x2", "--cubes")
    report = strict_json(mosaicdd(*arguments, "--json").out)
    assert (report["iterations"], report["rates"]["local_solver"]) == (12, "laplace-cubes")
    assert report["per_iteration"]["messages"] == 8 * 7
    assert report["coarse_solve"] == "replicated"
    assert report["subdomains_per_rank"] == {"least": 5 * 3 * 7, "most": 6 * 4 * 8}
    memory = report["memory_bytes_per_rank"]
    cube = (17**3 - 15**3 + 15**3) + (17**3 - 15**3 + 3 * 15**2)  # filled, and swept
    assert memory["buffers"] == 8 * 192 * cube
    # 11 x 7 x 2 cubes on the rank that has most, where 2x2x2 has 6 x 4 x 8
    assert "suggested: --dims 1x1x8" in mosaicdd(*arguments).out


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--cells", "64x64"), "--cubes is of boxes with values on all sides"),
        (("--side", "left=neumann:1"), "multigrid solves all others"),
        (("--cells", "60x64x64"), "nx must be a multiple of 8"),
        (("--rates", "planar.json"), "are of laplace, on the axes yx, the domain's are zyx"),
        (("--dtype", "float32"), "no rates of cubes are shipped in float32: use --dtype float64"),
    ],
)  # fmt: skip
def test_a_plan_of_cubes_refuses_in_a_line_what_has_none(
    mosaicdd, tmp_path, monkeypatch, given, says
):
    monkeypatch.chdir(tmp_path)
    write_rates("planar.json", rates_of_name("default", "float64"))
    ended = mosaicdd("plan", "--cells", "64x64x64", "--ranks", "4", "--cubes", *given)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert says in ended.err


def test_a_plan_refuses_what_a_solve_would(mosaicdd):
    arguments = ("plan", "--cells", "2048x1024", "--ranks", "4")
    one = mosaicdd(*arguments, "--side", "left=periodic")
    assert one.code == 2
    assert "--side: the side left is periodic, the side right is not" in one.err
    beyond = mosaicdd(*arguments, "--side", "left[0:99]=neumann:1")
    assert "left[0:99] reaches beyond the side" in beyond.err
    empty = mosaicdd(*arguments, "--domain", "expr:hypot(x,y)+1")
    assert "the domain is empty: none of the 2100225 nodes lies inside" in empty.err


def test_a_plan_in_a_medium_for_people_says_what_it_does_not_know(mosaicdd):
    arguments = ("plan", "--cells", "1024x1024", "--ranks", "2", "--medium")
    planned = mosaicdd(*arguments, "--problems", "4").out
    assert "in the same medium" in planned
    assert "4 problems one by one" in planned
    refused = mosaicdd(*arguments, "--dtype", "float32")
    assert refused.code == 2
    assert "are not known for media" in refused.err
    assert refused.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cells", "2050x2048"), "--cells 2050x2048: nx must be a multiple of 16"),
        (("--ranks", "100"), "100 ranks do not fit: the lattice has 7x7 subdomains"),
        (("--dims", "3x2"), "--dims: 3x2 are 6 ranks, --ranks says 4"),
        (("--dims", "1x4", "--cells", "128x48"), "dims 1x4: 4 ranks along y"),
        (("--rates", "none.json"), "--rates: none.json: neither a file nor 'default';"),
        (("--rates", "bad.json"), "--rates: bad.json: not a rates file"),
        (("--rates", "single.json"), "single.json was measured in float32: use --dtype float32"),
    ],
)
def test_bad_input_gives_one_line(mosaicdd, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text("{}")
    write_rates("single.json", rates_of_name("default", "float32"))
    ended = mosaicdd("plan", "--cells", "128x128", "--ranks", "4", *arguments)
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("Error: ")
    assert message in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.ranks(1, 2)
def test_bench_measures_what_plan_reads(mosaicdd, comm, common_path):
    path = common_path / "rates.json"
    assert mosaicdd("bench", "-o", path, "--dtype", "float32", "--json").code == 0
    comm.Barrier()
    rates = read_rates(path)
    assert (rates.ranks, rates.dtype) == (comm.size, "float32")
    assert (rates.within_node is None) == (comm.size == 1)
    assert rates.between_nodes is None
    ended = mosaicdd(
        *("plan", "--cells", "1024x1024", "--ranks", "2", "--rates", path, "--dtype", "float32")
    )
    assert ended.code == 0


@pytest.mark.ranks(1, 2)
def test_bench_refuses_what_it_cannot_write_or_load(mosaicdd, common_path):
    missing = mosaicdd("bench", "-o", common_path / "no" / "rates.json")
    assert missing.code == 2
    assert "create it first" in missing.err
    unknown = mosaicdd("bench", "-o", common_path / "rates.json", "--local-solver", "nothing")
    assert unknown.code == 2
    assert "neither a model file nor a shipped model" in unknown.err
    assert not (common_path / "rates.json").exists()
