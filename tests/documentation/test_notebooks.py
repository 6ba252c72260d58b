"""The notebooks of examples/ run from top to bottom."""

import ast
import json
import shutil

import pytest

from .snippets import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def cells(notebook):
    """Return the code of a notebook, cell by cell."""
    read = json.loads(notebook.read_text(encoding="utf-8"))
    assert read["nbformat"] == 4
    return ["".join(cell["source"]) for cell in read["cells"] if cell["cell_type"] == "code"]


def last_value(code, names):
    """Run a cell as a notebook does, and return the value of its last line."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return (
        None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    )


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, tmp_path, monkeypatch):
    for file in (ROOT / "examples").glob("*.tsv"):
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    names = {}
    shown = 0
    for code in cells(notebook):
        value = last_value(code, names)
        if hasattr(value, "_repr_html_"):
            assert value._repr_html_().count("<")
        shown += value is not None
    assert shown >= 5


def test_there_is_a_notebook_from_a_file_to_facts():
    assert any("run.update(" in code for code in cells(NOTEBOOKS[0]))
