"""Whatever the command line and the files: exit code 0, 1 or 2, and for 2 one line on stderr."""

import json

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mosaicdd.schwarz.local_solvers.loading import SHIPPED

# Derandomised: the same cases on every run, so that a failure is one of the change under test.
CASES = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
NUMBER = st.one_of(
    st.integers(-3, 100).map(str),
    st.floats().map(repr),
    st.sampled_from(["1e-6", "0.1", "1e400", "-0", "0x10", "1_0", ""]),
    TEXT,
)
SIDE = st.sampled_from([0, 1, 16, 31, 32, 48, 64, 96, 10**18])
SIZE = st.one_of(st.builds("{}x{}".format, SIDE, SIDE), TEXT)
GP = st.builds(
    "gp:{}".format,
    st.lists(
        st.builds(
            "{}={}".format, st.sampled_from(["seed", "length", "amplitude", "noise", "x"]), NUMBER
        ),
        max_size=3,
    ).map(",".join),
)
EXPRESSION = st.recursive(
    st.sampled_from(["x", "y", "pi", "2", "0", "1e308", "True", "'a'", "z", "", "1j", "[1]"]),
    lambda inner: st.one_of(
        st.builds(
            "({}{}{})".format, inner, st.sampled_from(["+", "*", "/", "**", "<", "&", ","]), inner
        ),
        st.builds("{}({})".format, st.sampled_from(["sin", "log", "sqrt", "where", "eval"]), inner),
    ),
    max_leaves=4,
).map("expr:{}".format)
NAME = st.sampled_from(["a", "b", "c", "f", "k", "bx", "axy", "u", "left", "hole1", "outline", ""])
VALUE = st.one_of(NUMBER, EXPRESSION, st.sampled_from(["FILE", "GOOD"]))
CONDITION = st.one_of(
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["neumann", "robin", "dirichlet", "periodic", ""]),
        st.sampled_from([":", "", ",", "="]),
        VALUE,
    ),
    st.builds("robin:{},{}".format, NUMBER, VALUE),
)
SIDE_NAME = st.sampled_from(["left", "right", "bottom", "top", "outline", "hole1", "middle", ""])
ENDS = st.builds("{}:{}".format, st.integers(-1, 70), st.integers(-1, 70))
DISTANCE = st.builds(
    "expr:{}-hypot(x-{},y-{})".format,
    st.sampled_from(["0.3", "0.01", "0", "5"]),
    st.sampled_from(["0.5", "0", "9"]),
    st.sampled_from(["0.4", "1e9"]),
)
# Those that go together are drawn together: alone, most are refused at the first check.
GROUPS = [
    {"--pde": st.sampled_from(["poisson", "diffusion", "screened-poisson", "heat", "burgers"])},
    {"--field": st.builds("{}={}".format, NAME, VALUE)},
    {"--pde": st.just("diffusion"), "--field": st.builds("a={}".format, VALUE)},
    {"--side": st.builds("{}={}".format, SIDE_NAME, CONDITION)},
    {"--domain": st.one_of(DISTANCE, EXPRESSION, TEXT, st.sampled_from(["FILE", "GOOD"]))},
    {"--domain": DISTANCE, "--side": st.builds("hole1={}".format, CONDITION)},
    {"--window": st.one_of(st.builds("{},{}".format, ENDS, ENDS), TEXT)},
    {"--points": st.one_of(st.sampled_from(["FILE", "GOOD", "POINTS"]), TEXT)},
    {
        "--pde": st.just("heat"),
        "--steps": st.one_of(st.integers(-1, 3).map(str), TEXT),
        "--dt": st.one_of(st.just("0.1"), NUMBER),
    },
]
OPTIONS = {
    "--boundary": st.one_of(GP, EXPRESSION, TEXT, st.sampled_from(["FILE", "BOUNDARY"])),
    "--local-solver": st.one_of(st.sampled_from(["laplace", "exact", "FILE", "MODEL"]), TEXT),
    "--pde": st.one_of(st.just("laplace"), TEXT),
    "--levels": st.sampled_from(["1", "2", "3"]),
    "--sweep": st.sampled_from(["additive", "phases", "none"]),
    "--sync": st.sampled_from(["iteration", "phase"]),
    "--accelerate": st.sampled_from(["none", "chebyshev", "gmres", "anderson"]),
    "--certify": NUMBER,
    "--rtol": NUMBER,
    "--until-mae": NUMBER,
    "--reference": st.sampled_from(["dst", "pyamg", "x"]),
    "--batch-subdomains": NUMBER,
    "--checkpoint-minutes": NUMBER,
    "--dims": SIZE,
    "--device": st.sampled_from(["cpu", "tpu"]),
    "--dtype": st.sampled_from(["float32", "float64", "int"]),
    "--out-of-range": st.sampled_from(["network", "exact", "x"]),
}
FLAGS = ("--json", "--resume", "--nonsense", "-h")
VALID = {"--boundary": "gp:seed=1", "--local-solver": "exact", "--levels": "2", "--rtol": "1e-6"}


@st.composite
def command_lines(draw):
    """Draw options for ``solve``: a few at random, and some that go together, on top of valid ones."""
    values = dict(VALID, **{"--cells": "64x48", "--max-iterations": "30"})
    if draw(st.integers(0, 3)) == 0:
        values["--cells"] = draw(SIZE)
    for name in draw(st.lists(st.sampled_from(sorted(OPTIONS)), max_size=3, unique=True)):
        values[name] = draw(OPTIONS[name])
    if draw(st.booleans()):
        values |= {name: draw(value) for name, value in draw(st.sampled_from(GROUPS)).items()}
    flags = draw(st.sampled_from([(), *((flag,) for flag in FLAGS)]))
    return [*flags, *(f"{name}={value}" for name, value in values.items())]


@pytest.fixture
def examples(pytestconfig):
    """Return a function of how many cases a night draws: settings of them, of a third by day."""
    share = 1 if pytestconfig.getoption("nightly") else 3
    return lambda night: settings(max_examples=night // share, **CASES)


@pytest.fixture
def files(tmp_path, mosaicdd):
    """Return a folder with a solution, a boundary file and a model."""
    assert mosaicdd("solve", "-o", tmp_path / "good.h5", "--cells", "64x48").code == 0
    (tmp_path / "model.h5").write_bytes((SHIPPED / "laplace.h5").read_bytes())
    np.savetxt(tmp_path / "points.csv", [[0.5, 0.5], [0.1, 9.0]], delimiter=",")
    return tmp_path


def ends_well(ended):
    """Check the contract of exit codes and output."""
    assert ended.code in (0, 1, 2)
    assert "Traceback" not in ended.out + ended.err
    if ended.code == 2:
        assert ended.out == ""
        assert ended.err.startswith("Error: ")
        assert len(ended.err.splitlines()) == 1, ended.err
    elif ended.out.startswith("{"):
        json.loads(ended.out)


@pytest.mark.limit(120)
def test_any_command_line_of_solve_ends_well(files, mosaicdd, examples):
    places = {"FILE": "nothing.h5", "BOUNDARY": "good.h5", "MODEL": "model.h5"}
    places |= {"GOOD": "good.h5", "POINTS": "points.csv"}

    @examples(160)
    @given(command_lines())
    def check(options):
        for name, file in places.items():
            options = [option.replace(f"={name}", f"={files / file}") for option in options]
        ends_well(mosaicdd("solve", "-o", files / "out.h5", *options))

    check()


@pytest.mark.limit(120)
def test_compare_with_any_reference_ends_well(files, mosaicdd, examples):
    reference = st.one_of(EXPRESSION, TEXT, st.sampled_from(["dst", "pyamg", "GOOD"]))

    @examples(50)
    @given(reference, st.lists(st.sampled_from(FLAGS), max_size=1))
    def check(spec, flags):
        spec = spec.replace("GOOD", str(files / "good.h5"))
        ends_well(mosaicdd("compare", files / "good.h5", f"--reference={spec}", *flags))

    check()


ARRAYS = st.one_of(
    st.sampled_from([np.nan, np.inf, 0.0, 1e300]).map(lambda value: np.full((49, 65), value)),
    st.builds(np.zeros, st.tuples(st.integers(0, 3), st.integers(0, 70))),
    st.sampled_from([np.zeros((49, 65), "int8"), np.zeros((49, 65), complex), np.float64(1.0)]),
    st.just("text"),
    st.none(),
)


@pytest.mark.limit(120)
def test_any_hdf5_file_in_place_of_another_ends_well(files, mosaicdd, examples):
    good = (files / "good.h5").read_bytes()
    names = ["solution", "boundary/bottom", "boundary/left", "history/update", "history"]
    attributes = ["kind", "format_version", "spacing", "seconds", "pde", "card"]
    values = st.one_of(TEXT, st.floats(), st.just([1.0, 2.0]), st.sampled_from([1, 2, 10**9]))

    @examples(50)
    @given(
        st.dictionaries(st.sampled_from(names), ARRAYS, max_size=2),
        st.dictionaries(st.sampled_from(attributes), values, max_size=2),
        st.booleans(),
    )
    def check(arrays, attrs, old):
        path = files / "bad.h5"
        path.write_bytes(good)
        with h5py.File(path, "r+") as file:
            file.attrs["format_version"] = 1 if old else 2  # 1: without a seal
            for name in sorted(arrays, reverse=True):  # what is below a group comes before it
                if name in file:
                    del file[name]
                if arrays[name] is not None:
                    file[name] = arrays[name]
            for name, value in attrs.items():
                file.attrs[name] = value
        ends_well(mosaicdd("compare", path, "--reference", "dst", "--json"))
        for option in ("--boundary", "--local-solver"):
            ends_well(mosaicdd(*f"solve --cells 64x48 {option} {path} -o {files}/out.h5".split()))

    check()


@pytest.mark.limit(120)
def test_any_bytes_in_place_of_a_file_end_well(files, mosaicdd, examples):
    starts = [(files / name).read_bytes() for name in ("good.h5", "model.h5")]

    @examples(30)
    @given(st.sampled_from([*starts, b""]), st.integers(0, 40_000), st.binary(max_size=64))
    def check(start, length, rest):
        path = files / "bad.h5"
        path.write_bytes(start[:length] + rest)
        ends_well(mosaicdd("compare", path, "--reference", "dst"))
        for option in ("--boundary", "--local-solver"):
            ends_well(mosaicdd(*f"solve --cells 64x48 {option} {path} -o {files}/out.h5".split()))

    check()
