"""Bad input to all commands but ``solve``: one line, exit code 2, on all ranks, before any work, nothing written."""

import importlib.util
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from tables import table

import mosaicdd as m

SHIPPED = Path(m.__file__).parent / "networks" / "shipped"


def solved(path):
    problem = m.Problem((128, 192), "laplace", sides=m.Dirichlet("x"))
    m.solve(problem, "exact", output=path)


def half(path):
    content = (SHIPPED / "laplace.h5").read_bytes()
    path.write_bytes(content[: len(content) // 2])


def of_kind(kind):
    def write(path):
        with h5py.File(path, "w") as file:
            file.attrs["kind"], file.attrs["format_version"] = f"mosaicdd {kind}", 1

    return write


FILES = {
    "good.h5": solved,
    "half.h5": half,
    "text.h5": "no",
    "media.h5": of_kind("media"),
    "squares.h5": of_kind("squares"),
    "own.h5": "mine",
    "notes.html": "mine",
    "lacking.py": (
        "class Lacking:\n    pass\n"
    ),
    "own.py": (
        "from mosaicdd import EllipticOperator, Equation\n"
        "OWN = Equation(name='own', text='-lap u = f', parameters={}, operator=EllipticOperator)\n"
    ),
    "epoch.toml": "epoch = 3",
    "bad.toml": "epochs = ",
    "number.toml": "settings = 3",
    "many.toml": 'epochs = "many"',
    "wide.toml": "[settings]\nwide = 3",
    "dims.toml": 'dims = "1x2"',
}  # fmt: skip


@table(
    "",
    ("dissolve", "unknown command 'dissolve' (did you mean 'solve'?); known: generate"),
    ("bench -o rates.json", "Error: the command 'bench' has left: plan counts without rates; time a solve, whose report has its seconds\n"),
    ("solve", "Missing option"),
    ("solve -o out.h5", "Missing option '--cells'"),
    ("info none.h5", "missing"),
    ("info text.h5", "not a complete"),
    ("report good.h5 -o notes.html", "mosaicdd has not written"),
    ("report good.h5 -o page.txt", "must end in .html"),
    ("report none.h5", "none.h5"),
    ("quantities good.h5 --flow lefd", "unknown side 'lefd' (did you mean 'left'?)"),
    ("quantities good.h5 --flow left[1:0]", "must go from a number to a larger one"),
    ("quantities good.h5 --problem 3", "problem"),
    ("train data.h5 -o own.h5", "own.h5: there is a file of this name that mosaicdd has not written ... --overwrite"),
)  # fmt: skip
@pytest.mark.ranks(1, 2)
def test_commands(words, message, refuse):
    refuse(words, message, FILES)


@table(
    "",
    *((f"{command} {words}", message) for command in ("compare", "plot") for words, message in (
        ("missing.h5", "Error: missing.h5: the solution file is missing"),
        (".", "Error: .: the solution file is a folder\n"),
        ("good.h5 --reference 'expr:open(x)'", "not allowed"),
        ("good.h5 --reference expr:1/x", "not finite at 129 of"),
        ("good.h5 --reference nothing.h5", "the solution file is missing"),
        ("good.h5 --reference exact", "unknown reference 'exact'; known: pyamg, dst, direct, auto, 'expr"),
    )),
    ("compare good.h5 --reference cholmod", "the reference 'cholmod' has left: take 'direct'\n"),
    *((f"compare good.h5 --reference {name}", f"the reference '{name}' has left: take 'pyamg'\n") for name in ("hypre", "pfmg", "petsc")),
    ("plot good.h5 -o figure.bmp", "ends in .png, .pdf, .svg or .gif"),
    ("plot good.h5 -o figure", "ends in .png, .pdf, .svg or .gif"),
    ("plot good.h5 -o missing/figure.png", "does not exist; create it first"),
)  # fmt: skip
@pytest.mark.ranks(1, 2)
def test_compare_and_plot(words, message, refuse):
    refuse(words, message, FILES)


@table(
    "plan --ranks 4",
    ("--cells 64x64x64 --cubes --cells 64x64", "--cubes is of boxes with values on all sides"),
    ("--cells 64x64x64 --cubes --side left=neumann:1", "multigrid solves all others"),
    ("--cells 64x64x64 --cubes --cells 60x64x64", "nx must be a multiple of 8"),
    ("--cells 2048x1024 --side left=periodic", "--side: the side left is periodic, the side right is not"),
    ("--cells 2048x1024 --side left[0:99]=neumann:1", "left[0:99] reaches beyond the side"),
    ("--cells 2048x1024 --domain 'expr:hypot(x,y)+1'", "the domain is empty: none of the 2100225 nodes lies inside"),
    ("--cells 2050x2048", "Error: --cells 2050x2048: nx must be a multiple of 16"),
    ("--cells 128x128 --ranks 100", "100 ranks do not fit: the lattice has 7x7 subdomains"),
    ("--cells 128x128 --dims 3x2", "--dims: 3x2 are 6 ranks, --ranks says 4"),
    ("--cells 128x48 --dims 1x4", "dims 1x4: 4 ranks along y"),
    ("--cells 128x128 --medium --dtype float32", "multigrid works in float64: leave --dtype out"),
    *((f"--cells 64x64 --{name} 2", f"Error: the option 'plan --{name}' has left: plan counts messages and memory and predicts no seconds; leave it out\n")
      for name in ("iterations", "ranks-per-node", "rates")),
)  # fmt: skip
def test_plan(words, message, refuse):
    refuse(words, message)


@table(
    "generate data.h5 --cells 8 --size 0.125 --samples 200 --windows 50",
    ("--validation 2", "validation fraction"),
    ("--pde nothing", "unknown pde 'nothing'"),
    ("--cells 7", "even number"),
    ("--cells 8x8x6", "a subdomain has as many along each axis"),
    ("--pde poisson-boltzmann", "poisson-boltzmann is not linear; networks are trained for linear equations"),
    ("--cells 8x8x8 --pde screened-poisson", "of cubes give their values"),
    ("--method guess", "guess"),
    ("--media", "Error: the option 'generate --media' has left: media are solved without a network, by 'exact'\n"),
    ("--no-labels", "Error: the option 'generate --no-labels' has left: all samples are solved; leave it out\n"),
)  # fmt: skip
def test_generate(words, message, refuse):
    refuse(words, message)


@table(
    "",
    ("generate missing/out.h5", "does not exist"),
    ("train DATA -o missing/out.h5", "does not exist"),
    ("train text.h5 -o model.h5", "not a complete"),
    ("train none.h5 -o model.h5", "missing"),
    ("train half.h5 -o model.h5", "not a complete dataset"),
    ("train media.h5 -o model.h5", "media.h5: the kind of file 'media' has left: "),
    ("train squares.h5 -o model.h5", "squares.h5: the kind of file 'squares' has left: "),
    # Before the data are read:
    *((f"train none.h5 -o model.h5 --network {name}", f"the network '{name}' has left: ") for name in ("conductances", "operator", "correction", "unrolled")),
    ("train none.h5 -o model.h5 --dims 1x2", "Error: the option 'train --dims' has left: each rank has samples of its own; leave it out\n"),
    ("train none.h5 -o model.h5 --config dims.toml", "the option 'train --dims' has left: "),
)  # fmt: skip
def test_files_to_train_from(words, message, data, refuse):
    refuse(words.replace("DATA", str(data)), message, FILES)


@table(
    "train DATA -o model.h5",
    ("--epochs 0", "epochs must be at least 1, got 0"),
    ("--set wide=3", "no setting 'wide'"),
    ("--set width", "NAME=VALUE"),
    ("--lifting -1", "lifting must be a degree from 0, or none, got -1"),
    ("--config epoch.toml", "train has no option 'epoch'"),
    ("--config bad.toml", "not TOML"),
    ("--config number.toml", "settings must be a table"),
    ("--config many.toml", "'many' is not a valid integer"),
    ("--config wide.toml", "no setting 'wide'"),
    ("--config none.toml", "there is no such file"),
    ("--network resnet", "unknown network 'resnet' (did you mean 'sdnet'?); known: deeponet, faces, family"),
    ("--network lacking:Lacking", "lacks the base class torch.nn.Module"),
    ("--network lacking:Gone", "cannot be imported"),
    ("--sharding zero1", "there is 1; start several, as in mpiexec"),
    ("--no-labels --pde-weight 0", "needs a PDE loss"),
    ("--no-labels --residual continuous", "kinks where it folds points"),
    ("--optimizer sgd", "'sgd' is not one of"),
    ("--lr nan", "learning rate must be positive"),
    ("--resume", "there is no checkpoint; start without --resume"),
    ("--pde own.py:OWN", "--pde: it is the equation own, the data are of laplace"),
    ("--network family --points 5", "no use for --points 5: it learns from solutions"),
    ("--network family --precision bf16", "float32, float64, tf32; leave it out"),
    ("--network family --no-labels", "family learns from solutions alone: leave labels"),
    ("--network family --recompute", "cannot recompute its hidden layers"),
)  # fmt: skip
def test_train(words, message, data, refuse):
    refuse(words.replace("DATA", str(data)), message, FILES)


def test_data_of_an_equation_that_is_not_known(data, refuse, mosaicdd, common_path):
    shutil.copy(data, common_path / "other.h5")
    with h5py.File(common_path / "other.h5", "r+") as file:
        file.attrs["pde"] = "nothing"
    assert mosaicdd("info", "--reseal", common_path / "other.h5").code == 0
    refuse("train other.h5 -o model.h5", "unknown pde 'nothing'")


def test_a_package_that_is_missing(refuse, monkeypatch):
    find = importlib.util.find_spec
    gone = lambda name, *rest: None if name == "tensorboard" else find(name, *rest)
    monkeypatch.setattr(importlib.util, "find_spec", gone)
    line = "Error: --tensorboard: the package tensorboard is not installed: pip"
    refuse("train none.h5 -o model.h5 --tensorboard .", line)  # before the dataset is looked for


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize(
    ("wrt", "given", "message"),
    [
        ("k", {}, "unknown derivative by 'k'; known: a, c, f, left"),
        ("a", {"a": (3, 3)}, r"a has the shape \(3, 3\), the problem takes .* or \(64, 64\) or \(65, 65\)"),
        ("a", {"a": (65, 65)}, "a is on meta, solves that are differentiated on the CPU"),
    ],
)  # fmt: skip
def test_what_cannot_be_differentiated(comm, wrt, given, message):
    torch = pytest.importorskip("torch")
    domain = m.Domain((64, 64), 0.125)
    problem = m.Problem(domain, "diffusion", {"a": np.ones((65, 65))}, m.Dirichlet("x"))
    kind = {"device": "meta" if "meta" in message else "cpu"}
    given = {name: torch.ones(*shape, **kind) for name, shape in given.items()}
    with pytest.raises(ValueError, match=message):
        m.differentiable(problem, wrt=(wrt,), ranks=comm)(**given)
