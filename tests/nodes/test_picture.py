import xml.etree.ElementTree as ET

import pytest

from nscaching.errors import UserError
from nscaching.nodes import embed_nodes

from .helpers import two_cliques
from .test_embedding import QUICK


@pytest.fixture(scope="module")
def embedding():
    return embed_nodes(two_cliques(), **QUICK)


def test_a_picture_shows_every_class(tmp_path, embedding):
    written = embedding.picture(tmp_path / "p.svg")
    drawn = written.read_text()
    assert "left" in drawn
    assert "right" in drawn
    dots = [each for each in ET.fromstring(drawn).iter() if "dots" in each.get("class", "")]
    points = sum(each.get("d", "").count("M") for each in dots)
    assert points == len(embedding.graph) + 2  # and two in the legend


def test_vectors_of_one_dimension_are_drawn(tmp_path):
    embedding = embed_nodes(two_cliques(), **{**QUICK, "dim": 1})
    assert embedding.picture(tmp_path / "p.svg").read_text().startswith("<svg")


def test_other_kinds_of_file_and_missing_folders_are_refused(tmp_path, embedding):
    with pytest.raises(UserError, match="end it in"):
        embedding.picture(tmp_path / "p.png")
    with pytest.raises(UserError, match="no folder"):
        embedding.picture(tmp_path / "none" / "p.svg")
