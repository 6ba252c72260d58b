"""Pictures as files: whole XML, every line and label in it, colours for light and dark."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from nscaching.errors import UserError
from nscaching.report.charts import Bars, Chart, Scatter, Series
from nscaching.report.pictures import svg, write_svg

SVG = "{http://www.w3.org/2000/svg}"
NASTY = "</svg><script>alert(1)</script>\"'&"


def texts(root):
    return [each.text for each in root.iter(f"{SVG}text")]


def classes(root):
    return [each.get("class", "") for each in root.iter()]


def test_charts_stand_side_by_side_with_titles_and_legends():
    lines = [Series("a", [1, 2], [0.1, 0.2]), Series("b", [1, 2], [0.2, 0.3])]
    charts = [Chart(f"chart {n}", lines) for n in range(3)]
    root = ET.fromstring(svg(charts, title="All of them", columns=2))
    assert {"All of them", "chart 0", "chart 2", "a", "b"} <= set(texts(root))
    assert sum(name.startswith("line s1") for name in classes(root)) == 3 * 2  # and the legend
    places = [each.get("transform") for each in root if each.tag == f"{SVG}g"]
    assert len(places) == len(set(places)) == 3
    assert len({place.split()[0] for place in places}) == 2  # two columns


def test_names_are_escaped_everywhere():
    scatter = Scatter(NASTY, np.random.default_rng(0).normal(size=(5, 2)), np.zeros(5), [NASTY])
    chart = Chart(NASTY, [Series(NASTY, [1, 2], [1, 2]), Series("b", [1], [1])], x_name=NASTY)
    for picture in (chart, Bars(NASTY, [(NASTY, 1.0, NASTY)]), scatter):
        root = ET.fromstring(svg([picture], title=NASTY))
        assert list(root.iter(f"{SVG}script")) == []
        assert NASTY[:12] in "".join(filter(None, texts(root)))


def test_the_file_has_its_colours_for_light_and_dark(tmp_path):
    drawn = write_svg(tmp_path / "p.svg", [Chart("t", [Series("a", [1], [1])])]).read_text()
    light, dark = drawn.split("@media (prefers-color-scheme: dark)")
    first = [re.search(r"\.line\.s0 \{ stroke: (#\w+)", part)[1] for part in (light, dark)]
    assert first[0] != first[1]
    assert "var(" not in drawn
    assert [each.name for each in tmp_path.iterdir()] == ["p.svg"]
    with pytest.raises(UserError, match=r"end p\.png in \.svg"):
        write_svg(tmp_path / "p.png", [])


def test_bars_are_as_long_as_their_values():
    root = ET.fromstring(svg([Bars("t", [("a", 4.0, "4"), ("b", 1.0, "1")])]))
    long, short = [
        float(each.get("width"))
        for each in root.iter(f"{SVG}rect")
        if each.get("class", "").startswith("bars")
    ]
    assert long == pytest.approx(4 * short, rel=0.01)


def test_groups_of_points_differ_in_shape_or_colour():
    points = np.random.default_rng(0).normal(size=(40, 2))
    group = np.arange(40) % 20
    root = ET.fromstring(svg([Scatter("t", points, group, [f"g{n}" for n in range(20)])]))
    dots = [each for each in root.iter(f"{SVG}path") if "dots" in each.get("class", "")]
    styles = {(d.get("class"), re.sub(r"[\d. -]+", "", d.get("d"))[:8]) for d in dots}
    assert len(styles) >= 20
    assert sum(d.get("d").count("M") for d in dots) == 40 + 20  # and the legend
