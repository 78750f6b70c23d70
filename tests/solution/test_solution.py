"""`Solution`: how it shows itself, in memory as in a file."""

import base64
import gc
import json
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import mosaicdd as m
from mosaicdd.solvers.multigrid.multigrid_system import MultigridSystem

CELLS = (64, 96)


@pytest.fixture(scope="module")
def solution():
    """Return the solution of a problem with a parameter and a source."""
    fields = {"c": 2.0, "f": "x*y"}
    return m.solve(m.Problem(CELLS, "screened-poisson", fields, m.Dirichlet("x - y")))


@pytest.fixture(scope="module")
def several():
    """Return the solutions of three problems."""
    values = np.random.default_rng(0).standard_normal((3, 65, 97))
    return m.solve(m.Problem(CELLS, "poisson", {"f": values}))


@pytest.fixture(params=["memory", "file"])
def shown(request, solution, tmp_path):
    """Return the solution in memory, and opened from a file."""
    if request.param == "memory":
        return solution
    solution.save(tmp_path / "out.h5")
    return m.read(tmp_path / "out.h5")


def test_a_comparison_is_of_the_problem_with_its_fields(shown):
    comparison = shown.compare("direct")
    # Stopped at 1e-7 of values up to 1.5, with an iteration that contracts by 0.2.
    assert comparison.mae < 1e-7
    assert m.compare(shown, "direct").mae == comparison.mae
    assert shown.compare(np.asarray(shown.field)).max_error == 0


def test_several_problems_are_compared_one_by_one_and_together(several, tmp_path):
    comparison = several.compare("direct")
    assert len(comparison.problems) == 3
    assert comparison.max_error == max(one.max_error for one in comparison.problems) < 1e-6
    several.save(tmp_path / "out.h5")
    assert m.compare(tmp_path / "out.h5", "direct").mae == comparison.mae


def test_a_picture_is_returned_and_written(shown, tmp_path):
    path = tmp_path / "out.png"
    drawing = shown.plot(path, reference="direct")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert len(drawing.axes) > len(shown.plot().axes)


def test_an_xarray_has_coordinates_and_attributes(shown, several):
    pytest.importorskip("xarray")
    array = shown.to_xarray()
    assert array.dims == ("y", "x")
    np.testing.assert_array_equal(array.values, shown.field)
    np.testing.assert_array_equal(array.x, shown.x)
    assert array.attrs["pde"] == "screened-poisson"
    assert several.to_xarray().dims == ("problem", "y", "x")


def test_html_is_a_table_and_a_picture(shown):
    page = shown._repr_html_()
    assert "screened-poisson" in page
    assert "96 x 64 cells" in page
    assert "converged_rtol" in page
    image = re.search(r"base64,([^']*)'", page)[1]
    assert base64.b64decode(image).startswith(b"\x89PNG")


# A notebook's kernel, within the process that runs it: one of its own is reached by ports that another
# process may take meanwhile, and must answer in time. Prints what each cell shows.
_NOTEBOOK = """
import json, queue, sys
from ipykernel.inprocess import InProcessKernelManager

manager = InProcessKernelManager()
manager.start_kernel()
client = manager.client()
client.start_channels()

def shown_by(cell):
    client.execute(cell)
    reply = client.get_shell_msg(timeout=0)["content"]
    assert reply["status"] == "ok", reply
    while True:
        try:
            message = client.get_iopub_msg(timeout=0)
        except queue.Empty:
            return
        if "data" in message["content"]:
            yield message["content"]["data"]

shown = [list(shown_by(cell)) for cell in json.loads(sys.argv[1])]
json.dump(shown, sys.__stdout__)
"""


@pytest.mark.nightly
def test_a_notebook_shows_a_solution():
    pytest.importorskip("ipykernel")
    program = (
        "import mosaicdd as m\n"
        "problem = m.Problem((64, 64), 'laplace', sides=m.Dirichlet('x*x - y*y'))\n"
        "solution = m.solve(problem)\n"
        "solution"
    )
    # A picture of its own is shown by the cell that asks for it, once, with or without a semicolon; and
    # again where a later cell names it.
    cells = [program, "drawing = solution.plot();", "solution.plot()", "drawing", "2"]
    ended = subprocess.run(
        [sys.executable, "-c", _NOTEBOOK, json.dumps(cells)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    shown = json.loads(ended.stdout)
    assert [sum("image/png" in data for data in of_cell) for of_cell in shown] == [0, 1, 1, 1, 0]
    (data,) = shown[0]
    assert "<table>" in data["text/html"]
    assert "data:image/png;base64," in data["text/html"]
    assert data["text/plain"].startswith("<Solution of laplace on 64x64 cells")


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize("shards", [False, True])
def test_what_cannot_be_saved_is_the_same_error_on_all_ranks(shards, comm, common_path):
    found = m.solve(m.Problem(CELLS, "laplace", sides=m.Dirichlet("x*y")), "exact", ranks=comm)
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist"):
        found.save(common_path / "nowhere" / "out.h5", shards=shards)
    found.save(common_path / "out.h5", shards=shards)
    comm.Barrier()
    np.testing.assert_array_equal(m.read(common_path / "out.h5").field, found.gather())
    comm.Barrier()


def test_a_file_in_shards_is_of_one_problem_with_its_field(several, tmp_path):
    with pytest.raises(ValueError, match="shards=True takes one problem, there are 3"):
        several.save(tmp_path / "out.h5", shards=True)


def test_another_solution_is_a_reference(shown, solution, several):
    assert shown.compare(solution).max_error == 0
    assert shown.compare(shown).max_error == 0
    assert len(shown.plot(reference=solution).axes) > len(shown.plot().axes)
    assert several.compare(several).max_error == several.compare(several.field).max_error == 0
    with pytest.raises(ValueError, match="the reference has 3 problems, the solution 1; they must"):
        shown.compare(several)
    other = m.solve(m.Problem((64, 64), "laplace"))
    with pytest.raises(ValueError, match=r"the reference has 64x64 cells .*, the solution 96x64"):
        shown.compare(other)


def test_without_a_field_html_is_a_table_alone():
    with m.Solver(m.Problem(CELLS, "laplace"), keep="interface") as solver:
        page = solver()._repr_html_()
    assert "96 x 64 cells" in page
    assert "<img" not in page


TRAVELLERS = {
    "network": m.Problem(CELLS, "laplace", sides=m.Dirichlet("x - y")),
    "medium": m.Problem(CELLS, "diffusion", {"a": "1 + x", "f": 1.0}, {"left": m.Neumann(1.0)}),
    "nonlinear": m.Problem(CELLS, "poisson-boltzmann", {"f": "x"}),
}


@pytest.mark.parametrize("problem", TRAVELLERS.values(), ids=TRAVELLERS)
def test_a_solution_travels_to_another_process(problem, tmp_path):
    solution = m.solve(problem)
    other = pickle.loads(pickle.dumps(solution))
    assert repr(other) == repr(solution)
    np.testing.assert_array_equal(other.field, solution.field)
    points = [[0.3, 0.2], [0.77, 0.5]]
    np.testing.assert_array_equal(other.at(points), solution.at(points))
    other.save(tmp_path / "out.h5")
    np.testing.assert_array_equal(m.read(tmp_path / "out.h5").field, solution.field)


def test_a_series_travels_to_another_process():
    problem = m.Problem(CELLS, "reaction-diffusion", {"r": "u**3", "f": "sin(t)"})
    series = m.march(problem, "x*y", dt=0.1, steps=2)
    other = pickle.loads(pickle.dumps(series))
    assert repr(other) == repr(series)
    np.testing.assert_array_equal(np.stack(list(other)), np.stack(list(series)))


def systems():
    """Return how many there are in memory."""
    gc.collect()
    return sum(type(held) is MultigridSystem for held in gc.get_objects())


def test_a_solution_keeps_no_operators_of_a_medium():
    before = systems()
    solution = m.solve(TRAVELLERS["medium"])
    assert systems() == before
    assert solution.field.shape == (65, 97)


@pytest.mark.ranks(2)
def test_no_property_waits_for_other_ranks(comm):
    solution = m.solve(m.Problem(CELLS, "laplace", sides=m.Dirichlet("x*y")), "exact", ranks=comm)
    series = m.march(m.Problem(CELLS, "heat"), 1.0, dt=0.1, steps=1, ranks=comm)
    if comm.rank == 0:  # alone: what gathered behind a property would hang here
        for ask in (lambda: solution.field, lambda: series.field, lambda: series[0]):
            with pytest.raises(RuntimeError, match=r"lies over 2 ranks: gather\(\)"):
                ask()
        assert "<img" not in solution._repr_html_()
    np.testing.assert_array_equal(solution.gather()[solution.place], solution.local)
    assert np.shares_memory(solution.field, solution.gather())
    np.testing.assert_array_equal(series.gather(0)[series.place], series.local(0))


def test_a_field_is_not_changed_by_who_looks_at_it():
    solution = m.solve(m.Problem((16, 16), "poisson", {"f": 1.0}, m.Dirichlet(0.0)))
    mean = solution.mean()
    for array in (solution.field, solution.local, solution.gather()):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 1.0
    solution.field.copy()[:] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        solution.each()[0].field[:] = 1.0
    assert solution.mean() == mean
    tensors = m.solve(m.Problem((16, 16), "poisson", {"f": torch.ones(17, 17)}, m.Dirichlet(0.0)))
    tensors.field[:] = 1.0
    assert tensors.mean() == pytest.approx(mean)
    series = m.march(m.Problem((16, 16), "heat", {"f": 1.0}), 0.0, dt=0.1, steps=1)
    series.local()[:] = 1.0
    assert series.field.max() < 0.1


def test_an_array_with_names_is_a_copy(tmp_path):
    pytest.importorskip("xarray")
    solution = m.solve(m.Problem((16, 16), "poisson", {"f": 1.0}, m.Dirichlet(0.0)))
    solution.save(tmp_path / "out.h5")
    mean = solution.mean()
    for each in (solution, m.read(tmp_path / "out.h5")):
        each.to_xarray()[:] = 1.0
        assert each.mean() == mean


def test_a_solution_in_memory_and_its_file_are_one_object(tmp_path):
    fields = {"a": np.linspace(1, 2, 256).reshape(16, 16), "f": 2.0}
    solution = m.solve(m.Problem((16, 16), "diffusion", fields, {"left": m.Robin(1.0, 2.0)}))
    solution.save(tmp_path / "out.h5")
    (memory,), stored = solution.each(), m.read(tmp_path / "out.h5")
    assert type(memory) is type(stored)
    assert memory.numbers == stored.numbers == {"c": 0.0, "f": 2.0}
    np.testing.assert_array_equal(memory.fields["a"], stored.fields["a"])
    for name in ("field", "error_map"):
        np.testing.assert_array_equal(getattr(memory, name), getattr(stored, name))
    assert memory.balance() == stored.balance() == solution.balance()
    assert memory.map_extent((5, 5)) == stored.map_extent((5, 5))
