import builtins

import pytest

from nscaching.errors import UserError
from nscaching.nodes import embed_nodes

from .helpers import two_cliques
from .test_embedding import QUICK


@pytest.fixture(scope="module")
def embedding():
    return embed_nodes(two_cliques(), **QUICK)


def test_a_picture_shows_every_class(tmp_path, embedding):
    pytest.importorskip("matplotlib")
    written = embedding.picture(tmp_path / "p.svg")
    drawn = written.read_text()
    assert "left" in drawn
    assert "right" in drawn
    assert embedding.picture(tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match="end it in"):
        embedding.picture(tmp_path / "p.doc")


def test_without_matplotlib_a_sentence_says_what_to_install(tmp_path, embedding, monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest, **more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UserError, match=r"nscaching\[plot\]"):
        embedding.picture(tmp_path / "p.png")
