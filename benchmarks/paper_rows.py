"""What our runs say of each experiment of the paper: the rows of the table that `paper_page` begins with.

Each is made of a table that the other ``paper_*.py`` and ``bench_*.py`` scripts of `reproduce.sh` left in
``benchmarks/paper``; `FileNotFoundError` where it is not there.
"""

from collections.abc import Callable
from statistics import median

from common import PAPER, read_csv
from paper_figures import TABLE_4


def _fig1() -> str:
    errors = {row["local solver"]: row["largest difference"] for row in read_csv("fig1")}
    return ", ".join(f"{error} by {name}" for name, error in errors.items())


def fig5() -> str:
    """Say what splitting the first layer gains."""
    rows = {(row["embedded"], row["points"]): row for row in read_csv("split")}
    wide, narrow = (rows[width, "4096"] for width in ("1024", "128"))
    ends = {row["embedded"]: row for row in read_csv("split_memory")}["1024"]
    return (
        f"at 32,768 points: split {wide['inference gain']} times the values per second at 1024 embedded "
        f"values, {narrow['inference gain']} at 128; training {wide['training gain']} and "
        f"{narrow['training gain']}. A gigabyte ends at {int(ends['split']):,} points (split) and "
        f"{int(ends['concatenated']):,} (concatenated)"
    )


def fig6() -> str:
    """Say with which errors trainings on several ranks end."""
    rows, ends = read_csv("fig6"), {}
    last = max(float(row["epoch"]) for row in rows)
    for row in rows:
        if float(row["epoch"]) >= last:
            ends.setdefault(row["ranks"], []).append(float(row["validation_mse"]))
    medians = ", ".join(f"{median(errors):.1e} ({ranks})" for ranks, errors in ends.items())
    seeds = len({row["seed"] for row in rows})
    return f"after {last:g} epochs, medians of {seeds} seed{'s' * (seeds > 1)} (ranks): {medians}"


def _fig7() -> str:
    rows = read_csv("fig7")
    return "; ".join(f"{row['ranks']} ranks: {row['128']} to {row['1024']}" for row in rows)


def _memory() -> str:
    return "GB: " + "; ".join(
        f"{row['subdomains']}: {row['no PDE loss, GB']} and {row['autograd, GB']}"
        for row in read_csv("memory")
    )


def fig8() -> str:
    """Say what batching gains."""
    last = read_csv("batching")[-1]
    return ", ".join(
        f"{last[f'{name} gain']} times at {last[f'{name} peak']} of the peak by {name}"
        for name in ("laplace", "laplace-sdnet")
    )


def table4() -> str:
    """Say how many iterations several ranks take."""
    rows = read_csv("table4")
    texts = []
    for method, word in (
        ("four phases, one exchange per iteration", "relaxed"),
        ("four phases, an exchange after each", "strict"),
    ):
        counts = {int(r["ranks"]): int(r["iterations"]) for r in rows if r["method"] == method}
        growth = 100 * (counts[max(counts)] / counts[min(counts)] - 1)
        listed = ", ".join(map(str, counts.values()))
        phases = ", ".join(str(4 * count) for count in counts.values())
        texts.append(f"{word}: {listed} (+{growth:.1f} %), in phases {phases}")
    return "; ".join(texts)


def _scaling(study: str) -> Callable[[], str]:
    def make() -> str:
        rows = [row for row in read_csv("fig9") if row["study"] == study]
        return "; ".join(
            f"{row['ranks']} ranks, {row['cells']}: {float(row['iterate']):.2f} s, of which "
            f"communication {float(row['communication_mean']):.2f}"
            for row in rows[-2:]
        )

    return make


def _job() -> str:
    rows = read_csv("job")
    texts = [
        f"{row['local solver']}, {row['levels']} level{'s' * (row['levels'] != '1')}: {row['iterations']} "
        f"iterations, {float(row['seconds']):,.1f} s"
        for row in rows
    ]
    return f"{rows[0]['cells']} x {rows[0]['cells']}: " + "; ".join(reversed(texts))


def _recipe() -> str:
    longer = (PAPER / "recipe_long.csv").exists()
    rows = [row for row in read_csv("recipe_long" if longer else "recipes") if row["run"] == "0"]
    error = min(float(row["validation_mse"]) for row in rows)
    return (
        f"{error:.1e} after {float(rows[-1]['budget']):g} CPU seconds of one core, {error / 2.5e-6:,.0f} "
        "times the paper's"
    )


def _samples() -> str:
    by_samples: dict[str, list[str]] = {}
    for row in read_csv("samples"):
        text = f"{row['validation MSE']} ({row['trained on']})"
        by_samples.setdefault(row["samples"], []).append(text)
    return "; ".join(f"{int(n):,} samples: {', '.join(texts)}" for n, texts in by_samples.items())


ROWS = [
    (
        "Fig. 1",
        "largest difference about 0.04",
        _fig1,
        "128 x 128; other boundary data of the kind",
    ),
    (
        "Table 3",
        "GB: 5: 0.05 and 0.503; 320: 2.77 and 15.11; 640: 5.54 and out of memory",
        _memory,
        (
            "peak of one step by double backward, on a processor, at 64 points per subdomain; the paper: "
            "on a V100, points and widths not given"
        ),
    ),
    (
        "Fig. 5",
        "split runs to 50,000 points, concatenation to 10,000",
        fig5,
        "a core's throughput; its memory limited to 1 GiB; widths not given in the paper",
    ),
    (
        "Fig. 6",
        "2.5e-6; all numbers of GPUs end within 1.5e-6 of each other",
        fig6,
        (
            "its epochs, by `benchmarks/run.py paper_training --epochs 500 --seeds 1 --only ranks`; with few, grown batches take few "
            "steps and stay far behind. The linear network, 64 samples per rank; one process for all ranks, as the "
            "gradients are the same; no time"
        ),
    ),
    (
        "Fig. 7",
        "no difference between numbers of GPUs",
        _fig7,
        "Fig. 6's models of the first seed, which differ by their training; MAE from 128 x 128 to 1024 x 1024",
    ),
    ("Fig. 8", "up to 100 times, about 50 % of the peak", fig8, "one core for an A30"),
    (
        "Fig. 9a",
        "880 s on 1 GPU, about 90 s on 32, to an MAE of 0.05",
        _scaling("strong"),
        "SDNet, five iterations of four phases, smaller domain, two cores",
    ),
    (
        "its job",
        "880 s on 1 GPU, to an MAE of 0.05",
        _job,
        (
            "its size, kind of network (in float32) and method in the first of these, the whole span with the "
            "MAE against a sine transform; other boundary data; one core for a V100, seconds of the processor"
        ),
    ),
    (
        "Table 4",
        ", ".join(map(str, TABLE_4.values())),
        table4,
        (
            "the paper's size; other boundary data; linear network; whether its iteration is one phase or four "
            "is not said"
        ),
    ),
    (
        "Fig. 9b",
        "communication grows 4 times from 2 to 8 GPUs, then stays",
        _scaling("weak"),
        "SDNet, five iterations, two cores: no more than two ranks are timed",
    ),
    (
        "sections 2.2, 3.3",
        "the PDE loss replaces solutions",
        _samples,
        "our recipe, which learns faster; the paper has no row without the PDE loss or with fewer samples",
    ),
    (
        "its recipe",
        "2.5e-6 after over 30 minutes on an A30",
        _recipe,
        "data/paper.toml; ranges of the data, batch, points and widths not given in the paper",
    ),
]
