"""The site is built strictly: a broken link, a page left out of it or a bad reference fails."""

import html
import os
import re
import subprocess
import sys
import time

import pytest
from typer.main import get_command

import nscaching as ns
from nscaching.cli.main import COMMANDS, app

from ..report.chromium import EXECUTABLE, Chromium
from .snippets import ROOT

pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'nscaching[docs]'")
pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return out


@pytest.mark.slow
def test_it_holds_the_public_contract(site):
    pages = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    for name in ns.__all__:
        assert name == "__version__" or f'id="nscaching.{name}"' in pages, name
    for name in ("Run.predict_tails", "Run.discover", "Run.update", "NodeEmbedding.classify"):
        assert f'id="nscaching.{name}"' in pages
    for name in ("EntityVectors", "tracking.Tracker", "pykeen.NSCachingNegativeSampler"):
        assert f'id="nscaching.interop.{name}"' in pages
    assert "N2: fresh entities that a row is offered" in (site / "api/options.html").read_text()
    assert ":class:" not in pages


@pytest.mark.slow
def test_it_asks_the_network_for_nothing(site):
    asked = r"""(?:<script|<img|<iframe|<link rel="(?:stylesheet|preconnect|icon)")[^>]*https?://"""
    for page in site.rglob("*.html"):
        assert not re.search(asked, page.read_text()), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?https?:|@import", sheet.read_text()), sheet


@pytest.mark.slow
def test_every_command_and_each_of_its_flags_is_in_the_reference(site):
    page = html.unescape(re.sub(r"<[^>]+>", "", (site / "commands.html").read_text()))
    root = get_command(app)
    context = root.make_context("nscaching", [], resilient_parsing=True)
    for name in COMMANDS:
        command = root.get_command(context, name)
        for key, each in getattr(command, "commands", {"": command}).items():
            path = f"nscaching {name} {key}".rstrip()
            assert path in page
            section = page.partition(f"\n{path} ")[2].partition("[OPTIONS]")[2]
            section = section.partition("[OPTIONS]")[0]
            flags = [flag for option in each.params for flag in option.opts if flag[0] == "-"]
            assert all(flag in section for flag in flags), (path, flags)


@pytest.mark.slow
def test_braces_stay_in_tables(site):
    assert "{10, 30, 50, 70, 90}" in (site / "tuning.html").read_text()


@pytest.mark.slow
@pytest.mark.skipif(EXECUTABLE is None, reason="there is no Chromium here")
def test_the_search_works_from_a_file(site, tmp_path):
    with Chromium(tmp_path / "profile") as browser:
        browser.open(site / "api/graphs.html", 1200)
        browser.run(
            """(() => {
                const box = document.querySelector("[data-md-component=search-query]");
                document.querySelector("[data-md-toggle=search]").click();
                box.focus();
                box.value = "calibration error";
                box.dispatchEvent(new KeyboardEvent("keyup", { bubbles: true }));
                box.dispatchEvent(new Event("input", { bubbles: true }));
            })()"""
        )
        until = time.monotonic() + 30
        found = 0
        while not found and time.monotonic() < until:
            time.sleep(0.2)
            found = browser.run("document.querySelectorAll('.md-search-result__link').length")
        assert found, browser.complaints()
        first = browser.run("document.querySelector('.md-search-result__link').href")
        assert first.startswith(site.resolve().as_uri())
        assert not [each for each in browser.requests() if not each.startswith(("file:", "data:"))]
