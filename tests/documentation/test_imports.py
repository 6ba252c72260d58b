"""Packages import only what stands above them in the list of docs/architecture.md."""

import ast
import re
from pathlib import Path

import nscaching

PACKAGE = Path(nscaching.__file__).parent
PAGE = PACKAGE.parents[1] / "docs" / "architecture.md"
#: What may be imported from further up: it imports little itself.
EXCEPTIONS = {"nscaching.interop.tracking"}


def listed():
    """Return the names in the first column of the table of packages, in order."""
    table = PAGE.read_text().split("## Packages")[1].split("\n\n")[1]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    return [name for cell in cells for name in re.findall(r"`(\w+)(?:\.py|/)`", cell)]


def imported(file):
    """Yield the modules that are imported as soon as a module is."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nscaching."):
            yield node.module


def test_every_package_is_listed():
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    inner = {name for name in there if not name.startswith("_")}
    assert inner == set(listed())


def test_imports_go_one_way():
    rank = {name: place for place, name in enumerate(listed())}
    against = [
        f"{file.relative_to(PACKAGE)} imports {module}"
        for file in PACKAGE.rglob("*.py")
        if (own := file.relative_to(PACKAGE).parts[0].removesuffix(".py")) in rank
        for module in imported(file)
        if module not in EXCEPTIONS and rank.get(module.split(".")[1], -1) > rank[own]
    ]
    assert not against
