"""Pages in headless Chromium, at the width of a desk and of a phone, in light and dark."""

import pytest

import nscaching as ns

from ..training.helpers import ring
from .chromium import EXECUTABLE, Chromium

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed"),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory, nasty_run):
    folder = tmp_path_factory.mktemp("pages")
    small = {"dim": 4, "batch_size": 16, "device": "cpu", "epochs": 2, "valid_every": 1}
    compared = ns.compare(ring(), "uniform,bernoulli", out=folder / "C", progress="none", **small)
    return {"run": nasty_run.report(), "comparison": compared.out / "report.html"}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390, 320])
@pytest.mark.parametrize("name", ["run", "comparison"])
def test_nothing_overflows_complains_or_asks_the_network(browser, pages, name, width, dark):
    browser.open(pages[name], width, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") <= width
    # Nothing sticks out either, but for what lies in a table that scrolls on its own.
    out = browser.run(
        "[...document.querySelectorAll('body *:not(svg *)')]"
        ".filter(e => !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1)"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert out == []
    assert browser.requests() == []
    assert browser.complaints() == []
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    channels = [int(part) for part in paper.removeprefix("rgb(").removesuffix(")").split(",")]
    assert (max(channels) < 80) == dark


def test_tables_of_a_run_need_no_scrolling(browser, pages):
    for width in (1280, 390):
        browser.open(pages["run"], width)
        wide = browser.run(
            "[...document.querySelectorAll('.scroll')]"
            ".filter(e => e.scrollWidth > e.clientWidth + 1).length"
        )
        assert wide == 0


def test_the_button_changes_the_colours(browser, pages):
    browser.open(pages["run"], 1280)
    colour = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(colour)
    browser.run("document.getElementById('theme').click()")
    assert browser.run(colour) != light
    browser.run("document.getElementById('theme').click()")
    assert browser.run(colour) == light


def test_pointing_shows_values_and_names(browser, pages, nasty_run):
    browser.open(pages["run"], 1280)
    tip = "document.getElementById('tip').hidden ? null : document.getElementById('tip').innerText"
    assert browser.run(tip) is None
    browser.move_to(*middle_of(browser, ".chart svg"))
    assert browser.run(tip).startswith("epoch ")
    browser.move_to(*middle_of(browser, ".map svg"))
    x, y = browser.run(
        "(() => { const f = document.querySelector('.map'), s = f.querySelector('svg');"
        "const [x, y] = JSON.parse(f.dataset.points).at[0];"
        "const p = new DOMPoint(x, y).matrixTransform(s.getScreenCTM()); return [p.x, p.y]; })()"
    )
    browser.move_to(x, y)
    assert any(name in browser.run(tip) for name in nasty_run.graph.entities)
    browser.move_to(2, 2)
    assert browser.run(tip) is None


def test_an_entity_is_found_by_a_part_of_its_name(browser, pages):
    browser.open(pages["run"], 1280)
    browser.run(
        "(() => { const i = document.querySelector('.find input'); i.value = 'SCRIPT>ALERT(1';"
        "i.dispatchEvent(new Event('input')); })()"
    )
    assert browser.run("document.querySelectorAll('.found circle').length") == 1
    assert browser.run("document.querySelector('output').textContent").startswith("<script>")


def middle_of(browser, selector):
    """Bring an element into sight and return its middle."""
    return browser.run(
        f"(() => {{ const e = document.querySelector('{selector}');"
        "e.scrollIntoView({block: 'center', behavior: 'instant'});"
        "const b = e.getBoundingClientRect();"
        "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
    )
