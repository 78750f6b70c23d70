"""Draw what `reproduce.sh` has measured, beside the paper's own points; pictures in ``benchmarks/paper``.

The paper's points are those that its text and tables state; nothing is read off its pictures.
"""

from collections.abc import Callable

import matplotlib
import numpy as np
from common import PAPER, read_csv
from matplotlib.axes import Axes
from matplotlib.figure import Figure

matplotlib.use("Agg")
TABLE_4 = {1: 3200, 2: 3250, 4: 3250, 8: 3300, 16: 3400, 32: 3500}
TARGET = 2.5e-6  # the paper's validation MSE
_PAPERS = {"color": "black", "linestyle": "--", "linewidth": 1}


def main() -> None:
    """Draw every picture whose table is there."""
    for name, (needed, draw) in _PICTURES.items():
        if all((PAPER / f"{table}.csv").exists() for table in needed):
            figure = Figure(figsize=(9, 4), layout="constrained")
            draw(figure)
            figure.savefig(PAPER / f"{name}.png", dpi=100)


def _recipes(figure: Figure) -> None:
    longer = (PAPER / "recipe_long.csv").exists()
    axes = figure.subplots(1, 1 + longer, sharey=True, squeeze=False)[0]
    rows = read_csv("recipes")
    colours = matplotlib.colormaps["tab20"]
    for number in dict.fromkeys(row["run"] for row in rows):
        curve = [row for row in rows if row["run"] == number]
        label = f"{curve[0]['recipe']} ({curve[0]['losses']})"
        _curve(axes[0], curve, label, color=colours(int(number)))
    axes[0].set_title(f"{float(rows[0]['budget']):g} CPU seconds each")
    if longer:
        long = read_csv("recipe_long")
        _curve(axes[1], long, "the paper's recipe", color=colours(0))
        axes[1].set_title(f"the paper's recipe, {float(long[0]['budget']):g} CPU seconds")
    for panel in axes:
        panel.axhline(TARGET, **_PAPERS, label="the paper's end, 2.5e-6")
        panel.set(xlabel="CPU seconds, one core", yscale="log")
    axes[0].set_ylabel("validation MSE, the paper's kind of data")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=7
    )
    figure.set_size_inches(10, 6)


def _curve(axes: Axes, rows: list[dict], label: str, **style) -> None:
    axes.plot(_column(rows, "seconds"), _column(rows, "validation_mse"), label=label, **style)


def _fig5(figure: Figure) -> None:
    rows = read_csv("split")
    both = figure.subplots(1, 2, sharex=True)
    for axes, what in zip(both, ("inference", "training"), strict=True):
        for width in dict.fromkeys(row["embedded"] for row in rows):
            of_width = [row for row in rows if row["embedded"] == width]
            points = [8 * int(row["points"]) for row in of_width]
            split, other = (
                _column(of_width, f"{what} {kind}") for kind in ("split", "concatenated")
            )
            (line,) = axes.plot(points, split, "o-", label=f"split, {width} embedded values")
            axes.plot(points, other, "s:", color=line.get_color(), label=f"concatenated, {width}")
        for points, text in ((10_000, "concatenated"), (50_000, "split layer")):
            axes.axvline(points, **_PAPERS)
            place = {"rotation": 90, "fontsize": 6, "ha": "right", "va": "bottom"}
            where = axes.get_xaxis_transform()
            axes.text(points, 0.02, f"the paper's memory ends: {text}", transform=where, **place)
        axes.set(xscale="log", xlabel="points in a batch", title=what, ylim=(0, None))
    both[0].set_ylabel("million values per second")
    both[0].legend(fontsize=6)


def _fig6(figure: Figure) -> None:
    rows = read_csv("fig6")
    axes = figure.subplots()
    for ranks in dict.fromkeys(row["ranks"] for row in rows):
        seeds: dict[str, list[dict]] = {}
        for row in rows:
            if row["ranks"] == ranks:
                seeds.setdefault(row["seed"], []).append(row)
        count = min(map(len, seeds.values()))
        curves = np.array(
            [_column(of_seed[:count], "validation_mse") for of_seed in seeds.values()]
        )
        epochs = _column(next(iter(seeds.values()))[:count], "epoch")
        axes.plot(epochs, np.median(curves, axis=0), label=_ranks(ranks))
        axes.fill_between(epochs, *np.quantile(curves, [0.025, 0.975], axis=0), alpha=0.2)
    axes.axhline(TARGET, **_PAPERS, label="the paper's end after 500 epochs")
    axes.set(yscale="log", xlabel="epoch", ylabel="validation MSE: median and range of the seeds")
    axes.legend(fontsize=7)


def _fig7(figure: Figure) -> None:
    axes = figure.subplots()
    for row in read_csv("fig7"):
        sizes = [int(size) for size in list(row)[1:]]
        errors = [float(row[str(size)]) for size in sizes]
        axes.plot(sizes, errors, "o-", label=_ranks(row["ranks"]))
    axes.set(xscale="log", yscale="log", xlabel="cells per side", ylabel="MAE, g = sin(2 pi x)")
    axes.legend(fontsize=7)


def _ranks(count: str) -> str:
    return "1 rank" if count == "1" else f"{count} ranks"


def _fig8(figure: Figure) -> None:
    rows = read_csv("batching")
    axes = figure.subplots()
    subdomains = _column(rows, "subdomains")
    for name in ("laplace", "laplace-sdnet"):
        axes.plot(subdomains, _column(rows, f"{name} gain"), "o-", label=name)
    axes.axhline(100, **_PAPERS, label="the paper, up to")
    axes.set(
        xscale="log", yscale="log", xlabel="subdomains", ylabel="batched against unbatched, times"
    )
    axes.legend(fontsize=8)


def _table4(figure: Figure) -> None:
    rows = read_csv("table4")
    axes = figure.subplots()
    for method in (
        "four phases, one exchange per iteration",
        "four phases, an exchange after each",
    ):
        of_method = [row for row in rows if row["method"] == method]
        _growth(
            axes,
            _column(of_method, "ranks"),
            _column(of_method, "iterations"),
            f"{method}, {rows[0]['cells']}",
        )
    _growth(axes, list(TABLE_4), list(TABLE_4.values()), "the paper", color="black", linestyle="--")
    axes.set(xscale="log", xlabel="ranks", ylabel="iterations, relative to one rank")
    axes.set_xticks(list(TABLE_4), list(map(str, TABLE_4)), minor=False)
    axes.set_xticks([], minor=True)
    axes.legend(fontsize=8)


def _growth(axes: Axes, ranks: list, counts: list, label: str, **style) -> None:
    axes.plot(ranks, np.array(counts) / counts[0], "o", label=label, **{"linestyle": "-"} | style)


def _counts(figure: Figure) -> None:
    rows = [row for row in read_csv("counts") if row["study"] == "weak" and row["ranks"] != "1"]
    axes = figure.subplots()
    ranks = _column(rows, "ranks")
    for what, label in (("bytes", "bytes that the busiest rank sends"), ("messages", "messages")):
        _growth(axes, ranks, _column(rows, what), label)
    _growth(
        axes, [2, 8, 16, 32], [1, 4, 4, 4], "the paper's seconds", color="black", linestyle="--"
    )
    axes.set(xscale="log", xlabel="ranks", ylabel="of an exchange, relative to two ranks")
    axes.set_xticks(ranks, [f"{count:g}" for count in ranks], minor=False)
    axes.set_xticks([], minor=True)
    axes.legend(fontsize=8)


def _lifting(figure: Figure) -> None:
    rows = read_csv("lifting")
    kinds = list(dict.fromkeys(row["boundary data"] for row in rows))
    for axes, kind in zip(figure.subplots(1, 2, sharey=True), kinds, strict=True):
        for lifting in dict.fromkeys(row["lifting"] for row in rows):
            of_kind = [r for r in rows if (r["lifting"], r["boundary data"]) == (lifting, kind)]
            (line,) = axes.plot(
                _column(of_kind, "cells"), _column(of_kind, "MAE"), "o-", label=f"{lifting}, MAE"
            )
            style = {"color": line.get_color(), "label": f"{lifting}, largest"}
            axes.plot(_column(of_kind, "cells"), _column(of_kind, "largest"), "s:", **style)
        axes.set(xscale="log", yscale="log", xlabel="cells per side", title=f"{kind} data")
        sizes = sorted({int(row["cells"]) for row in rows})
        axes.set_xticks(sizes, list(map(str, sizes)), minor=False)
        axes.set_xticks([], minor=True)
    axes.legend(title="degree of the lifting", fontsize=7)


def _column(rows: list[dict], name: str) -> list[float]:
    return [float(row[name]) for row in rows]


_PICTURES: dict[str, tuple[tuple[str, ...], Callable[[Figure], None]]] = {
    "recipes": (("recipes",), _recipes),
    "fig5": (("split",), _fig5),
    "fig6": (("fig6",), _fig6),
    "fig7": (("fig7",), _fig7),
    "fig8": (("batching",), _fig8),
    "table4": (("table4",), _table4),
    "counts": (("counts",), _counts),
    "lifting": (("lifting",), _lifting),
}
