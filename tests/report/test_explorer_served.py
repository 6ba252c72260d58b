"""The served explorer in Chromium: the same page, with answers from Python."""

import pytest

pytest.importorskip("starlette", reason="the extra explore is not installed")
pytest.importorskip("uvicorn", reason="the extra explore is not installed")

from .chromium import EXECUTABLE
from .explorer_browser import ExplorerBrowser
from .test_server import Served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(EXECUTABLE is None, reason="Chromium is not installed"),
]


@pytest.fixture(scope="module")
def served(clubs_run):
    with Served(clubs_run) as server:
        yield server


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with ExplorerBrowser(tmp_path_factory.mktemp("profile")) as started:
        yield started


def test_find_ask_map_and_review(browser, served, clubs_run):
    address = f"http://127.0.0.1:{served.port}/"
    browser.visit(address)
    browser.click("#find")
    browser.type("p12")
    browser.wait("document.querySelector('#found-0 bdi')?.textContent === 'p12'")
    browser.press("Enter")
    browser.wait("document.querySelector('main h1')?.textContent === 'p12'")
    browser.wait("document.querySelector('.drawing svg a') !== null")
    browser.wait("!document.querySelector('[aria-busy]')")
    browser.click(".asking button")
    browser.wait("document.querySelector('main h1 .hole') !== null")
    browser.click(".facts .plain")
    browser.wait("document.querySelector('.why:not([hidden]) ul, .why:not([hidden]) p')")
    browser.go("#/map")
    browser.wait("document.querySelectorAll('#in-the-middle li').length === 8")
    browser.go("#/review")
    browser.wait("document.querySelector('.review .large') !== null")
    waiting = int(browser.text("#waiting"))
    browser.press("y")
    browser.wait(f"document.querySelector('#waiting').textContent === '{waiting - 1}'")
    browser.visit(address)
    browser.go("#/review")
    browser.wait(f"document.querySelector('#waiting').textContent === '{waiting - 1}'")
    accepted = browser.promised("explorer.source.review.file('y')")["text"]
    head, relation, tail = accepted.rstrip("\n").split("\t")
    assert clubs_run.split_of(head, relation, tail) is None
    asked = set(browser.requests())
    assert all(each.startswith(address) for each in asked)
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_overflows(browser, served, width):
    browser.visit(f"http://127.0.0.1:{served.port}/", width)
    for place in ("#/", "#/entity/0", "#/ask/head/0/1", "#/map", "#/review"):
        browser.go(place)
        assert browser.run("document.documentElement.scrollWidth") <= width, place
