"""``mosaicdd solve`` with ``--steps``: an equation in time."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.options import collected, option_given
from mosaicdd.cli.show import say, stage
from mosaicdd.parallel.launcher import listening
from mosaicdd.schwarz.settings import Output, SolveSettings
from mosaicdd.storage.json_line import json_line
from mosaicdd.time.settings import RTOL, TimeSettings
from mosaicdd.unsupported import Unsupported

if TYPE_CHECKING:
    from mosaicdd.parallel.ranks import Ranks
    from mosaicdd.problems.problem import Problem
    from mosaicdd.storage.field_file import FieldFile
    from mosaicdd.storage.solution_file import StoredField

_NOT_IN_TIME = ("points", "trace")


def time_settings(ctx: click.Context, problem: "Problem") -> TimeSettings | None:
    """Return the settings of the steps, sound and all of them; None if nothing is solved in time."""
    asked = [name for name in ("steps", "dt", "tolerance") if option_given(ctx, name) is not None]
    if ctx.params["initial"] is not None:
        asked.append("initial")
    if not asked and problem.equation.steady is None:
        return None
    time = collected(ctx, TimeSettings)
    others = [name for name in _NOT_IN_TIME if ctx.params[name] is not None]
    if ctx.params["keep"] == "interface":
        others.append("keep")
    for name in others:
        raise Unsupported(f"{name}: not for an equation in time; leave it out")
    return time


def solve_in_time(
    ctx: click.Context,
    ranks: "Ranks",
    problem: "Problem",
    time: TimeSettings,
    initial: "float | str | FieldFile | StoredField",
    settings: SolveSettings,
    output: Output,
    *,
    as_json: bool,
) -> int:
    """March, write the series, and say how it went; return the exit code."""
    from mosaicdd.time.march import March

    if option_given(ctx, "rtol") is None:
        settings = settings.with_changes(rtol=RTOL)
    with bad_input():
        march = March(
            problem,
            initial,
            time,
            ctx.params["local_solver"],
            ranks=ranks,
            settings=settings,
            window=ctx.params["window"],
            output=output,
        )
    quiet = as_json or not ranks.is_root
    notice = f"interrupted: finishing this step, writing {output.path} and {march.checkpoint}"
    with stage("stepping", quiet=quiet) as show, listening(march, "" if quiet else notice):
        series = march(show)
    march.close()
    if ranks.is_root:
        text = json_line(series.report)
        if not as_json:
            text = _said(series.report, output.path, march.checkpoint, ctx.params["boundary"])
        say(text, asked=as_json or not series.converged)
    return 0 if series.converged else 1


def _said(report: dict, output: object, checkpoint: Path | None, boundary: str | None) -> str:
    """Say in a few lines what was solved, how it ended, how good it is, and where it is."""
    cells, dims = ("x".join(map(str, report[name])) for name in ("grid", "dims"))
    several = "" if report["ranks"] == 1 else "s"
    steps, shortest, longest = (report[n] for n in ("steps", "shortest_step", "longest_step"))
    where = f"{report['ranks']} rank{several} ({dims})"
    how = f"{report['local_solver']} and {report['method']}"
    what = f"{report['pde']} on {cells} cells by {how}, {where}, {report['dtype']} on {report['device']}"
    lines = [what if boundary is None else f"{what}, boundary {boundary}"]
    taken = steps
    if each := report.get("problems"):
        taken = sum(row["steps"] for row in each)
        counts = Counter(row["status"] for row in each)
        ended = ", ".join(f"{count} {status}" for status, count in counts.items())
        lines.append(
            f"{len(each)} problems, one after another: {ended}; of all together, or the largest:"
        )
    if steps:
        each = (
            f"of {longest:g}" if shortest == longest else f"from {shortest:g} to {longest:g} long"
        )
        known = "unknown" if report["time_error"] is None else f"{report['time_error']:.1e}"
        lines.append(
            f"{report['status']} after {steps} steps {each}, at time {report['time']:g}: "
            f"{report['iterations'] / taken:.1f} iterations per step; estimated errors of all steps "
            f"{known}, of their solves {report['solver_error']:.1e}"
        )
    else:
        lines.append(f"{report['status']} in the first step")
    if report["failure"]:
        lines.append(report["failure"])
    seconds = report["seconds"]
    parts = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items() if name != "total")
    lines.append(
        f"{seconds['total']:.2f} s ({parts}), {report['peak_memory_bytes'] / 2**20:.0f} MiB"
    )
    if report["status"] == "interrupted":
        lines.append(
            f"interrupted; the last values are kept in {checkpoint}: the same command with --resume "
            "goes on from there"
        )
    return "\n".join([*lines, f"wrote {output}: {report['frames']} times"])
