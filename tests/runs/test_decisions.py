"""Answers with probabilities, discovery, and what people see of them."""

import inspect
import json

import numpy as np
import pandas
import pyarrow.parquet
import pytest
import torch

import nscaching as ns
from nscaching import KnowledgeGraph, UserError
from nscaching.evaluation.calibration import answer_logits, claim_logits
from nscaching.graph import read_triples
from nscaching.graph.names import REJECTED
from nscaching.models import Side
from nscaching.training import Progress

from .test_run import run_of


def known_triples(graph):
    return {
        (graph.entities[h], graph.relations[r], graph.entities[t])
        for split in ("train", "valid", "test")
        for h, r, t in graph.split(split).tolist()
    }


# Answers ------------------------------------------------------------------------------------------


def test_the_probability_of_an_answer_is_that_of_its_triple(towns):
    for answers in (
        towns.predict_tails("town1.1", "near", k=200, known=True),
        towns.predict_tails("town1.1", "in country", k=5, contradictions=True),
    ):
        for answer in answers:
            judged = towns.judge(*answer.triple)
            assert judged.probability == pytest.approx(answer.probability, abs=1e-4)
            assert judged.flags == answer.flags
            assert judged.split == answer.split


def test_a_list_of_heads_is_answered_in_order(towns):
    both = towns.predict_tails(["town1.1", "town2.2"], "near", k=3)
    one, two = (towns.predict_tails(head, "near", k=3) for head in ("town1.1", "town2.2"))
    assert [answer.triple for answer in both] == [answer.triple for answer in [*one, *two]]
    heads = towns.predict_heads("in country", ["land1", "land2"], k=2, unlikely=True)
    assert [answer.tail for answer in heads] == ["land1", "land1", "land2", "land2"]


def test_many_questions_at_once(towns, tmp_path):
    questions = [
        ("town1.1", "near", None),
        ("?", "in country", "land2"),
        ("town1.1", "near", "land1"),
    ]
    found = towns.ask(questions, k=2, unlikely=True)
    assert found[:2] == towns.predict_tails("town1.1", "near", k=2)
    assert found[2:4] == towns.predict_heads("in country", "land2", k=2, unlikely=True)
    assert found[4] == towns.judge("town1.1", "near", "land1")
    file = tmp_path / "questions.tsv"
    file.write_text("town1.1\tnear\t?\n?\tin country\tland2\ntown1.1\tnear\tland1\n")
    assert towns.ask(file, k=2, unlikely=True) == found
    asked = [("town1.1", "near", None), ("x", "near", None), ("town1.2", "nearr", "y")]
    every = "Question 2: no entity 'x'.* Question 3: no relation .*'near'. Question 3: .*'y'"
    with pytest.raises(UserError, match=every):
        towns.ask(asked)
    for wrong, said in (
        ([("?", "near", "?")], "Question 1: a question names"),
        ([("x", "near", None)], "Question 1: .*no entity 'x'"),
        (["near"], "is none"),
    ):
        with pytest.raises(UserError, match=said):
            towns.ask(wrong)


def test_questions_that_repeat_and_mix_are_answered_in_their_order(towns):
    heads = ["town1.1", "town2.2", "town1.1", "town0.3"]
    asked = [(head, relation, None) for head in heads for relation in ("near", "speaks")]
    asked.insert(3, (None, "near", "town1.1"))
    asked.insert(5, ("town2.2", "near", "town1.1"))
    expected = []
    for head, relation, tail in asked:
        if head is None:
            expected += towns.predict_heads(relation, tail, k=2)
        elif tail is None:
            expected += towns.predict_tails(head, relation, k=2)
        else:
            expected.append(towns.judge(head, relation, tail))
    found = towns.ask(asked, k=2)
    assert [each.triple for each in found] == [each.triple for each in expected]
    answered = {(each.head, each.relation) for each in found if each.relation == "speaks"}
    silent = [each for each in asked if each[1] == "speaks" and each[:2] not in answered]
    assert found.unanswered == silent


def test_an_array_of_ids_is_checked_as_names_are(towns):
    ids = towns.graph.test[:5]
    names = [towns.graph.named(row) for row in ids.tolist()]
    assert np.array_equal(towns.score(ids), towns.score(names))
    with pytest.raises(UserError, match="There is no entity 9999"):
        towns.score(np.array([[0, 0, 9999]]))
    with pytest.raises(UserError, match="none"):
        towns.score(np.array([[0, 0]]))


def test_a_question_may_have_as_many_answers_as_there_are(towns):
    asked = {"relations": "near", "heads": "town1.1", "contradictions": True, "unlikely": True}
    every = towns.discover(5000, per_question=None, **asked)
    assert len(every) == len(towns.discover(5000, per_question=5000, **asked)) > 100
    answers = towns.predict_tails("town1.1", "near", k=5000, contradictions=True, unlikely=True)
    assert {each.triple for each in every} == {each.triple for each in answers}


def test_flags_say_what_the_graph_knows(towns):
    graph = towns.graph
    h, _, t = next(row for row in graph.train.tolist() if graph.relations[row[1]] == "in country")
    town, land = graph.entities[h], graph.entities[t]
    other = "land0" if land != "land0" else "land1"
    wrong = towns.judge(town, "in country", other)
    assert wrong.contradicts == (town, "in country", land)
    assert f"contradicts {town} · in country · {land}" in wrong.flags
    right = towns.judge(town, "in country", land)
    assert right.contradicts is None
    assert right.split == "train"
    odd = towns.judge(town, "in country", "language1")
    assert not odd.seen
    assert "never seen with this relation" in odd.flags


def test_an_entity_that_stands_there_once_as_a_rule_is_not_flagged_as_new_there(towns):
    """Every town has one country, so that a new head of the relation is the expected thing."""
    heads = [
        a for a in towns.predict_heads("in country", "land1", k=50, unlikely=True) if not a.seen
    ]
    assert heads
    assert all(not answer.recurs and not answer.flags for answer in heads)


def test_second_answers_are_left_out_unless_asked_for(towns):
    graph = towns.graph
    h, _, t = next(row for row in graph.train.tolist() if graph.relations[row[1]] == "in country")
    town, land = graph.entities[h], graph.entities[t]
    assert towns.predict_tails(town, "in country") == []
    (known,) = towns.predict_tails(town, "in country", known=True)
    assert known.tail == land
    kept = towns.predict_tails(town, "in country", contradictions=True, unlikely=True)
    assert len(kept) == 10
    assert all(answer.contradicts == (town, "in country", land) for answer in kept)
    raw = towns.predict_tails(town, "in country", by="score")
    assert len(raw) == 10
    answers = towns.predict_heads("in country", land, k=200, unlikely=True)
    heads = {answer.head for answer in answers}
    homes = {h for h, r, t in known_triples(graph) if r == "in country"}
    assert heads
    assert not heads & homes


def test_an_answer_that_was_never_seen_there_must_be_likely(towns):
    everything = towns.predict_heads("in country", "land1", k=500, unlikely=True)
    assert any(not answer.seen and answer.probability < 0.01 for answer in everything)
    shown = towns.predict_heads("in country", "land1", k=500)
    assert shown == [a for a in everything if a.seen or a.probability >= 0.01]
    with_facts = towns.predict_heads("in country", "land1", k=500, known=True)
    facts = [answer for answer in with_facts if answer.known]
    assert len(facts) == len(towns.graph.answers("head", *_ids(towns, "land1", "in country")))
    by_score = towns.predict_heads("in country", "land1", k=500, by="score")
    assert len(by_score) > len(everything)


def _ids(run, entity, relation):
    return run.graph.entity_id(entity), run.graph.relation_id(relation)


def test_answers_out_of_range_are_rarer_than_by_score(towns):
    heads = [name for name in towns.graph.entities if name.startswith("town")]

    def out_of_range(by):
        answers = towns.predict_tails(heads, "speaks", k=1, by=by, contradictions=True)
        return sum(not answer.seen for answer in answers)

    assert out_of_range("probability") < out_of_range("score") / 2


def test_without_valid_answers_have_no_probability():
    graph = KnowledgeGraph(["a", "b", "c"], ["r"], [[0, 0, 1], [1, 0, 2]])
    run = run_of(graph)
    assert [answer.probability for answer in run.predict_tails("a", "r")] == [None]
    assert run.discover(3)
    with pytest.raises(UserError, match="no valid triples"):
        run.probabilities([("a", "r", "c")])


# Probabilities ------------------------------------------------------------------------------------


def test_claims_are_calibrated_and_follow_their_prior(towns):
    report = towns.calibration_report("test")
    assert report.ece < report.ece_before
    assert report.ece < 0.1
    assert report.facts == len(towns.graph.test)
    assert json.loads(json.dumps(report.as_dict()))["split"] == "test"
    half = towns.probabilities([("town1.1", "in country", "land1")])
    low = towns.probabilities([("town1.1", "in country", "land1")], prior=0.01)
    assert low < half
    assert half / (1 - half) == pytest.approx(99 * low / (1 - low), rel=1e-6)
    with pytest.raises(UserError, match="prior"):
        towns.probabilities([], prior=1.0)


def test_a_claim_that_contradicts_the_graph_is_no_more_probable_than_as_an_answer(towns):
    graph, asker = towns.graph, towns._asker
    of_country = graph.train[graph.train[:, 1] == graph.relation_id("in country")]
    lies = [(h, r, t) for h, r, _ in of_country.tolist() for t in (0, 1)]
    judged = [towns.judge(*lie) for lie in lies]
    against = np.array([j.contradicts is not None and j.split is None for j in judged])
    assert against.any()
    as_answers = logit_of(np.array([each.probability for each in judged]))
    alone = claim_logits(asker.evidence, asker.calibration, np.array(lies), asker.whole)
    assert (alone > as_answers + 0.1)[against].any()
    told = logit_of(towns.probabilities(lies))[against]
    assert np.allclose(told, np.minimum(alone, as_answers)[against], atol=1e-3)


def logit_of(chances):
    return np.log(chances / (1 - chances))


def test_verdicts_say_what_judge_says_and_have_a_frame(towns):
    graph = towns.graph
    triples = [graph.named(row) for row in (*graph.train[:3], *graph.test[:3])]
    triples.append(("town1.1", "near", "land1"))
    verdicts = towns.classify(triples)
    labels, margins = verdicts
    frame = verdicts.to_frame()
    assert frame["tail"].tolist() == [triple[2] for triple in triples]
    assert frame["label"].tolist() == labels.tolist()
    assert frame["margin"].tolist() == margins.tolist()
    assert np.allclose(frame["probability"], towns.probabilities(triples))
    assert frame["undecided"].tolist() == (labels != (frame["probability"] >= 0.5)).tolist()
    judged = [towns.judge(*triple) for triple in triples]
    assert [claim.flags for claim in verdicts.claims] == [each.flags for each in judged]
    assert [claim.split for claim in verdicts.claims] == [each.split for each in judged]
    assert verdicts.as_dicts()[0]["undecided"] is bool(verdicts.undecided[0])
    assert len(towns.classify([]).to_frame()) == 0


def test_a_rejected_fact_is_flagged():
    graph = KnowledgeGraph(["a", "b", "c"], ["r"], [[0, 0, 1], [1, 0, 2]])
    graph.labelled[REJECTED] = np.array([[2, 0, 0, -1]])
    run = run_of(graph)
    assert "rejected" in run.judge("c", "r", "a").flags
    assert run.judge("a", "r", "b").flags == []


def test_the_calibration_is_kept_in_the_folder(towns):
    before = towns.predict_tails("town1.1", "near", k=5)
    file = towns.folder.path / "calibration.json"
    assert file.stat().st_size < 20_000
    written = file.read_bytes()
    again = ns.load_run(towns.folder.path)
    assert again.predict_tails("town1.1", "near", k=5) == before
    assert file.read_bytes() == written
    file.write_text("{")  # damaged: it is made again
    assert ns.load_run(towns.folder.path).predict_tails("town1.1", "near", k=5) == before
    assert file.read_bytes() == written


# Discovery ----------------------------------------------------------------------------------------


def every_candidate(run):
    """Return all new facts with plausible heads and their probability, by brute force."""
    found = []
    for relation in range(run.graph.num_relations):
        plausible = run._asker.evidence.positions.column(Side.HEAD, relation).plausible
        for head in np.flatnonzero(plausible).tolist():
            found += run.predict_tails(
                head, relation, k=run.graph.num_entities, contradictions=True, unlikely=True
            )
    return found


def test_discovered_facts_are_the_most_probable_of_all(towns):
    found = towns.discover(40, per_question=None, contradictions=True)
    chances = [fact.probability for fact in found]
    assert chances == sorted(chances, reverse=True)
    everything = sorted((fact.probability for fact in every_candidate(towns)), reverse=True)
    assert np.allclose(chances, everything[:40], atol=1e-6)
    assert not {fact.triple for fact in found} & known_triples(towns.graph)


@pytest.mark.parametrize("scoring", ["complex", "transe", "rotate"])
def test_questions_without_a_chance_are_skipped_and_the_facts_are_the_same(
    towns, scoring, monkeypatch
):
    """The slow twin asks every question and looks at every answer."""
    run = towns if scoring == "complex" else run_of(towns.graph, scoring, dim=8)
    asker = run._asker
    monkeypatch.setattr(asker.evidence, "chunk", lambda: 7)
    kept, ask = [], asker.evidence.ask

    def counted(*given):
        questions = ask(*given)
        kept.append(len(questions.rows))
        return questions

    monkeypatch.setattr(asker.evidence, "ask", counted)
    for n, options in (
        (3, {}),
        (40, {"per_question": None, "contradictions": True}),
        (40, {"per_question": 1, "per_answer": 2}),
        (40, {"per_relation": 5}),
        (20, {"tails": [f"land{number}" for number in range(4)], "unlikely": True}),
    ):
        kept.clear()
        found, worth = run.discover(n, **options), sum(kept)
        with monkeypatch.context() as patch:
            patch.setattr(
                asker, "highest", lambda side, r, anchors, _=None: torch.full((len(anchors),), 1e9)
            )
            assert run.discover(n, **options) == found
        if (n, scoring) == (3, "complex"):
            assert worth < sum(kept) - worth  # how many depends on the rounding of a machine
        assert found


def test_no_answer_is_above_the_bound_of_its_question(towns):
    asker = towns._asker
    for relation in range(towns.graph.num_relations):
        heads = np.flatnonzero(asker.evidence.positions.column(Side.HEAD, relation).plausible)
        every = asker.ask(Side.TAIL, relation, heads, towns.graph.num_entities)
        questions = asker.evidence.ask(Side.TAIL, heads, np.full(len(heads), relation))
        known = asker.evidence.known_answers(Side.TAIL, heads, np.full(len(heads), relation))
        questions.scores[known] = -np.inf
        highest = (questions.scores.amax(dim=1) - questions.mean) / questions.spread
        for bound in (
            asker.highest(Side.TAIL, relation, heads, highest),
            asker.highest(Side.TAIL, relation, heads),
        ):
            assert (every.logit <= bound.numpy()[np.searchsorted(heads, every.triples[:, 0])]).all()
            assert bound.isfinite().all()


def test_memory_and_blocks_change_nothing(towns):
    whole = towns.discover(30)
    assert towns.discover(30, memory_mb=1) == whole
    assert towns.config.eval_memory == towns._asker.evidence.memory_mb


def test_a_long_discovery_says_so(towns, monkeypatch, capsys):
    monkeypatch.setattr("nscaching.runs.discover._MANY_SCORES", 1)
    towns.discover(3, relations="near", progress=Progress("lines"))
    told = capsys.readouterr().err
    assert f"questions with {towns.graph.num_entities} candidates each" in told
    towns.discover(3, progress=Progress("none"))
    assert capsys.readouterr().err == ""


def test_a_fact_of_training_does_not_speak_against_itself(towns):
    """A relation with one answer has it: the fact itself, which is no second answer."""
    graph = towns.graph
    of_country = graph.train[graph.train[:, 1] == graph.relation_id("in country")]
    facts = [graph.named(triple) for triple in of_country[:40].tolist()]
    evidence, itself = towns._asker.evidence, np.ones(len(of_country), dtype=bool)
    for judged in (
        evidence.of_answers(of_country, (Side.TAIL,), own=itself)[:, 6:10],
        evidence.of_answers(of_country, (Side.TAIL, Side.HEAD), own=itself)[:, 8:],
    ):
        seen, counts, _, taken = judged.T  # a town has one country: without the fact it has none
        assert not np.any([seen, counts, taken])
    curve = towns._asker.calibration.answers[Side.TAIL]
    without = curve.logits(
        evidence.of_answers(of_country, (Side.TAIL,), own=itself), of_country[:, 1]
    )
    assert np.allclose(towns._asker.logits(of_country), answer_logits(without))
    for head, relation, tail in facts[:5]:
        (answer,) = [
            found for found in towns.predict_tails(head, relation, known=True) if found.tail == tail
        ]
        assert answer.probability == pytest.approx(towns.judge(head, relation, tail).probability)


def test_diversity_and_contradictions(towns):
    found = towns.discover(60, per_question=1)
    questions = [(fact.head, fact.relation) for fact in found]
    assert len(set(questions)) == len(questions)
    answers = [(f.relation, f.tail) for f in towns.discover(60, per_answer=2)]
    assert max(answers.count(answer) for answer in answers) <= 2
    each = towns.discover(60, per_relation=2, contradictions=True)
    for relation in towns.graph.relations:
        best = towns.discover(2, relations=relation, contradictions=True)
        assert [fact for fact in each if fact.relation == relation] == best
    assert all(fact.contradicts is None for fact in towns.discover(500))
    assert any(fact.contradicts for fact in towns.discover(5000, contradictions=True))


def test_unlikely_facts_with_unseen_tails_are_discovered_only_when_asked_for(towns):
    positions, graph = towns._asker.evidence.positions, towns.graph

    def is_unlikely(fact):
        seen = positions.entities_at(Side.TAIL, graph.relation_id(fact.relation))
        return fact.probability < 0.01 and graph.entity_id(fact.tail) not in seen

    everything = towns.discover(100_000, per_question=None, unlikely=True)
    likely = [fact for fact in everything if not is_unlikely(fact)]
    assert len(likely) < len(everything)
    found = towns.discover(100_000, per_question=None)
    assert not any(map(is_unlikely, found))
    assert {fact.triple for fact in likely} <= {fact.triple for fact in found}


def test_discovery_of_some_relations_heads_and_tails(towns):
    assert {f.relation for f in towns.discover(10, relations="near")} == {"near"}
    assert {f.head for f in towns.discover(10, heads=["town1.1", "town1.2"])} <= {
        "town1.1",
        "town1.2",
    }
    assert {f.tail for f in towns.discover(10, tails="town1.1")} == {"town1.1"}
    some = {"town1.1", "town2.2", "land1"}
    found = {fact.triple for fact in towns.discover(5000, heads=some)}
    assert found == {fact.triple for fact in towns.discover(5000) if fact.head in some}
    with pytest.raises(UserError, match="no relation 'nearby'"):
        towns.discover(3, relations=["nearby"])
    with pytest.raises(UserError, match="n must be at least 1"):
        towns.discover(0)


@pytest.mark.slow
def test_hidden_facts_are_found_better_than_by_score(towns):
    """What test hides: discovered with all else known, against the raw score."""
    graph = towns.graph
    visible = KnowledgeGraph(graph.entities, graph.relations, graph.train, graph.valid)
    run = ns.Run(towns.config, visible, towns.model)
    hidden = {tuple(row) for row in graph.test.tolist()}
    found = run.discover(len(hidden), per_question=None)
    ids = graph.entity_ids, graph.relation_ids
    hits = sum((ids[0][f.head], ids[1][f.relation], ids[0][f.tail]) in hidden for f in found)
    everything = [
        answer
        for relation in graph.relations
        for answer in run.predict_tails(graph.entities, relation, k=3, by="score")
    ]
    best = sorted(everything, key=lambda answer: -answer.score)[: len(hidden)]
    raw = sum((ids[0][f.head], ids[1][f.relation], ids[0][f.tail]) in hidden for f in best)
    assert hits > raw
    assert hits > len(hidden) / 3


# What people see ----------------------------------------------------------------------------------


def test_predictions_as_text_html_and_frames(towns):
    found = towns.discover(8)
    assert repr(found).count("·") == 10
    assert "3 more" in repr(found)
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["head"].tolist() == [fact.head for fact in found]
    assert frame["probability"].tolist() == [fact.probability for fact in found]
    assert found[2:4].to_frame()["head"].tolist() == [found[2].head, found[3].head]
    page = found._repr_html_()
    assert page.count("<tr>") == 9
    hostile = ns.Prediction("<script>alert(1)</script>", "r", "=1+1", 0.0)
    assert "<script>" not in type(found)([hostile])._repr_html_()


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "json"])
def test_predictions_as_files(towns, tmp_path, suffix):
    found = towns.discover(5)
    path = found.write(tmp_path / f"facts.{suffix}")
    readers = {
        "csv": pandas.read_csv,
        "tsv": lambda file: pandas.read_csv(file, sep="\t"),
        "parquet": lambda file: pyarrow.parquet.read_table(file).to_pandas(),
        "json": pandas.read_json,
    }
    read = readers[suffix](path)
    assert read["tail"].tolist() == [fact.tail for fact in found]
    assert np.allclose(read["probability"], [fact.probability for fact in found])


def test_a_spreadsheet_runs_no_formula_and_a_strange_suffix_is_refused(towns, tmp_path):
    hostile = type(towns.discover(1))([ns.Prediction("=1+1", "@r", "-t", 0.0)])
    text = hostile.write(tmp_path / "facts.csv").read_text()
    assert "'=1+1,'@r,'-t" in text
    with pytest.raises(UserError, match="end it in"):
        hostile.write(tmp_path / "facts.xls")


def test_a_run_takes_data_frames_and_predictions_for_triples(towns, tmp_path):
    found = towns.discover(4)
    triples = [fact.triple for fact in found]
    frame = found.to_frame()
    for given in (found, frame, pyarrow.Table.from_pandas(frame)):
        assert np.array_equal(towns.score(given), towns.score(triples))
        assert np.array_equal(towns.classify(given)[1], towns.classify(triples)[1])
        assert np.array_equal(towns.probabilities(given), towns.probabilities(triples))
    questions = frame.assign(tail="?")
    assert (
        towns.ask(questions, k=1)[0].triple == towns.predict_tails(*triples[0][:2], k=1)[0].triple
    )
    with pytest.raises(UserError, match="has the columns head, relation; expected"):
        towns.score(frame[["head", "relation"]])
    with pytest.raises(UserError, match=r"Give a list of \(head, relation, tail\); 3 is none"):
        towns.score([3])


def test_names_that_look_like_formulas_come_back_from_csv(towns, tmp_path):
    names = [("=1+1", "@r", "-5"), ("'=1", "''-x", "'s-Hertogenbosch"), ("+49", "'r", "a")]
    written = type(towns.discover(1))([ns.Prediction(*triple, 0.0) for triple in names])
    assert read_triples(written.write(tmp_path / "facts.csv")) == names
    assert read_triples(written.write(tmp_path / "facts.tsv")) == names
    theirs = tmp_path / "theirs.csv"  # only our own tables have an apostrophe too many
    theirs.write_text("head,relation,tail\n'-a,r,'=b\n")
    assert read_triples(theirs) == [("'-a", "r", "'=b")]


def test_reports_as_text_html_and_frames(towns):
    ranking, classes = towns.evaluate("test"), towns.classification("test")
    assert repr(ranking).startswith(f"<RankingReport of test: MRR {ranking.mrr:.4f}")
    assert repr(classes).startswith("<ClassificationReport of test: accuracy")
    frame = ranking.to_frame()
    assert frame["of"].tolist()[:3] == ["both sides", "heads", "tails"]
    assert frame["mrr"][0] == ranking.mrr
    assert classes.to_frame()["relation"].tolist() == list(classes.per_relation)
    bins = towns.calibration_report("test")
    frame = bins.to_frame()
    assert frame["of"].tolist() == ["after"] * len(bins.bins) + ["before"] * len(bins.bins)
    assert frame["count"][: len(bins.bins)].tolist() == [each.count for each in bins.bins]
    near = towns.neighbours("town1.1", k=3)
    assert near.to_frame()["similarity"].tolist() == [each.similarity for each in near]
    for report in (ranking, classes):
        assert "<table>" in report._repr_html_()


def test_a_run_in_memory_has_a_history_and_train_names_its_options():
    run = ns.train([("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a")], epochs=3, progress="none")
    assert [line["epoch"] for line in run.history if line["event"] == "epoch"] == [1, 2, 3]
    named = inspect.signature(ns.train).parameters
    assert named["epochs"].default == ns.TrainConfig().epochs
    assert {"scoring", "dim", "lr", "out"} <= set(named)


def test_the_history_has_a_line_per_epoch(towns):
    epochs = [line["epoch"] for line in towns.history if line["event"] == "epoch"]
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(epochs) >= 5
    assert "best valid MRR" in repr(towns.history)
    assert towns.history.to_frame()["loss"].notna().sum() == len(epochs)
