"""Embeddings as a scikit-learn transformer."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from nscaching import Run, TrainConfig, UserError
from nscaching.interop import EntityVectors

from ..conftest import random_graph, random_model
from ..training.helpers import train


@pytest.fixture(scope="module")
def run():
    graph = random_graph()
    return Run(TrainConfig(scoring="transe", dim=5), graph, random_model("transe"))


def test_vectors_are_the_embeddings(run):
    names = ["e3", "e0", "e3"]
    vectors = EntityVectors(run).fit_transform(names)
    assert (vectors == run.embeddings()[[3, 0, 3]]).all()
    unit = EntityVectors(run, unit=True).fit_transform(np.array(names)[:, None])
    assert np.allclose(np.linalg.norm(unit, axis=1), 1)


def test_two_columns_stand_side_by_side(run):
    made = EntityVectors(run).fit([["e1", "e2"]])
    vectors = made.transform([["e1", "e2"], ["e4", "e1"]])
    table = run.embeddings()
    assert (vectors == np.hstack([table[[1, 4]], table[[2, 1]]])).all()
    assert len(made.get_feature_names_out()) == vectors.shape[1]
    with pytest.raises(UserError, match="columns"):
        made.transform(["e1"])


def test_unknown_names(run):
    with pytest.raises(UserError, match="no entity 'e99'"):
        EntityVectors(run).fit_transform(["e1", "e99"])
    vectors = EntityVectors(run, unknown="zero").fit_transform(["e1", "e99"])
    assert (vectors[1] == 0).all()
    assert (vectors[0] == run.embeddings()[1]).all()
    with pytest.raises(UserError, match="'never'"):
        EntityVectors(run, unknown="never").fit(["e1"])


def test_in_a_pipeline_from_a_folder(tmp_path):
    trained = train(random_graph(), epochs=1, dim=4, out=tmp_path / "run")
    pipeline = make_pipeline(EntityVectors(tmp_path / "run"), LogisticRegression())
    names = trained.graph.entities
    labels = (trained.embeddings()[:, 0] > 0).astype(int)
    fitted = clone(pipeline).fit(names, labels)
    assert fitted.score(names, labels) > 0.8


def test_columns_of_pandas_go_in_and_out(run):
    pd = pytest.importorskip("pandas")
    made = EntityVectors(run).set_output(transform="pandas")
    out = made.fit_transform(pd.DataFrame({"who": ["e1", "e2"]}))
    assert list(out.columns[:2]) == ["entity0_0", "entity0_1"]
    assert np.allclose(out.to_numpy(), run.embeddings()[[1, 2]])
