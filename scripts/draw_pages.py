"""Photographs the report and the explorer of a run for the documentation, in headless Chromium.

nscaching train world --trace --out runs/world
python scripts/draw_pages.py runs/world --out docs/images
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import nscaching as ns

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.report.chromium import EXECUTABLE
from tests.report.explorer_browser import ExplorerBrowser

#: What the pictures show: an entity, and what is looked for on the map.
ENTITY, FOUND = "Belarus", "Paris"
_AT = "document.getElementById('{}').getBoundingClientRect().top + scrollY"


def photograph(run: ns.Run, folder: Path, out: Path, profile: str) -> None:
    """Write the four pictures."""
    with ExplorerBrowser(profile) as browser:
        browser.open(folder / "report.html", 1120, 1090)
        browser.screenshot(out / "report.png", whole=False)
        browser.open(folder / "report.html", 1120, 934, dark=True)
        browser.run("document.documentElement.style.scrollBehavior = 'auto'")
        browser.run(f"scrollTo(0, {_AT.format('map')} - 20)")
        browser.run(
            f"(e => {{ e.value = '{FOUND}'; e.dispatchEvent(new Event('input', {{bubbles: true}}))"
            "})(document.querySelector('#map input'))"
        )
        browser.screenshot(out / "report-map.png", whole=False)
        explorer = folder / "explorer.html"
        browser.visit(explorer)
        browser.go(f"#/entity/{run.graph.entity_id(ENTITY)}")
        _size(browser, 1280, 1180)
        browser.screenshot(out / "explorer.png", whole=False)
        browser.visit(explorer, width=390, dark=True)
        browser.go("#/review")
        browser.screenshot(out / "explorer-review.png", whole=False)


def _size(browser: ExplorerBrowser, width: int, height: int) -> None:
    browser.ask(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=False,
    )


def main() -> None:
    """Read the arguments and write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    asked = parser.parse_args()
    if EXECUTABLE is None:
        raise SystemExit("Chromium is not there: apt-get install chromium")
    with tempfile.TemporaryDirectory() as profile:
        photograph(ns.load_run(asked.run), asked.run, asked.out, profile)


if __name__ == "__main__":
    main()
