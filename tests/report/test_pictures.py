"""Pictures of fields that are read in portions, and charts."""

import re

import numpy as np

from mosaicdd.report.pictures import chart, reduced


def test_squares_have_the_mean_of_their_nodes_whatever_the_portions():
    field = np.random.default_rng(0).standard_normal((23, 17))
    field[:9, :5] = np.nan
    step = 4
    expected = np.array(
        [
            [np.nanmean(part) if np.isfinite(part).any() else np.nan for part in row]
            for row in (
                [field[i : i + step, j : j + step] for j in range(0, 17, step)]
                for i in range(0, 23, step)
            )
        ]
    )
    for rows in (4, 8, 24):
        portions = [field[first : first + rows] for first in range(0, 23, rows)]
        np.testing.assert_allclose(reduced(portions, 17, step), expected, atol=1e-15)


def test_a_chart_has_a_curve_of_each_name_with_a_value_above_zero():
    drawn = chart({"a": ([1, 2, 3], [1.0, 0.0, 1e-4]), "b": ([1], [np.nan])}, "iteration")
    assert drawn.count('class="curve') == 1
    (path,) = re.findall(r'class="curve c0" d="M([^"]*)"', drawn)
    (x, y), (_, lower) = (map(float, point.split()) for point in path.split("L"))
    assert x < 100
    assert y < lower  # pixels are counted from above
    assert "<b" not in chart({"<b>": ([1, 2], [1.0, 2.0])}, "t")
    assert chart({}, "iteration") == ""
