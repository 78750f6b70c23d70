"""``mosaicdd quantities``: what people read off a solution file."""

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.compare import own_equation_option, problem_option
from mosaicdd.cli.launch import on_first_rank
from mosaicdd.quantities.quantities import Extreme
from mosaicdd.report.stored import StoredSolution, read
from mosaicdd.storage.metrics_file import json_line
from mosaicdd.unsupported import Unsupported


@click.command()
@click.argument("solution_file", metavar="OUT.h5", type=click.Path())
@click.option(
    "--flow",
    "flows",
    multiple=True,
    metavar="NAME",
    help="Also what flows out through a part of a side, as left[0:0.5]; may be given several times.",
)
@own_equation_option()
@problem_option("the first problem")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@on_first_rank
def quantities(
    solution_file: str,
    flows: tuple[str, ...],
    problem: int | None,
    frame: int | None,
    as_json: bool,
) -> None:
    """Print the largest and smallest value and where they are, mean, integral, energy, and the balance of a solution.

    The balance is what flows out through each side and outline, what sources give, what a reaction consumes, and what
    is left over, which is zero of an exact solution. It is known of linear equations; of a series it is that of all
    steps up to the field, with what is stored.
    """
    with bad_input():
        report = _report(read(solution_file, problem, frame=frame), flows)
    click.echo(json_line(report) if as_json else _for_people(report))


def _report(solution: StoredSolution, flows: tuple[str, ...]) -> dict:
    """Return what ``--json`` prints."""
    report: dict = {
        "max": _extreme(solution.max()),
        "min": _extreme(solution.min()),
        "mean": solution.mean(),
        "integral": solution.integral(),
    }
    if solution.time is not None:
        report["time"] = solution.time
    try:
        report["balance"] = solution.balance().described()
    except Unsupported as why:
        if flows:
            raise
        return report | {"balance": None, "why_no_balance": str(why)}
    report["parts"] = {name: solution.flow(name) for name in flows}
    try:
        report["energy"] = solution.energy()
    except Unsupported:
        report["energy"] = None
    return report


def _extreme(extreme: Extreme) -> dict:
    return {"value": extreme.value, "place": list(extreme.place)}


def _for_people(report: dict) -> str:
    lines = []
    for name, title in (("max", "largest"), ("min", "smallest")):
        place = ", ".join(f"{x:.10g}" for x in report[name]["place"])
        lines.append(f"{title} value {report[name]['value']:.6g} at ({place})")
    lines.append(f"mean {report['mean']:.6g}, integral {report['integral']:.6g}")
    balance = report["balance"]
    if balance is None:
        return "\n".join([*lines, f"no balance: {report['why_no_balance']}"])
    if report["energy"] is not None:
        lines[-1] += f", energy {report['energy']:.6g}"
    flows = balance["flows"] | report["parts"]
    lines += [f"out through {name}: {flow:.6g}" for name, flow in flows.items()]
    lines.append(f"sources {balance['sources']:.6g}, consumed {balance['reaction']:.6g}")
    more = {"carried": "carried away", "stored": "stored"}
    lines[-1] += "".join(f", {title} {balance[n]:.6g}" for n, title in more.items() if balance[n])
    lines.append(
        f"left over {balance['left_over']:.1e}, {balance['relative']:.1e} of all that flows"
    )
    return "\n".join(lines)
