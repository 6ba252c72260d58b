"""Pictures: written whole, told apart without colour, and missing matplotlib said in a sentence."""

import sys

import pytest

from nscaching import UserError
from nscaching.report.drawing import figure, line_look, save


def test_lines_differ_without_colour():
    looks = [line_look(index) for index in range(8)]
    assert len({(str(look["linestyle"]), look["marker"]) for look in looks}) == 8


def test_a_figure_is_saved_whole(tmp_path):
    pytest.importorskip("matplotlib")
    with figure(2, 1) as drawn:
        drawn.subplots().plot([1, 2], [3, 4], **line_look(0))
        save(drawn, tmp_path / "p.png")
    assert [file.name for file in tmp_path.iterdir()] == ["p.png"]


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install 'nscaching\[plot\]'"), figure():
        pass
