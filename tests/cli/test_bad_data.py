"""Data that no equation has: one line with the numbers and the way out, exit code 2, on all ranks, nothing written."""

import numpy as np
import pytest
import torch

import mosaicdd as m

N = 64
AT = np.arange((N + 1) ** 2).reshape(N + 1, N + 1) == 1000  # node (15, 25)


@pytest.fixture
def files(by_one, common_path):
    """Return the folder of fields that are wrong at one place."""

    def write():
        np.save(common_path / "axy.npy", np.where(AT, 3.0, 0.1))
        np.save(common_path / "s.npy", np.where(AT, 0.0, 1.0))
        cells = np.ones((N, N))
        cells[15, 20] = np.nan
        rows = "\n".join(
            " ".join("-99" if np.isnan(v) else "1" for v in row) for row in cells[::-1]
        )
        head = f"ncols {N}\nnrows {N}\nxllcorner 0\nyllcorner 0\ncellsize 0.125\nNODATA_value -99\n"
        (common_path / "a.asc").write_text(head + rows + "\n")

    by_one(write)
    return common_path


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize(
    ("pde", "options", "message"),
    [
        ("anisotropic-diffusion", ["--field", "axx=1", "--field", "ayy=1", "--field", "axy={}/axy.npy"],
         "the diffusion tensor must be positive definite everywhere (axx > 0, ayy > 0, axy^2 < axx ayy); in the cell (14, 24) (y, x) axx is 1, axy 3, ayy 1"),
        ("poisson", ["--well", "9,1=1"], "the well at (9, 1) is outside of the domain, which goes from (0, 0) to (8, 8): move it"),
        ("diffusion", ["--domain", "expr:hypot(x-4,y-4)-3", "--well", "0.2,0.2=1"],
         "the well at (0.2, 0.2) is outside of the domain's shape, or less than two cells of 0.125 from its outline: move it"),
        ("diffusion", ["--domain", "expr:1-hypot(x-4,y-4)", "--foil", "2,4.0625 6,4.0625=resistance:1"],
         "a foil goes through a hole, or out of the domain, near (3.25, 4): let it end at the outline"),
        ("heat", ["--field", "s=0", "--steps", "2", "--dt", "0.1"], "heat needs s > 0, got s 0: where nothing is stored take diffusion"),
        ("heat", ["--field", "s={}/s.npy", "--steps", "2", "--dt", "0.1"],
         "the field s must be positive everywhere; 1 of the 4225 values given are not, the first is 0 at node (15, 25)"),
        ("diffusion", ["--field", "a={}/a.asc"],
         "the field a has 1 of 4096 values that are not finite, the first at cell (15, 20): give values there, or leave the place out"),
    ],
    ids=["tensor", "well", "well-in-shape", "foil", "no-capacity", "capacity-somewhere", "raster"],
)  # fmt: skip
def test_it_is_refused_in_one_line(mosaicdd, files, pde, options, message):
    out = files / "bad.h5"
    ended = mosaicdd(
        "solve", "-o", out, "--cells", f"{N}x{N}", "--spacing", "0.125", "--boundary", "0", "--pde", pde,
        *(option.format(files) for option in options),
    )  # fmt: skip
    assert ended.code == 2
    lines = ended.err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert lines or m.world().rank
    assert not list(files.glob("bad*"))


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize(
    ("wrt", "given", "message"),
    [
        (("k",), {}, "unknown derivative by 'k'; known: a, c, f, left"),
        (("a",), {"a": torch.ones(3, 3)}, r"a has the shape \(3, 3\), the problem takes .* or \(64, 64\) or \(65, 65\)"),
        (("a",), {"a": torch.ones(N + 1, N + 1, device="meta")}, "a is on meta, solves that are differentiated on the CPU"),
    ],
    ids=["no-field", "shape", "device"],
)  # fmt: skip
def test_what_cannot_be_differentiated_is_refused(comm, wrt, given, message):
    domain = m.Domain((N, N), 0.125)
    problem = m.Problem(domain, "diffusion", {"a": np.ones((N + 1, N + 1))}, m.Dirichlet("x"))
    with pytest.raises(ValueError, match=message):
        m.differentiable(problem, wrt=wrt, ranks=comm)(**given)
