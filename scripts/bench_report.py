"""The page of a 16384 x 16384 run: seconds until it is written and opened in a headless browser, and its size.

    python scripts/bench_report.py OUT.h5

``OUT.h5`` is that of ``mosaicdd solve --cells 16384x16384 --boundary gp:seed=0``. Needs Chromium on the path.
"""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tables import publish, table

from mosaicdd import read
from mosaicdd.report.page import page

_CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu"]
_ROUNDS = 5
# Around the page, and told when it and its pictures are there: milliseconds from the frame's start.
_FRAME = """<body><iframe src="{}" width="1280" height="2400"></iframe>
<script>onload = () => {{ document.body.dataset.loaded = performance.now() }}</script></body>"""


def opened(path: Path, folder: Path) -> float:
    """Return the seconds that a browser that runs already takes to load a page."""
    (folder / "frame.html").write_text(_FRAME.format(path.as_uri()))
    told = subprocess.run(
        [*_CHROMIUM, "--dump-dom", (folder / "frame.html").as_uri()],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(re.search(r'data-loaded="([\d.]+)"', told.stdout)[1]) / 1000


def main() -> None:
    """Write the table."""
    solution = read(sys.argv[1])
    begun = time.perf_counter()
    text = page([solution])
    written = time.perf_counter() - begun
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "out.html"
        path.write_text(text, encoding="utf-8")
        blank = Path(name) / "blank.html"
        blank.write_text("<!doctype html><p>nothing</p>")
        # In turns: what an empty page takes is the machine's.
        loads, nothing = zip(
            *((opened(path, Path(name)), opened(blank, Path(name))) for _ in range(_ROUNDS)),
            strict=True,
        )
        begun = time.perf_counter()
        shot = [f"--screenshot={name}/out.png", "--window-size=1280,2400", path.as_uri()]
        subprocess.run([*_CHROMIUM, *shot], capture_output=True, check=True)
        whole = time.perf_counter() - begun
    cells = " x ".join(map(str, solution.grid.shape[::-1]))
    rows = [
        ["the file, GB", f"{Path(sys.argv[1]).stat().st_size / 1e9:.2f}"],
        ["seconds to make the page, reading the file", f"{written:.1f}"],
        ["the page, MB", f"{len(text.encode()) / 1e6:.2f}"],
        [f"seconds to open it, median of {_ROUNDS}", f"{median(loads):.2f}"],
        ["... the longest", f"{max(loads):.2f}"],
        ["an empty page in turns with it, median", f"{median(nothing):.2f}"],
        ["... the longest", f"{max(nothing):.2f}"],
        ["seconds with the browser's start and a screenshot", f"{whole:.1f}"],
    ]
    note = "Opened in headless Chromium: from the request to the load of the page and its pictures. It may weigh 5 MB, and take 2 s."
    publish("report", f"The report of a run on {cells} cells", f"{table(['', ''], rows)}\n\n{note}")


if __name__ == "__main__":
    main()
