"""The dependency rules of the architecture, read off the imports."""

import ast
import graphlib
import sys
from pathlib import Path

import pytest

import mosaicdd

ROOT = Path(mosaicdd.__file__).parent

# Folder: what of the package it may import besides itself, ``settings`` and ``tensors``;
# ``cli`` and the face of the library may import everything.
ALLOWED = {
    "lattice": {"problems.sides.boundary"},
    "problems": {"lattice.axes", "lattice.grid"},
    "local_solvers": {"lattice", "problems", "storage.model_file"},
    "parallel": {"lattice"},
    "schwarz": {
        *("lattice", "local_solvers", "parallel", "problems"),
        *("storage", "report.presented"),
    },
    "storage": {"lattice", "problems"},
    "training": {"lattice", "local_solvers", "parallel", "problems", "storage"},
    "planning": {
        *("lattice", "local_solvers", "parallel", "problems", "schwarz"),
        *("storage.atomic", "storage.hdf5", "storage.solution_writer"),
    },
    "report": {"lattice", "problems", "storage"},
    "time": {
        *("lattice", "local_solvers", "parallel", "problems", "schwarz"),
        *("storage", "report.presented"),
    },
}
# Outside library: the folders or modules it may be imported in.
HOMES = {
    "mpi4py": {"parallel"},
    "pyamg": {"problems"},
    "petsc4py": {"problems.references.petsc_solve"},  # a script that another Python may run
    "h5py": {"storage"},
    "click": {"cli"},
    "rich": {"cli"},
    "matplotlib": {"report"},
    "PIL": {"storage.domain_file"},
    "xarray": {"report"},
    "torch.distributed": {"training", "parallel.layouts.dtensor"},
    "pytorch_optimizer": {"training"},
    "torch.utils.tensorboard": {"storage.metrics_file"},
}
FREE = {"numpy", "scipy", "torch"}
# What a communicator of MPI does, and where it may be asked for it: everybody else asks `Ranks`.
CALLS = {
    *("Abort", "Allgather", "Allgatherv", "Allreduce", "Alltoall", "Alltoallv", "Alltoallw"),
    *("Barrier", "Bcast", "Create_cart", "Dup", "Gather", "Gatherv", "Ibarrier", "Irecv", "Isend"),
    *("Recv", "Recv_init", "Reduce", "Scatter", "Scatterv", "Send", "Send_init", "Sendrecv"),
    *("Split", "Split_type", "allreduce", "alltoall", "sendrecv", "Startall", "Waitall"),
}
CALLERS = {"parallel", "cli.launch"}
MODULES = sorted(ROOT.rglob("*.py"))


def name_of(path):
    """Return a module's name below the package, as ``lattice.grid``."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path):
    """List what a module imports, in full, functions' own imports included."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def within(name, places):
    return any(name == place or name.startswith(f"{place}.") for place in places)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_only_what_its_folder_may(path):
    name = name_of(path)
    folder = name.partition(".")[0]
    for imported in imports(path):
        inside = imported.removeprefix("mosaicdd.")
        if inside != imported and folder not in ("cli", "__init__"):
            allowed = {folder, "settings", "tensors"} | ALLOWED.get(folder, set())
            assert within(inside, allowed), f"{name}: {imported}"


@pytest.mark.parametrize("folder", sorted(ALLOWED))
def test_folders_within_one_import_each_other_one_way(folder):
    needs = {}
    for path in (ROOT / folder).glob("*/*.py"):
        known = (name.removeprefix("mosaicdd.").split(".") for name in imports(path))
        inner = {parts[1] for parts in known if parts[0] == folder and len(parts) > 2}
        needs.setdefault(path.parent.name, set()).update(inner - {path.parent.name})
    folders = {name: others & needs.keys() for name, others in needs.items()}
    graphlib.TopologicalSorter(folders).prepare()  # raises CycleError


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_an_outside_library_stays_in_its_home(path):
    name = name_of(path)
    for imported in imports(path):
        if within(imported, {"mosaicdd"}):
            continue
        library = next((home for home in HOMES if within(imported, {home})), None)
        if library:
            assert within(name, HOMES[library]), f"{name}: {imported}"
        else:
            top = imported.partition(".")[0]
            assert top in FREE | set(sys.stdlib_module_names), f"{name}: {imported} has no home"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_messages_are_sent_by_one_folder_only(path):
    if within(name_of(path), CALLERS):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in CALLS, f"line {node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.Attribute):  # nor is a communicator taken, or asked for anything
            known = node.attr == "comm" or ast.unparse(node.value).endswith("comm")
            assert not known, f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_nothing_is_printed_or_executed_and_only_the_command_line_knows_all_ranks(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("print", "eval", "exec"), f"line {node.lineno}"
        names = {getattr(node, "id", None), getattr(node, "attr", None)}
        if name_of(path) != "parallel.launcher":
            assert "COMM_WORLD" not in names, f"line {node.lineno}"
        # What takes all ranks of the job is for programs: the command line, and the probe's own.
        if not name_of(path).startswith(("cli.", "parallel.launcher", "parallel.buffer_probe")):
            assert not names & {"communicator", "abort_all_ranks"}, f"line {node.lineno}"


def test_every_folder_has_a_rule():
    folders = {path.parent.relative_to(ROOT).parts[0] for path in MODULES if path.parent != ROOT}
    assert folders == {*ALLOWED, "cli"}
