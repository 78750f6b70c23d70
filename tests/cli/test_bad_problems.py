"""Problems that ``solve`` refuses: fields, domains, times and places; one line, on all ranks, nothing written."""

import numpy as np
import pytest
from tables import table

pytestmark = pytest.mark.ranks(1, 2)
SOLVE = "solve -o out.h5"
ZERO = f"{SOLVE} --cells 64x64 --boundary 0"


def medium(change):
    """Return what writes coefficients of 160 x 128 cells, changed where they are largest."""
    a = np.random.default_rng(0).uniform(1, 2, (128, 160))
    return change(a) if callable(change) else np.where(a == a.max(), change, a)


def parts():
    """Return a mask of a slab, and of a part beside it that nothing touches."""
    mask = np.zeros((16, 20, 24), bool)
    mask[:4], mask[6:8, 5:7, 4:6] = True, True
    return mask


def short(path):
    np.save(path, np.ones((128, 160)))
    path.write_bytes(path.read_bytes()[:1000])


NODE = np.arange(65 * 65).reshape(65, 65) == 1000  # (15, 25)
CELL = "\n".join(" ".join("-99" if (i, j) == (15, 20) else "1" for j in range(64)) for i in range(63, -1, -1))  # fmt: skip
FILES = {
    "cut.npy": medium(lambda a: a[:50]),
    "nan.npy": medium(np.nan),
    "zero.npy": medium(0.0),
    "minus.npy": medium(-2.0),
    "complex.npy": medium(lambda a: a.astype(complex)),
    "short.npy": short,
    "bx.npy": np.where(np.arange(129 * 161).reshape(129, 161) == 20_000, np.nan, 1.0),
    "axy.npy": np.where(NODE, 3.0, 0.1),
    "s.npy": np.where(NODE, 0.0, 1.0),
    "a.asc": f"ncols 64\nnrows 64\nxllcorner 0\nyllcorner 0\ncellsize 0.125\nNODATA_value -99\n{CELL}\n",
    "outside.txt": "0.5 0.5\n0.5 2.1\n3.5 1\n",
    "within.txt": "2.5 0.5\n",
    "no-number.txt": "0.5 nan\n",
    "one.txt": "0.5\n",
    "three.txt": "0.5 0.5 0.5\n",
    "words.txt": "a b\n",
    "empty.txt": "",
    "crossing.json": '{"outer": [[0,0],[1,1],[1,0],[0,1]]}',
    "other.json": "[1]",
    "off.txt": "0.6 0.25 1\n0.6 0.5 1",
    "turned.npy": np.ones((97, 129)),
    "backwards.npy": np.ones((24, 20, 16)),
    "voxels.npy": np.ones((16, 20, 24)),
    "face.npy": np.ones((21, 17)),
    "parts.npy": parts(),
}


@table(
    ZERO,
    ("--field c=1 --field c=2", "'--field': c is given 2 times"),
    ("--field c=3", "laplace has no field 'c'"),
    ("--field c", "'c' is not of the form NAME=SPEC"),
    ("--field f=nothing.npy", "--field: nothing.npy: the file of field values is missing"),
    ("--field f=x*y", "--field: 'x*y' is no file; a formula is written 'expr:x*y'"),
    ("--pde poisson --field f=nan", "the field f must be finite, got nan"),
    ("--pde poisson --field f=lognorml:seed=0", "did you mean"),
    ("--pde telegraph", "unknown pde 'telegraph'; known: advection-diffusion, "),
    ("--pde posson", "unknown pde 'posson' (did you mean 'poisson'?)"),
    ("--pde nothing.py:NAME", "nothing.py"),
    ("--pde anisotropic-diffusion --field axxx=1", "has no field 'axxx' (did you mean 'axx'?)"),
    ("--pde diffusion --field a=expr:1+t", "the field a: expression '1+t': t is not allowed (the time: fields and values on sides may"),
    ("--spacing 0", "--spacing: the grid spacing must be positive and finite, got 0.0"),
    ("--spacing -1", "spacing"),
    ("--pde diffusion --well 800,700", "X,Y[,Z]=STRENGTH, as in 300,450=0.02"),
    ("--pde diffusion --hold river", "[NAME:]PLACE=SPEC, as in 'river: 0,1"),
    ("--pde diffusion --hold 'river 0,1 2,1=3'", "a name stands before a colon"),
)  # fmt: skip
def test_equations_and_fields(words, message, refuse):
    refuse(words, message)


@table(
    f"{ZERO} --spacing 0.125 --pde",
    ("anisotropic-diffusion --field axx=1 --field ayy=1 --field axy=axy.npy",
     "the diffusion tensor must be positive definite everywhere (axx > 0, ayy > 0, axy^2 < axx ayy); in the cell (14, 24) (y, x) axx is 1, axy 3, ayy 1"),
    ("poisson --well 9,1=1", "the well at (9, 1) is outside of the domain, which goes from (0, 0) to (8, 8): move it"),
    ("diffusion --domain 'expr:hypot(x-4,y-4)-3' --well 0.2,0.2=1",
     "the well at (0.2, 0.2) is outside of the domain's shape, or less than two cells of 0.125 from its outline: move it"),
    ("diffusion --domain 'expr:1-hypot(x-4,y-4)' --foil '2,4.0625 6,4.0625=resistance:1'",
     "a foil goes through a hole, or out of the domain, near (3.25, 4): let it end at the outline"),
    ("heat --field s=0 --steps 2 --dt 0.1", "heat needs s > 0, got s 0: where nothing is stored take diffusion"),
    ("heat --field s=s.npy --steps 2 --dt 0.1", "the field s must be positive everywhere; 1 of the 4225 values given are not, the first is 0 at node (15, 25)"),
    ("diffusion --field a=a.asc", "the field a has 1 of 4096 values that are not finite, the first at cell (15, 20): give values there, or leave the place out"),
)  # fmt: skip
def test_data_that_no_equation_has(words, message, refuse):
    refuse(words, message, FILES)


@table(
    f"{SOLVE} --cells 160x128 --boundary gp:seed=0 --pde",
    ("diffusion --field a=cut.npy", "the field a has the shape (50, 160), the grid has (129, 161) nodes"),
    ("diffusion --field a=nan.npy", "not finite"),
    ("diffusion --field a=zero.npy", "the field a must be positive everywhere"),
    ("diffusion --field a=minus.npy", "the first is -2 at"),
    ("diffusion --field a=complex.npy", "must hold real numbers, got complex128"),
    ("diffusion --field a=short.npy", "short.npy"),
    ("diffusion --field a=lognormal:contrast=0", "lognormal:contrast must be in [1, 1e+12), got 0"),
    ("diffusion --field a=2 --field axx=expr:1+x", "takes the field a, or axx and ayy instead, got a and axx"),
    ("advection-diffusion --field bx=bx.npy --field by=expr:x", "the field bx has"),
    ("quasilinear-diffusion --field k=expr:1+v", "the field k: expression '1+v': v is not allowed; known: u, pi,"),
    ("quasilinear-diffusion --field k=expr:u-2", "a coefficient that depends on the solution is not positive there"),
    ("quasilinear-diffusion --field a=-1", "quasilinear-diffusion needs a > 0, got -1"),
    ("quasilinear-diffusion --field b=1", "quasilinear-diffusion has no field 'b'; it has: a, c, k, f"),
    ("quasilinear-diffusion --field a=expr:x-1", "the field a must be positive everywhere"),
    ("quasilinear-diffusion --field a=nan.npy", "1 of ... not finite"),
    ("p-laplace --field p=0.5", "p-laplace needs p >= 1, got 0.5"),
)  # fmt: skip
def test_coefficients(words, message, refuse):
    refuse(words, message, FILES)


@table(
    f"{SOLVE} --pde heat --cells 64x64 --boundary 0",
    ("--steps 3", "Error: --dt must be given for an equation in time"),
    ("", "Error: --steps must be given for an equation in time"),
    ("--steps 3 --dt -1", "Error: --dt must be a number > 0, got -1.0"),
    ("--steps 3 --dt 1 --points places.txt", "Error: --points: not for an equation in time"),
    ("--steps 3 --dt 1 --window 0:2,0:1", "Error: --window: x from 0 to 2 reaches beyond the domain, 0 to 1"),
    ("--steps 3 --dt 1 --initial expr:t", "Error: --initial: the field initial: expression 't': t is not allowed (the time: "),
    ("--steps 3 --dt 1 --dtype float32", "Error: --dtype float32 is not for"),
    ("--steps 3 --dt 1 --resume", "Error: --resume: "),
)  # fmt: skip
def test_time(words, message, refuse):
    refuse(words, message)


@table(
    f"{SOLVE} --boundary gp:seed=0 --cells 192x128",
    ("--window 0:4,0:1", "--window ... x from 0 to 4 ... 0 to 3"),
    ("--window 1:1,0:1", "--window ... holds nothing"),
    ("--window 1,2", "--window ... not of the form X0:X1,Y0:Y1"),
    ("--window 0:nan,0:1", "--window ... not of the form"),
    ("--keep interface --window 0:1,0:1", "--keep interface ... --window"),
    ("--keep interface --shards", "--keep interface ... --shards"),
    ("--points outside.txt", "--points ... 2 of 3 points ... 0 to 3 along x ... 0 to 2 along y ... number 2, (0.5, 2.1)"),
    ("--points no-number.txt", "--points ... 1 of 1 points"),
    *((f"--points {name}.txt", "--points ... rows of two numbers") for name in ("one", "three", "words")),
    ("--points empty.txt", "--points ... holds no points"),
    ("--points gone.txt", "--points ... missing"),
    ("--local-solver exact --points within.txt --window 0:1,0:1", "outside of the window that the field is known in"),
    ("--local-solver exact --points within.txt --keep interface", "the field is left out by --keep interface"),
)  # fmt: skip
def test_what_is_written(words, message, refuse):
    refuse(words, message, FILES)


DISK = "--domain 'expr:hypot(x-0.6,y-0.8)-0.5501'"


@table(
    f"{SOLVE} --cells 96x128 --spacing 0.0125 --boundary 0",
    ("--domain crossing.json", "crossing.json: the polygon outer crosses itself"),
    ("--domain other.json", "other.json: polygons are {'outer'"),
    (f"{DISK} --side outline=dirichlet:off.txt", "1 of 2 points are off the outline by more than 0.025"),
    ("--domain turned.npy", "has the shape (97, 129), a mask of the domain has (129, 97) nodes or (128, 96) cells: give --cells 129x97"),
    ("--domain no.npy", "no.npy: the file of the domain"),
    ("--domain disk", "--domain: a domain is 'expr:...'"),
    ("--domain 'expr:norm(x,y)'", "--domain: expression 'norm(x,y)'"),
    (f"{DISK} --local-solver laplace", "the domain is no rectangle here: take 'exact'"),
    ("--domain 'expr:abs(x-0.6)*(-1)+0.3' --side outline=neumann:0 --side left=neumann:0 --side top=neumann:0 --side bottom=neumann:0",
     "part 1 of the 2 parts of the domain"),
)  # fmt: skip
def test_domains(words, message, refuse):
    refuse(words, message, FILES)


@table(
    f"{SOLVE} --cells 24x20x16 --spacing 0.05",
    ("--boundary gp:seed=0", "--boundary: gp is a random curve around a rectangle"),
    ("--boundary 0 --window 0:1,0:1", "--window: 2 pairs of ends are given, the domain has 3 axes"),
    ("--boundary 0 --dims 1x1", "--dims: 1x1 are ranks along 2 axes, the domain has 3"),
    ("--boundary 0 --domain expr:x+1", "there are none inside the domain"),
    ("--boundary 0 --domain face.npy", "has the shape (21, 17), a mask of the domain has (16, 20, 24) cells"),
    ("--boundary 0 --domain backwards.npy",
     "has the shape (24, 20, 16), a mask of the domain has (16, 20, 24) cells: its axes are in the order (x, y, z), give"),
    ("--boundary 0 --domain parts.npy --side outline=neumann:0",
     "part 2 of the 2 parts of the domain, 8 voxels from (0.2, 0.25, 0.3) on, has no given value and no exchange"),
    ("--boundary 0 --local-solver laplace", "--local-solver: laplace is of squares"),
    ("--boundary 0 --keep interface", "--keep interface: exact solves on the whole grid"),
    ("--boundary expr:w", "known: x, y, z, pi"),
    ("--boundary 0 --pde diffusion --field a=backwards.npy",
     "the grid has (17, 21, 25) nodes (nz + 1, ny + 1, nx + 1): its axes are in the order (x, y, z), give its transpose"),
    ("--boundary 0 --pde advection-diffusion --field bx=voxels.npy", "(nz + 1, ny + 1, nx + 1), and bx is given there, not per cell"),
    ("--boundary 0 --side left=dirichlet:face.npy", "the side left has values of the shape (21, 17), it has (17, 21) nodes along z and y"),
    ("--boundary 0 --cells 40000x40000x20000", "use more machines or fewer cells, of this shape "),
)  # fmt: skip
def test_space(words, message, refuse):
    refuse(words, message, FILES)
