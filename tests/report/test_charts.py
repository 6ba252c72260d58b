"""Charts: what is drawn lies inside, says its numbers, and does not depend on colour."""

import json
import re

import pytest

from nscaching.report.charts import HEIGHT, WIDTH, Chart, Series, draw, row

from .reading import Reading


def paths(drawn, kind):
    page = Reading(drawn)
    found = [a for name, a in page.tags if name == "path" and a["class"].startswith(kind)]
    return [each["d"] for each in found]


def points(path):
    return [tuple(map(float, pair.split())) for pair in re.split("[ML]", path) if pair]


def test_a_line_has_its_points_inside_and_in_scale():
    x, y = [1, 2, 3, 4], [0.0, 5.0, 10.0, 2.5]
    (path,) = paths(draw(Chart("t", [Series("a", x, y)])), "line")
    at = points(path)
    assert all(0 < px < WIDTH and 0 < py < HEIGHT for px, py in at)
    assert at[0][1] - at[1][1] == pytest.approx(at[1][1] - at[2][1], abs=0.2)  # 0, 5, 10
    assert at[1][0] - at[0][0] == pytest.approx(at[2][0] - at[1][0], abs=0.2)
    assert at[0][1] > at[3][1] > at[1][1] > at[2][1]  # up is more


@pytest.mark.parametrize("y", [[0.5], [0.0], [3, 3, 3], [-1, 1], [1e-9, 2e-9]])
def test_few_equal_small_and_negative_values_can_be_drawn(y):
    drawn = draw(Chart("t", [Series("a", list(range(len(y))), y)]))
    assert "nan" not in drawn
    assert all(0 <= py <= HEIGHT for path in paths(drawn, "line") for _, py in points(path))


def test_long_lines_are_thinned_with_both_ends():
    many = list(range(5000))
    (path,) = paths(draw(Chart("t", [Series("a", many, many)])), "line")
    assert 100 < len(points(path)) < 400
    assert len(paths(draw(Chart("t", [Series("a", many, many)])), "mark")[0]) < 2000


def test_lines_differ_in_shape_and_have_a_legend_and_a_band():
    lines = [Series(f"l{n}", [0, 1], [n, n + 1], [n - 1, n], [n, n + 2]) for n in range(3)]
    drawn = draw(Chart("t", lines))
    page = Reading(drawn)
    assert page.count("li") == 3
    at_origin = {re.sub(r"-?[\d.]+", "", mark) for mark in paths(drawn, "mark")}
    assert len(at_origin) >= 3
    assert len(paths(drawn, "band")) == 3
    assert Reading(draw(Chart("t", lines[:1]))).count("li") == 0


def test_what_is_pointed_at_is_told_and_names_are_escaped():
    name = "</svg><script>\"'"
    page = Reading(draw(Chart(name, [Series(name, [1, 2], [0.5, 0.25])], x_name="epoch")))
    (svg,) = [a for tag, a in page.tags if tag == "svg"]
    (told,) = json.loads(svg["data-points"])
    assert told["label"] == name
    assert told["x"] == ["epoch 1", "epoch 2"]
    assert told["y"] == ["0.500", "0.250"]
    assert svg["aria-label"].startswith(name)
    assert page.count("script") == 0


def test_a_chart_without_points_is_left_out():
    assert draw(Chart("t", [Series("a", [], [])])) == ""
    assert Reading(row([Chart("t", [])])).count("svg") == 0


def test_a_logarithmic_axis_has_equal_steps_for_equal_factors_and_drops_what_it_cannot_show():
    line = Series("a", [1, 2, 3, 4], [1.0, 10.0, 0.0, 100.0])
    (path,) = paths(draw(Chart("t", [line], y_scale="log")), "line")
    at = points(path)
    assert len(at) == 3
    assert at[0][1] - at[1][1] == pytest.approx(at[1][1] - at[2][1], abs=0.2)


def test_a_symmetric_logarithmic_axis_shows_zero_first():
    line = Series("a", [0, 0.1, 1, 10], [1, 2, 3, 4])
    (path,) = paths(draw(Chart("t", [line], x_scale="symlog")), "line")
    x = [px for px, _ in points(path)]
    assert x == sorted(set(x))
    assert x[3] - x[2] == pytest.approx(x[2] - x[1], rel=0.15)
