"""The shell of a page: nothing of a name becomes a template, and colours can be told apart."""

import re

import pytest

from nscaching.report.markup import Html, tag
from nscaching.report.page import Section, _asset, render

from .reading import read


def test_titles_and_leads_are_escaped_and_no_template():
    made = render("<b>$lead", "$script & ${style}", Html(""), [Section("a", "A <i>", [tag("p")])])
    found = read(made)
    assert "<b>$lead" in found.words
    assert "$script & ${style}" in found.words
    assert found.words.count("A <i>") == 2  # in the list of contents and at its place
    assert "default-src 'none'" in made


def luminance(colour):
    """Return how light a colour is, as WCAG counts it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(by * x for by, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_and_lines_have_enough_contrast(scheme):
    found = re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", _asset("style.css"))
    colours = {name: pair[scheme] for name, *pair in found}
    for paper in ("paper", "card"):
        for name in ("ink", "quiet", "accent"):
            assert contrast(colours[name], colours[paper]) >= 4.5, name
        for number in range(8):
            assert contrast(colours[f"c{number}"], colours[paper]) >= 3, number
