"""The site is built strictly: a broken link, a page left out of it or a bad reference fails."""

import os
import re
import subprocess
import sys

import pytest

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
    for name in ("train", "load_run", "load_graph", "Run", "KnowledgeGraph", "TrainConfig"):
        assert f'id="nscaching.{name}"' in pages
    for name in ("tune", "compare", "embed_nodes", "Run.predict_tails"):
        assert f'id="nscaching.{name}"' in pages
    assert "N2: fresh entities that a row is offered" in (site / "api/options.html").read_text()
    assert ":class:" not in pages


@pytest.mark.slow
def test_it_asks_the_network_for_nothing(site):
    asked = r"""(?:<script|<img|<iframe|<link rel="(?:stylesheet|preconnect|icon)")[^>]*https?://"""
    for page in site.rglob("*.html"):
        assert not re.search(asked, page.read_text()), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?https?:|@import", sheet.read_text()), sheet
