"""Bad input to ``solve``: one line, exit code 2, on every number of ranks, at once.

The command runs inside the ranks of the test, so that one start serves all cases; a few more run
as a user starts them.
"""

import dataclasses
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest
import torch

from mosaicdd.local_solvers.loading import model_path
from mosaicdd.storage.model_file import read_model, write_model

pytestmark = pytest.mark.ranks(1, 2)
EXACT = ("--local-solver", "exact")


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("2050x2048", "nx must be a multiple of 16 (half a subdomain), got 2050; nearest: 2048, 2064"),
        ("2048x2040", "ny must be a multiple of 16 (half a subdomain), got 2040; nearest: 2032, 2048"),
        ("16x64", "nx must be at least 32 (one subdomain), got 16"),
    ],
)  # fmt: skip
def test_cells_that_the_lattice_does_not_divide(cells, message, refused):
    line = refused("--local-solver", "laplace", cells=cells)
    assert line.startswith(f"Error: --cells {cells}: {message}")


def test_a_domain_that_does_not_fit_the_memory_says_so_before_any_work(refused):
    line = refused(*EXACT, cells="16000000x16000000")
    assert line.startswith("Error: --cells 16000000x16000000: needs at least ")
    assert "use more machines or fewer cells, of this shape " in line


@pytest.mark.parametrize("dims", ["3x3", "1x7", "5x1"])
def test_dims_that_do_not_multiply_to_the_ranks(dims, comm, refused):
    px, py = map(int, dims.split("x"))
    line = refused(*EXACT, "--dims", dims)
    assert f"dims {dims} need {px * py} ranks, there are {comm.size}" in line


@pytest.mark.ranks(2, 3, 4, 6)
def test_more_ranks_than_the_lattice_has_subdomains(comm, refused):
    line = refused(*EXACT, cells="32x32")
    assert f"{comm.size} ranks do not fit: the lattice has 1x1 subdomains" in line
    assert "use at most 1 ranks" in line


@pytest.mark.ranks(2, 3, 4, 6)
def test_more_ranks_along_an_axis_than_the_lattice_has_subdomains(comm, refused):
    line = refused(*EXACT, "--dims", f"1x{comm.size}", cells="512x32")
    assert f"{comm.size} ranks along y, but the lattice has only 1 subdomains there" in line


def break_corner(file):
    file["boundary/top"][0] = 1.0


def break_value(file):
    file["boundary/left"][7] = np.nan


def drop_edge(file):
    del file["boundary/right"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (break_value, "boundary edge left has 1 of 129 values that are not finite"),
        (break_corner, "boundary edges top and left must be equal in their common corner"),
        (drop_edge, "/boundary/right is missing"),
    ],
)
def test_an_unsound_boundary_file(change, message, comm, write_edges, common_path, refused):
    path = write_edges(common_path / "edges.h5", np.zeros((129, 257)))
    if comm.rank == 0:
        with h5py.File(path, "r+") as file:
            change(file)
    comm.Barrier()
    line = refused(*EXACT, "--boundary", path)
    assert line.startswith(f"Error: --boundary: {path}")
    assert message in line


def test_a_boundary_file_of_the_wrong_length(write_edges, common_path, refused):
    path = write_edges(common_path / "edges.h5", np.zeros((129, 241)))
    assert "for 240x128 cells (edges of 241 and 129 nodes), the problem has 256x128" in refused(
        *EXACT, "--boundary", path
    )


@pytest.mark.parametrize("pde", [(), ("--pde", "laplace")])
def test_a_boundary_by_an_empty_text(pde, refused):
    assert "--boundary: the text is empty" in refused("--cells", "32x32", *pde, "--boundary", "")


def test_threads_that_no_machine_has(refused, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "100000")
    line = refused("--cells", "32x32")
    assert f"asks for 100000 threads, this machine has {os.cpu_count()} cores" in line


def test_a_missing_boundary_file(common_path, refused):
    assert "the boundary file is missing" in refused(*EXACT, "--boundary", common_path / "no.h5")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("__import__('os').system('true')", "not allowed"),
        ("open(x)", "not allowed"),
        ("x.real", "attribute is not allowed"),
        ("z", "z is not allowed"),
        ("sin(x", "cannot read the expression"),
        ("1/x", "not finite"),
        ("~x", "cannot evaluate"),
    ],
)
def test_an_expression_that_is_not_allowed(expression, message, refused):
    line = refused(*EXACT, "--boundary", f"expr:{expression}")
    assert line.startswith("Error: --boundary: ")
    assert message in line


@pytest.mark.parametrize("spec", ["gp:seed=x", "gp:length=0", "gp:colour=1"])
def test_a_gaussian_process_that_cannot_be(spec, refused):
    assert "gp:" in refused(*EXACT, "--boundary", spec)


def missing(path):
    return "neither a model file nor a shipped model"


def folder(path):
    path.mkdir()
    return "the model file is a folder"


def truncated(path):
    whole = model_path("laplace").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return "not a complete model file"


def foreign(path):
    path.write_text("weights, honestly\n")
    return "not a complete model file"


def another_kind(path):
    with h5py.File(path, "w") as file:
        file.attrs["kind"] = "mosaicdd dataset"
    return "a mosaicdd dataset file, a mosaicdd model file is needed"


def another_pde(path):
    card, weights = read_model(model_path("laplace"))
    write_model(path, dataclasses.replace(card, pde="screened-poisson"), weights)
    return "is a model for screened-poisson, it does not solve laplace"


@pytest.mark.parametrize("make", [missing, folder, truncated, foreign, another_kind, another_pde])
def test_a_model_file_of_no_use(make, comm, common_path, refused):
    path = common_path / "model.h5"
    message = comm.bcast(make(path) if comm.rank == 0 else None)
    line = refused("--local-solver", path)
    assert line.startswith(f"Error: --local-solver: {path}")
    assert message in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rtol", "-1"), "rtol must be a number >= 0, got -1.0"),
        (("--rtol", "nan"), "rtol must be a number >= 0, got nan"),
        (("--rtol", "small"), "'small' is not a valid float"),
        (("--max-iterations", "0"), "--max-iterations must be at least 1, got 0"),
        (("--max-iterations", "-3"), "--max-iterations must be at least 1, got -3"),
        (("--batch-subdomains", "0"), "--batch-subdomains must be at least 1, got 0"),
        (("--until-mae", "-0.05"), "mae must be a number >= 0, got -0.05"),
        (("--levels", "3"), "'3' is not one of '1', '2'"),
        (("--sweep", "phases"), "two levels need the additive sweep"),
        (("--dims", "2"), "'2' is not of the form NXxNY[xNZ], as in 2048x1024"),
        (("--dims", "0x4"), "'0x4' is not of the form NXxNY"),
        (("--field", "c=1", "--field", "c=2"), "'--field': c is given 2 times"),
        (
            ("--side", "left=dirichlet:0", "--side", "left=dirichlet:1"),
            "'--side': left is given 2 times",
        ),
        (("--side", "left=dirichlet:nan"), "'--side': 'left=dirichlet:nan' is not of the form"),
        (("--side", "left=dirichlet:expr:1/y"), "--side: the side left has 1 of"),
        (("--side", "left=neumann:expr:1/y"), "--side: the side left has 1 of"),
        (("--side", "left=neumann:expr:x*z"), "Error: --side: expression 'x*z': z is not allowed"),
        (("--pde", "poisson", "--field", "f=nan"), "the field f must be finite, got nan"),
        (("--no-such-option",), "No such option"),
        (("surplus",), "unexpected extra argument"),
        (("--pde", "telegraph"), "unknown pde 'telegraph'; known: advection-diffusion, "),
    ],
)
def test_values_that_cannot_be(arguments, message, refused):
    assert message in refused(*EXACT, *arguments)


def test_gmres_with_a_network_that_is_not_linear(refused):
    line = refused("--local-solver", "laplace-sdnet", "--accelerate", "gmres")
    assert "laplace-sdnet is not: use --accelerate none" in line


@pytest.mark.parametrize("solver", ["exact", "laplace"])
def test_a_precision_for_a_network_that_is_none(solver, refused):
    line = refused("--local-solver", solver, "--network-dtype", "float32")
    assert f"for a network that is not linear, {solver} is none; leave it out" in line


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_where_there_is_none(refused):
    assert "torch sees no CUDA device here; use --device cpu" in refused(*EXACT, "--device", "cuda")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("solve",), "Missing option"),
        (("dissolve",), "unknown command 'dissolve' (did you mean 'solve'?); known: generate"),
        (("solve", "-o", "out.h5"), "Missing option '--cells'"),
    ],
)
def test_a_command_that_is_not_complete(arguments, message, mosaicdd):
    ended = mosaicdd(*arguments)
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.count("\n") == 1
    assert message in ended.err


STARTED = [
    pytest.param(
        (), ("--cells", "2050x2048", "--local-solver", "laplace"), marks=pytest.mark.nightly
    ),
    (("-n", "2"), ("--cells", "256x256", "--dims", "3x3")),
]


@pytest.mark.ranks(1)
@pytest.mark.parametrize(("ranks", "arguments"), STARTED)
def test_as_a_user_starts_it(ranks, arguments, mpiexec, tmp_path):
    launcher = (mpiexec, *ranks) if ranks else ()
    command = (sys.executable, "-m", "mosaicdd.cli.main", "solve", "-o", "out.h5")
    ended = subprocess.run(
        [*launcher, *command, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("Error: ")
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert not os.listdir(tmp_path)
