"""``plan`` as a user calls it."""

import pytest


@pytest.mark.ranks(1, 2)
def test_a_plan_in_json_is_complete(mosaicdd, strict_json):
    ended = mosaicdd("plan", "--cells", "2048x1024", "--ranks", "6", "--json")
    assert ended.code == 0
    report = strict_json(ended.out)  # printed by the first rank alone
    assert report["cells"] == [2048, 1024]
    assert report["dims"][0] * report["dims"][1] == report["ranks"] == 6
    assert set(report) == {
        *("cells", "ranks", "problems", "local_solver", "dims", "subdomains_per_rank"),
        *("coarse_solve", "memory_bytes_per_rank", "per_iteration"),
    }
    memory = report["memory_bytes_per_rank"]
    assert memory.pop("total") == sum(memory.values())


@pytest.mark.ranks(1, 2)
def test_a_plan_in_a_medium_in_json_is_complete(mosaicdd, strict_json):
    arguments = ("plan", "--cells", "2048x1024", "--ranks", "6", "--medium")
    ended = mosaicdd(*arguments, "--json")
    assert ended.code == 0
    report = strict_json(ended.out)
    assert report["local_solver"] == "multigrid"
    assert report["levels"][0]["nodes"] == 2047 * 1023
    memory = report["memory_bytes_per_rank"]
    assert memory.pop("total") == sum(memory.values())


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
    assert report["local_solver"] == "multigrid"
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
    assert report["local_solver"] == "cubes"
    assert report["per_iteration"]["messages"] == 8 * 7
    assert report["coarse_solve"] == "replicated"
    assert report["subdomains_per_rank"] == {"least": 5 * 3 * 7, "most": 6 * 4 * 8}
    memory = report["memory_bytes_per_rank"]
    cube = (17**3 - 15**3 + 15**3) + (17**3 - 15**3 + 3 * 15**2)  # filled, and swept
    assert memory["buffers"] == 8 * 192 * cube


@pytest.fixture
def planned(mosaicdd, strict_json):
    """Return a function: what ``plan`` says of the memory per rank."""

    def plan(*arguments):
        report = strict_json(mosaicdd("plan", *arguments, "--json").out)
        return report, report["memory_bytes_per_rank"]

    return plan


def test_subdomains_take_less_on_more_ranks_and_the_shared_coarse_solve_does_not_grow(planned):
    cells = ("--cells", "32016x32016", "--ranks")
    plans = [planned(*cells, ranks) for ranks in (1, 4, 64, 1024)]
    assert plans[1][0]["coarse_solve"] == "shared"
    memories = [memory for _, memory in plans]
    totals = [memory["total"] for memory in memories]
    assert totals == sorted(totals, reverse=True)
    assert memories[-1]["coarse"] * 900 < memories[0]["coarse"]


def test_no_rank_has_more_than_its_share_of_levels_and_copies(planned):
    medium = ("--cells", "4096x4096", "--medium", "--ranks")
    (one, on_one), (several, on_several) = planned(*medium, 1), planned(*medium, 64)
    assert one["memory_over_share"] <= 1.0
    assert several["memory_over_share"] < 1.3
    assert on_several["levels"] < 1.5 * on_one["levels"] / 64
    assert set(one["per_iteration"].values()) == {0}
    assert several["levels"][0]["nodes"] == one["levels"][0]["nodes"] == 4095**2
    assert several["levels"][-1]["most"] == several["levels"][-1]["nodes"] < 5000


def test_a_larger_box_takes_as_many_times_more_as_it_has_nodes(planned):
    small, large = (planned("--cells", f"{n}x{n}x{n}", "--ranks", 1)[1] for n in (128, 256))
    assert large["levels"] == pytest.approx(8 * small["levels"], rel=0.05)
