"""Bad input to ``solve``: one line, exit code 2, on every number of ranks, before any work, nothing written.

The command runs inside the ranks of the test, so that one start serves all cases; a few more run
as a user starts them. Each row has the words behind the first ones of its table, and what is said.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from tables import table

import mosaicdd as m

pytestmark = pytest.mark.ranks(1, 2)
SHIPPED = Path(m.__file__).parent / "networks" / "shipped"
SOLVE = "solve -o out.h5"
RANDOM = f"{SOLVE} --boundary gp:seed=0 --cells 256x128"
EXACT = f"{RANDOM} --local-solver exact"
ZERO = f"{SOLVE} --cells 64x64 --boundary 0"


def edges(problems=(), **changed):
    """Return what writes a boundary file of 256 x 128 cells, some edges with other values, or without."""

    def write(path):
        with h5py.File(path, "w") as file:
            for name, nodes in {"bottom": 257, "top": 257, "left": 129, "right": 129}.items():
                values = np.zeros((*problems, nodes))
                if name in changed and changed[name] is not None:
                    place, value = changed[name]
                    values[place] = value
                if changed.get(name, ()) is not None:
                    file[f"boundary/{name}"] = values

    return write


def another_equation(path):
    shutil.copy(SHIPPED / "laplace.h5", path)
    with h5py.File(path, "r+") as file:
        file.attrs["card"] = json.dumps(
            json.loads(file.attrs["card"]) | {"pde": "screened-poisson"}
        )
        file.attrs["format_version"] = 1  # from before the seals


def another_kind(path):
    with h5py.File(path, "w") as file:
        file.attrs["kind"] = "mosaicdd dataset"


def half(path):
    content = (SHIPPED / "laplace.h5").read_bytes()
    path.write_bytes(content[: len(content) // 2])


FILES = {
    "value.h5": edges(left=(7, np.nan)),
    "corner.h5": edges(top=(0, 1.0)),
    "edge.h5": edges(right=None),
    "many.h5": edges((5,), left=((3, 7), np.inf)),
    "half.h5": half,
    "foreign.h5": "weights, honestly\n",
    "kind.h5": another_kind,
    "equation.h5": another_equation,
    "folder.h5": lambda path: path.mkdir(),
    "rtl.toml": "rtl = 1e-8",
    "table.toml": "[rtol]\na = 1",
    "bad.toml": "rtol = ",
    "own.h5": "not of this package\n",
    "own.json": "not of this package\n",
}


@table(
    RANDOM,
    ("--local-solver laplace --cells 2050x2048", "--cells 2050x2048: nx must be a multiple of 16 (half a subdomain), got 2050; nearest: 2048, 2064"),
    ("--local-solver laplace --cells 2048x2040", "--cells 2048x2040: ny must be a multiple of 16 (half a subdomain), got 2040; nearest: 2032, 2048"),
    ("--local-solver laplace --cells 16x64", "--cells 16x64: nx must be at least 32 (one subdomain), got 16"),
    ("--local-solver exact --cells 16000000x16000000", "--cells 16000000x16000000: needs at least  ... use more machines or fewer cells, of this shape "),
    ("--local-solver exact --dims 3x3", "dims 3x3 need 9 ranks, there are RANKS"),
    ("--local-solver exact --dims 1x7", "dims 1x7 need 7 ranks, there are RANKS"),
    ("--local-solver exact --dims 5x1", "dims 5x1 need 5 ranks, there are RANKS"),
    ("--cells 0k", "'0k' is not of the form NXxNY"),
    ("--cells 2kb", "'2kb' is not of the form NXxNY"),
    ("--cells 8x8x8x8", "'8x8x8x8' is not of the form NXxNY[xNZ]"),
)  # fmt: skip
def test_sizes(words, message, refuse):
    refuse(words, message)


@pytest.mark.ranks(2, 3, 4, 6)
@table(
    EXACT,
    ("--cells 32x32", "RANKS ranks do not fit: the lattice has 1x1 subdomains ... use at most 1 ranks"),
    ("--cells 32x512 --dims RANKSx1", "RANKS ranks along x, but the lattice has only 1 subdomains there"),
    ("--cells 512x32 --dims 1xRANKS", "RANKS ranks along y, but the lattice has only 1 subdomains there"),
)  # fmt: skip
def test_more_ranks_than_the_lattice_has_subdomains(words, message, comm, refuse):
    refuse(words.replace("RANKS", str(comm.size)), message)


@table(
    f"{RANDOM} --local-solver",
    ("gone.h5", "--local-solver: gone.h5 ... neither a model file nor a shipped model"),
    ("folder.h5", "--local-solver: folder.h5 ... the model file is a folder"),
    ("half.h5", "--local-solver: half.h5 ... not a complete model file"),
    ("foreign.h5", "--local-solver: foreign.h5 ... not a complete model file"),
    ("kind.h5", "--local-solver: kind.h5 ... a mosaicdd dataset file, a mosaicdd model file is needed"),
    ("equation.h5", "--local-solver: equation.h5 ... is a model for screened-poisson, it does not solve laplace"),
    ("laplce", "nor a shipped model (did you mean 'laplace'?)"),
    ("laplace-sdnet --accelerate gmres", "laplace-sdnet is not: use --accelerate none"),
    ("exact --network-dtype float32", "for a network that is not linear, exact is none; leave it out"),
    ("laplace --network-dtype float32", "for a network that is not linear, laplace is none; leave it out"),
    ("laplace --pde diffusion --field a=expr:1+x", "take 'exact'"),
    ("averaged", "the local solver 'averaged' has left: take 'exact'"),
    ("diffusion", "the local solver 'diffusion' has left: take 'exact'"),
    ("minimal-surface --pde minimal-surface", "the local solver 'minimal-surface' has left: take 'exact' (Newton's method)"),
    ("subdomain-newton --pde minimal-surface", "the local solver 'subdomain-newton' has left: take 'exact' (Newton's method)"),
)  # fmt: skip
def test_local_solvers(words, message, refuse):
    refuse(words, message, FILES)


@table(
    f"{EXACT} --boundary",
    ("value.h5", "--boundary: value.h5 ... boundary edge left has 1 of 129 values that are not finite"),
    ("corner.h5", "--boundary: corner.h5 ... boundary edges top and left must be equal in their common corner"),
    ("edge.h5", "--boundary: edge.h5 ... /boundary/right is missing"),
    ("many.h5", "problem 3: boundary edge left has 1 of 129 values that are not finite"),
    ("gone.h5", "--boundary: gone.h5: the boundary file is missing"),
    ("''", "--boundary: the text is empty"),
    ("'' --pde laplace", "--boundary: the text is empty"),
    ("'sin(x)'", "--boundary: 'sin(x)' is no file; a formula is written 'expr:sin(x)'"),
    ("expr:x^2", "--boundary: expression 'x^2': ^ is not allowed (a power is **)"),
    ("'expr:np.sin(x)'", "'np.sin(x)': np.sin is not allowed (write sin)"),
    ("'expr:sine(x)'", "sine is not allowed (did you mean 'sin'?)"),
    ("\"expr:__import__('os').system('true')\"", "--boundary:  ... not allowed"),
    ("'expr:open(x)'", "--boundary:  ... not allowed"),
    ("expr:x.real", "--boundary:  ... attribute is not allowed"),
    ("expr:z", "--boundary:  ... z is not allowed"),
    ("'expr:sin(x'", "--boundary:  ... cannot read the expression"),
    ("expr:1/x", "--boundary:  ... not finite"),
    ("expr:~x", "--boundary:  ... cannot evaluate"),
    ("gp:seed=x", "gp:"),
    ("gp:length=0", "gp:"),
    ("gp:colour=1", "gp:"),
    ("gpp:seed=1", "did you mean"),
)  # fmt: skip
def test_boundaries(words, message, refuse):
    refuse(words, message, FILES)


def test_a_boundary_file_of_another_size(refuse):
    message = "for 256x128 cells (edges of 257 and 129 nodes), the problem has 240x128"
    refuse(f"{EXACT} --cells 240x128 --boundary whole.h5", message, {"whole.h5": edges()})


@table(
    EXACT,
    ("--rtol -1", "rtol must be a number >= 0, got -1.0"),
    ("--rtol nan", "rtol must be a number >= 0, got nan"),
    ("--rtol small", "'small' is not a valid float"),
    ("--max-iterations 0", "--max-iterations must be at least 1, got 0"),
    ("--max-iterations -3", "--max-iterations must be at least 1, got -3"),
    ("--batch-subdomains 0", "--batch-subdomains must be at least 1, got 0"),
    ("--until-mae -0.05", "mae must be a number >= 0, got -0.05"),
    ("--levels 3", "'3' is not one of '1', '2'"),
    ("--sweep phases", "two levels need the additive sweep"),
    ("--dims 2", "'2' is not of the form NXxNY[xNZ], as in 2048x1024"),
    ("--dims 0x4", "'0x4' is not of the form NXxNY"),
    ("--no-such-option", "No such option"),
    ("surplus", "unexpected extra argument"),
    ("--device tpu", "unknown device 'tpu' (did you mean 'cpu'?); known: cpu, cuda"),
    ("--config rtl.toml", "no option 'rtl' (did you mean 'rtol'?)"),
    ("--config table.toml", "rtol has one value, got a table"),
    ("--config bad.toml", "not TOML"),
    ("--config gone.toml", "there is no such file"),
    ("-o missing/out.h5", "--output:  ... does not exist; create it first"),
    ("-o .", "--output: . is a folder, the name of a file is needed"),
    *((f"-o {name}", f"{name}: the name of this file must end in .h5") for name in ("k.npy", "out", "out.hdf5", "own.py")),
    ("-o own.h5", "own.h5: there is a file of this name that mosaicdd has not written ... --overwrite"),
    ("--pde heat --steps 1 --dt 1 --boundary 0 -o own.h5", "own.h5: there is a file of this name that mosaicdd has not written ... --overwrite"),
    ("-o new.h5 --trace own.json", "own.json: there is a file of this name that mosaicdd has not written ... --overwrite"),
    ("--resume", "--resume: out.h5.checkpoint: the checkpoint file is missing"),
)  # fmt: skip
def test_settings(words, message, refuse):
    refuse(words, message, FILES)


ENDS = "--side left=dirichlet:1 --side right=dirichlet:1"
BOX = "--cells 16x16x16 --spacing 0.0625 --pde diffusion"


@table(
    f"{SOLVE} --cells 64x64 --local-solver exact",
    (ENDS, "bottom, top"),
    (f"{ENDS} --side top[0:0.5]=neumann:0", "bottom, the rest of top"),
    (f"{ENDS} --side top=neumann:0 --side bottom[0:0.4]=neumann:0 --side bottom[0.5:]=neumann:0", "the rest of bottom"),
    ("--pde laplace", "left, right, bottom, top"),
    ("--pde poisson --field f=1", "left, right, bottom, top"),
    ("--pde heat --steps 1 --dt 0.1", "left, right, bottom, top"),
    (f"--domain 'expr:hypot(x-0.5,y-0.5)-0.3' {ENDS}", "outer"),
    ("--domain 'expr:abs(hypot(x-0.5,y-0.5)-0.3)-0.1' --side outer=neumann:0", "hole1"),
    (BOX, "left, right, bottom, top, back, front"),
    (f"{BOX} {ENDS} --side back=neumann:0 --side front=neumann:0 --side bottom=neumann:0 --side 'top[0:0.5, :]=neumann:0' --side 'top[0.5:, 0.1:]=neumann:0'", "the rest of top"),
)  # fmt: skip
def test_sides_of_which_nothing_is_said(words, message, refuse):
    refuse(words, f"nothing is said of the sides {message}: give their values by --boundary")


PAIR = "--side left=periodic --side right=periodic"
INSULATED = "--side bottom=neumann:0 --side top=neumann:0"


@table(
    ZERO,
    ("--side left=dirichlet:0 --side left=dirichlet:1", "'--side': left is given 2 times"),
    ("--side left=dirichlet:nan", "'--side': 'left=dirichlet:nan' is not of the form"),
    ("--side left=dirichlet:expr:1/y", "--side: the side left has 1 of"),
    ("--side left=neumann:expr:1/y", "--side: the side left has 1 of"),
    ("--side left=neumann:expr:x*z", "--side: expression 'x*z': z is not allowed"),
    ("--side left=neumann:no.npy", "--side: no.npy: the file of field values is missing"),
    ("--side left=neumann:0 --local-solver laplace", "a side is natural here: take 'exact'"),
    ("--side left=robin:-1,0", "ALPHA >= 0"),
    ("--side left[0:3]=neumann:0", "left[0:3] reaches beyond the side"),
    ("--side left[0.501:0.51]=dirichlet:1", "left[0.501:0.51] holds no node"),
    ("--side left=x", "'left=x' is not of the form SIDE=KIND:SPEC"),
    ("--side middle=dirichlet:0", "unknown side 'middle'"),
    ("--side back=dirichlet:1", "unknown side 'back'"),
    ("--side lft=dirichlet:1", "unknown side 'lft' (did you mean 'left'?)"),
    ("--side left=dirichlt:1", "unknown condition 'dirichlt' (did you mean 'dirichlet'?)"),
    ("--side left=periodic", "left is periodic, the side right is not"),
    (f"{PAIR} --side left=neumann:1", "left is given 2 times"),
    (f"{PAIR} --domain expr:x-1", "--domain: the sides left and right are periodic, but the outline"),
    (f"{PAIR} --local-solver laplace", "a side is periodic here: take 'exact'"),
    (f"{PAIR} --side top=neumann:1 --side bottom=neumann:1", "100.0% of the sources and fluxes are left over"),
    (f"--pde diffusion --side left=periodic:x --side right=periodic {INSULATED}", "a number to jump by, got 'x'"),
    (f"--pde diffusion --side left=periodic:1 --side right=periodic {INSULATED}", "give both of the pair the same"),
    ("--pde diffusion --side left=periodic:1.5 --side right=periodic:1.5", "where a flux is given"),
)  # fmt: skip
def test_sides(words, message, refuse):
    refuse(words, message)


@table(
    f"{SOLVE} --cells 192x128 --local-solver exact --boundary gp:seed=0..4",
    ("--until-mae 1e-3", "--until-mae takes one problem, there are 5"),
    ("--resume", "--resume:  ... out.h5.checkpoint: the checkpoint is missing"),
    ("--accelerate anderson --batch 2", "2 problems at once are for iterations other than Anderson's,  ... use --batch 1"),
    ("--replicas 3", "--replicas 3 must divide the number of ranks, there are RANKS"),
    ("--replicas 0", "--replicas"),
    ("--batch 0", "--batch"),
)  # fmt: skip
def test_many_problems(words, message, refuse):
    refuse(words, message)


@pytest.mark.ranks(4)
@table(
    f"{SOLVE} --cells 192x128 --local-solver exact --boundary",
    ("gp:seed=0..4 --replicas 2 --dims 2x2", "--replicas 2 with dims 2x2 need 8 ranks, there are 4"),
    ("gp:seed=0..2 --replicas 4", "--replicas 4: each needs a problem of its own, there are 3"),
    ("gp:seed=0 --replicas 2", "--replicas 2: each needs a problem of its own, there is 1"),
)  # fmt: skip
def test_replicas(words, message, refuse):
    refuse(words, message)


def test_threads_that_no_machine_has(refuse, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "100000")
    refuse(ZERO, f"asks for 100000 threads, this machine has {os.cpu_count()} cores")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_where_there_is_none(refuse):
    refuse(f"{EXACT} --device cuda", "torch sees no CUDA device here; use --device cpu")


def test_a_file_where_the_shards_should_be(refuse, common_path, by_one):
    by_one((common_path / "out.h5.shards").write_text, "mine")
    refuse(f"{RANDOM} --shards", "--shards ... is a file, a folder is needed")


def test_an_output_that_is_a_pipe(refuse, common_path, by_one):
    by_one(os.mkfifo, common_path / "pipe")  # renaming would replace it; as root, even /dev/null
    refuse(f"{EXACT} -o pipe", "Error: --output: pipe is no regular file")
    assert (common_path / "pipe").is_fifo()


@pytest.mark.ranks(1)
@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        pytest.param((), f"{SOLVE} --cells 2050x2048 --local-solver laplace", marks=pytest.mark.nightly),
        (("-n", "2"), f"{SOLVE} --cells 256x256 --dims 3x3"),
    ],
)  # fmt: skip
def test_as_a_user_starts_it(ranks, words, mpiexec, tmp_path):
    launcher = (mpiexec, *ranks) if ranks else ()
    command = [*launcher, sys.executable, "-m", "mosaicdd.cli.main", *words.split()]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("Error: ")
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert not os.listdir(tmp_path)
