"""``mosaicdd plot``: pictures of a solution file."""

import importlib.util
from pathlib import Path

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.compare import own_equation_option, problem_option, reference_option, waiting
from mosaicdd.cli.launch import on_first_rank, overwrite_option
from mosaicdd.cli.options import PLANE
from mosaicdd.cli.show import quiet_option, say
from mosaicdd.report.comparison import reference_field
from mosaicdd.report.sections import sections_of
from mosaicdd.report.stored import read
from mosaicdd.settings import argument
from mosaicdd.storage.atomic import require_replaceable


@click.command()
@click.argument("solution_file", metavar="OUT.h5", type=click.Path())
@click.option(
    "-o",
    "--output",
    metavar="FILE.png",
    type=click.Path(),
    help="Picture to write; of a series in time FILE.gif moves, and FILE-%03d.png is one for each time. "
    "[default: OUT.png beside OUT.h5]",
)
@click.option(
    "--plane",
    "planes",
    type=PLANE,
    multiple=True,
    help="Of a box: the plane to draw, as z=0.5 in domain units, by the nearest nodes. Repeat for others; a film has "
    "the first. [default: the three in the middle, of a film that along z]",
)
@reference_option("auto", ", or 'none'; auto is none for a series or a box")
@own_equation_option()
@problem_option("the first problem")
@overwrite_option()
@quiet_option()
@on_first_rank
def plot(
    solution_file: str,
    output: str | None,
    planes: tuple[tuple[str, float], ...],
    reference: str,
    problem: int | None,
    frame: int | None,
    overwrite: bool,
) -> None:
    """Draw a solution, its estimated error and its convergence; and how it differs from a reference.

    Of a box planes are drawn, and no more than these is read, but where a reference is asked for.
    """
    with bad_input():
        if importlib.util.find_spec("matplotlib") is None:
            raise ValueError("plots need matplotlib: pip install 'mosaicdd[plot]'")
        solution = read(solution_file, problem, frame=frame)
        path = Path(output or Path(solution_file).with_suffix(".png"))
        moving = path.suffix == ".gif" or "%" in path.name
        with argument("plane"):
            sections_of(solution, planes)
        if path.suffix not in (".png", ".pdf", ".svg", ".gif"):
            raise ValueError(f"{path}: the name of a picture ends in .png, .pdf, .svg or .gif")
        if moving:
            from mosaicdd.report.figures import Moving

            if path.suffix != ".gif":
                _require_pattern(path.name)
            film = Moving(solution, planes)
        for picture in film.paths(str(path)) if moving and path.suffix != ".gif" else [path]:
            require_replaceable(picture, overwrite=overwrite)
        against: tuple = ()  # a field and its name
        if (solution.times is not None or len(solution.grid.shape) == 3) and reference == "auto":
            reference = "none"
        if reference != "none" and not moving:
            with waiting(reference, solution, 1, quiet=False) as method:
                against = reference_field(method, solution)
    if moving:
        if path.suffix == ".gif":
            film.save_gif(path)
        else:
            path = film.save_frames(str(path))[-1]
        say(f"wrote {path}: {len(film.times)} pictures")
        return
    from mosaicdd.report.figures import figure
    from mosaicdd.report.pictures import save_figure

    save_figure(figure(solution, *against, planes=planes), path)
    say(f"wrote {path}")


def _require_pattern(name: str) -> None:
    """Check that a number can be put into a name; `ValueError` if not."""
    try:
        if name % 1 != name % 2:
            return
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{name}: a name for many pictures has one number, as in heat-%03d.png")
