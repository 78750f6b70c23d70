"""The dependency rules of the architecture, read off the imports."""

import ast
import graphlib
import sys

import pytest
from package_trees import PACKAGE, nodes, trees

# The order of the folders: each imports only itself and those before it, so there are no circles. The modules beside them
# (`axes`, `settings`, `tensors`, ...) come first; ``cli`` and the face of the library may import everything.
ORDER = (
    *("parallel", "grid", "problems", "discretisation", "quantities", "networks", "storage"),
    *("solvers", "schwarz", "report", "solution", "planning", "homogenisation", "time"),
    *("gradients", "training"),
)
# What only some may import: subdomains are known to the Schwarz method, its networks, their files and training alone.
ONLY = {
    "schwarz": {"schwarz", "solution", "planning", "training", "cli"},
    "networks": {"networks", "schwarz", "storage", "solution", "planning", "training", "cli"},
}
# Outside library: the folders or modules it may be imported in.
HOMES = {
    "mpi4py": {"parallel"},
    "pyamg": {"solvers.references"},
    "h5py": {"storage"},
    "llvmlite": {"solvers.multigrid.kernels"},
    "numba": {"solvers.multigrid.kernels", "solvers.multigrid.vector_operations"},
    "click": {"cli"},
    "rich": {"report"},
    "matplotlib": {"report"},
    "PIL": {"storage.domain_file", "storage.raster", "report"},
    "xarray": {"report", "storage.raster"},
    "IPython": {"report"},
    "jax": {"gradients.in_jax"},
    "torch.distributed": {"training"},
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


def imports():
    """List the modules' imports, ``(module, imported name in full)``, functions' own included."""
    listed = []
    for name, node in nodes():
        if isinstance(node, ast.Import):
            listed += [(name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: a relative import"
            listed += [(name, f"{node.module}.{alias.name}") for alias in node.names]
    return listed


def inside():
    """List those of the package's own modules."""
    return [
        (name, imported.removeprefix("mosaicdd."))
        for name, imported in imports()
        if imported.startswith("mosaicdd.")
    ]


def within(name, places):
    return any(name == place or name.startswith(f"{place}.") for place in places)


def test_folders_import_only_those_before_them():
    base = {name for name in trees() if not (PACKAGE / name.partition(".")[0]).is_dir()}

    def allowed(name):
        folder = name.partition(".")[0]
        return base if folder in base else {*base, *ORDER[: ORDER.index(folder) + 1]}

    assert [
        f"{name}: {imported}"
        for name, imported in inside()
        if not within(name, {"cli", "__init__"}) and not within(imported, allowed(name))
    ] == []


@pytest.mark.parametrize("folder", sorted(ONLY))
def test_subdomains_are_known_to_few(folder):
    assert [
        f"{name}: {imported}"
        for name, imported in inside()
        if within(imported, {folder}) and not within(name, {*ONLY[folder], "__init__"})
    ] == []


@pytest.mark.parametrize("folder", ORDER)
def test_folders_within_one_import_each_other_one_way(folder):
    needs = {path.name: set() for path in (PACKAGE / folder).iterdir() if path.is_dir()}
    for ends in inside():
        user, used = ([*end.split("."), "", ""][:2] for end in ends)
        if user[0] == used[0] == folder and {user[1], used[1]} <= needs.keys():
            needs[user[1]].add(used[1])
    needs = {user: used - {user} for user, used in needs.items()}
    graphlib.TopologicalSorter(needs).prepare()  # raises CycleError


def test_an_outside_library_stays_in_its_home():
    def at_home(name, imported):
        library = next((home for home in HOMES if within(imported, {home})), None)
        if library:
            return within(name, HOMES[library])
        return imported.partition(".")[0] in FREE | {"mosaicdd"} | set(sys.stdlib_module_names)

    assert [
        f"{name}: {imported}" for name, imported in imports() if not at_home(name, imported)
    ] == []


def test_messages_are_sent_by_one_folder_only():
    def sends(node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return node.func.attr in CALLS
        if isinstance(node, ast.Attribute):  # nor is a communicator taken, or asked for anything
            return node.attr == "comm" or ast.unparse(node.value).endswith("comm")
        return False

    assert [
        f"{name}, line {node.lineno}: {ast.unparse(node)}"
        for name, node in nodes()
        if not within(name, CALLERS) and sends(node)
    ] == []


def test_nothing_is_printed_or_executed():
    assert [
        f"{name}, line {node.lineno}: {node.func.id}"
        for name, node in nodes()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("print", "eval", "exec")
    ] == []


def test_only_the_command_line_knows_all_ranks():
    # What takes all ranks of the job is for programs: the command line, the probe's own, and what ends one
    # where nothing catches its exception.
    programs = {"cli", "parallel.launcher", "parallel.halo"}
    for name, node in nodes():
        names = {getattr(node, "id", None), getattr(node, "attr", None)}
        assert name == "parallel.launcher" or "COMM_WORLD" not in names, f"{name}: {node.lineno}"
        taken = names & {"communicator", "abort_all_ranks"}
        assert within(name, programs) or not taken, f"{name}, line {node.lineno}: {taken}"


def test_every_folder_has_a_rule():
    folders = {
        name.partition(".")[0] for name in trees() if (PACKAGE / name.partition(".")[0]).is_dir()
    }
    assert folders == {*ORDER, "cli"}
