"""Probabilities from scores: logistic regression per relation, shrunk to that of all relations.

Fitted on the valid split. Two probabilities are told apart, because they are about different
collections of triples:

- of a *claim*, a triple that somebody states: facts are held against as many negatives, half of
  the right type (the entity stands in that position somewhere in training) and half any entity.
- of an *answer*, a triple found by looking through all questions: nearly all of those are false. A
  curve is fitted on a sample of all plausible questions with all their candidates, weighted to
  stand for the whole. Missing facts are among its negatives, as nobody knows them; they are taken
  out again under the assumption that the graph lacks as many facts as valid holds, and like those.

Facts that people rejected are negatives of both. Test triples serve for nothing but to be left out
of the negatives, as in filtered ranking.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from nscaching.artefacts.showing import frame
from nscaching.errors import HOLD_OUT, UserError, plural
from nscaching.evaluation.classification import score_triples
from nscaching.evaluation.evidence import Evidence, Features
from nscaching.evaluation.negatives import claims_of
from nscaching.evaluation.positions import Positions, is_among
from nscaching.evaluation.questions import most_questions, question_sample, sample_size
from nscaching.evaluation.ranking import KnownAnswers, known_positives
from nscaching.evaluation.regression import Curve, expit, fit_curve, logit
from nscaching.graph import KnowledgeGraph
from nscaching.graph.names import REJECTED, Bools, Floats, Integers
from nscaching.models import EmbeddingModel, Side

FORMAT = 4
#: A claim is an answer to both of its questions.
_BOTH = (Side.TAIL, Side.HEAD)
_DIGEST_ROWS = 2000
#: Facts of valid below which probabilities are remarked on.
_FEW_FACTS = 30
#: Candidates per question: the best by score, some of the right type, some of any (of those drawn).
_BEST, _TYPED, _ANY, _DRAWN = 20, 5, 5, 64
#: What a row of a fit takes at most: some 20 numbers of its own, and some 80 in the regression.
_ROW_BYTES = 900
#: Features whose weight is each relation's own: the log-softmax, whether the entities were seen in
#: their positions (of the anchor of a question: whether it has an answer already).
_OWN_OF_CLAIMS, _OWN_OF_ANSWERS = (0, 2, 4, 8), (0, 2, 6)
#: What the weights are where facts are too few to tell: about those of graphs with many.
_EXPECTED_OF_CLAIMS = (0.5, 0.2, 0.3, 0.2, *(0.5, 0.0, 0.3, -1.0), *(0.0, 0.0, 0.3, -1.0))
_EXPECTED_OF_ANSWERS = (1.0, 0.2, *(1.0, 0.0, 0.2, -2.0), *(0.0, 0.0, 1.0, -4.0, 1.0))
#: Share of the missing facts that are taken out of the negatives of answers.
TAKEN_OUT = 0.99


@dataclass(frozen=True)
class Calibration:
    """Everything that turns the scores of one model into probabilities."""

    model: str  #: digest of the model whose scores it reads
    temperature: float
    claims: Curve
    #: By side, of (?, r, t) and of (h, r, ?): facts of valid against what is not known;
    #: :func:`answer_logits` makes them log-odds of answers.
    answers: tuple[Curve, Curve]
    facts: int  #: of valid, that it is fitted on

    @property
    def remark(self) -> str | None:
        """A sentence on probabilities that rest on few facts; None where they do not."""
        if self.facts >= _FEW_FACTS:
            return None
        some = plural(self.facts, "fact")
        return f"The probabilities rest on {some} of valid: take them as an order only."

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        answers = [curve.as_dict() for curve in self.answers]
        claims = self.claims.as_dict()
        return {"format": FORMAT, **self.__dict__, "claims": claims, "answers": answers}

    @classmethod
    def from_dict(
        cls, given: Mapping[str, Any], model: EmbeddingModel, relations: int
    ) -> Calibration:
        """Read what :meth:`as_dict` wrote; ValueError for anything else, or of another model."""
        try:
            if given["format"] != FORMAT or given["model"] != digest_of(model):
                raise ValueError("it is of another model or version")
            temperature = float(given["temperature"])
            claims = Curve.from_dict(given["claims"], 12, relations)
            head, tail = (Curve.from_dict(part, 11, relations) for part in given["answers"])
            facts = int(given["facts"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"it lacks a part ({error})") from error
        return cls(given["model"], temperature, claims, (head, tail), facts)


def fit_calibration(
    model: EmbeddingModel, graph: KnowledgeGraph, *, memory_mb: int = 512
) -> Calibration:
    """Fit probabilities on the valid split; the same for the same model and graph."""
    if len(graph.valid) == 0:
        raise UserError(
            f"The graph '{graph.name}' has no valid triples, and probabilities come from them. "
            f"{HOLD_OUT}"
        )
    evidence = Evidence(model, graph, memory_mb=memory_mb)
    refused = graph.labelled.get(REJECTED, np.zeros((0, 4)))[:, :3].astype(np.int64)
    facts, most = graph.valid.astype(np.int64), sample_size(graph)
    if len(facts) > most:
        random = np.random.default_rng([0, 0])
        facts = facts[np.sort(random.choice(len(facts), size=most, replace=False))]
    triples, true, _ = claims_of(graph, facts)
    triples = np.concatenate([triples, refused])
    true = np.concatenate([true, np.zeros(len(refused), dtype=bool)])
    # As many facts as negatives.
    weights = np.where(true, (~true).sum() / max(1, true.sum()), 1.0)
    features = evidence.of_answers(triples, _BOTH)
    relations = graph.num_relations
    about = _OWN_OF_CLAIMS, _EXPECTED_OF_CLAIMS
    claims = fit_curve(features, triples[:, 1], true, weights, relations, *about)
    # Those of the score to the question for each side, of facts and of what was rejected.
    asked = features[np.r_[: len(facts), len(triples) - len(refused) : len(triples)]]
    scores = {Side.TAIL: asked[:, :2], Side.HEAD: asked[:, 2:4]}
    head, tail = (_fit_answers(evidence, facts, refused, scores[side], side) for side in Side)
    curves = claims, (head, tail)
    return Calibration(digest_of(model), evidence.temperature, *curves, len(facts))


def fit_bytes(graph: KnowledgeGraph) -> int:
    """Return what a fit of answers holds at once: rows, and what the regression makes of them."""
    candidates = min(_BEST, graph.num_entities) + _TYPED + _ANY
    facts = min(len(graph.valid), sample_size(graph))
    return _ROW_BYTES * (facts + most_questions(graph) * candidates)


def digest_of(model: EmbeddingModel) -> str:
    """Return a digest of some thousand rows of a model: another model has another."""
    digest = hashlib.sha256()
    for table in model.parameters():
        some = table[:: max(1, len(table) // _DIGEST_ROWS)].detach().float()
        rows = some.cpu().contiguous().numpy()
        digest.update(np.array(table.shape, dtype="<i8").tobytes() + rows.astype("<f4").tobytes())
    return digest.hexdigest()


def _fit_answers(
    evidence: Evidence, facts: Integers, refused: Integers, asked: Features, side: Side
) -> Curve:
    """Fit how likely an answer to a question for this side is in valid, and not unknown.

    ``asked`` are the features of the score of facts and of rejected facts. A rejected fact weighs
    as much as a fact of valid.
    """
    graph = evidence.graph
    random = np.random.default_rng([0, 2 + side])
    each = len(graph.valid) / len(facts)
    triples = [facts, refused]
    weights = [np.full(len(facts), each), np.full(len(refused), each)]
    known = known_positives(graph, graph.test)[side]
    scores = [asked]
    questions = question_sample(evidence, side, random)
    chunk = evidence.chunk()
    for start in range(0, len(questions[0]), chunk):
        block = tuple(part[start : start + chunk] for part in questions)
        found = _candidates(evidence, known, side, block, random)
        triples.append(found[0])
        weights.append(found[1])
        scores.append(found[2])
    rows = np.concatenate(triples)
    true = np.arange(len(rows)) < len(facts)
    # Positives weigh 1 each: the penalty of the regression is per fact.
    scaled = np.concatenate(weights) * len(facts) / len(graph.valid)
    answer = evidence.entity_features(rows, side)
    anchor = evidence.entity_features(rows, side.other, asked=True)
    features = np.concatenate([np.concatenate(scores), answer, anchor], axis=1)
    about = _OWN_OF_ANSWERS, _EXPECTED_OF_ANSWERS
    return fit_curve(features, rows[:, 1], true, scaled, graph.num_relations, *about)


def _candidates(
    evidence: Evidence,
    answers: KnownAnswers,
    side: Side,
    questions: tuple[npt.NDArray[Any], ...],
    random: np.random.Generator,
) -> tuple[Integers, Floats, Features]:
    """Return negatives of questions, how many each stands for, and their features of the score.

    The best ones, some of the right type and some others. Questions are anchors, relations and
    weights; shapes: (b,) -> (n, 3), (n,), (n, 2).
    """
    graph = evidence.graph
    anchors, relations, each = questions
    asked = evidence.ask(side, anchors, relations)
    row, known = answers.of(anchors, relations)
    place = torch.from_numpy(row), torch.from_numpy(known)
    kept = asked.scores[place]
    asked.scores[place] = -torch.inf
    best = asked.scores.topk(min(_BEST, graph.num_entities), dim=1).indices.cpu().numpy()
    asked.scores[place] = kept
    first = np.searchsorted(row, np.arange(len(anchors) + 1))
    entities, owners, weights = [], [], []
    for number, (anchor, relation) in enumerate(zip(anchors.tolist(), relations, strict=True)):
        out = known[first[number] : first[number + 1]]
        if int(relation) not in graph.relations_with_loops:
            out = np.append(out, anchor)
        top = best[number][~np.isin(best[number], out)]
        out = np.union1d(out, best[number])
        seen = evidence.positions.entities_at(side, int(relation))
        free = random.choice(graph.num_entities, min(_DRAWN, graph.num_entities), replace=False)
        seen_out = out[is_among(out, seen)]
        seen_left = np.delete(seen, np.searchsorted(seen, seen_out.astype(seen.dtype)))
        others = graph.num_entities - len(seen_left) - len(out)
        typed = random.choice(seen_left, min(_TYPED, len(seen_left)), replace=False)
        free = free[~is_among(free, seen) & ~is_among(free, out)][:_ANY]
        for chosen, stand_for in ((top, len(top)), (typed, len(seen_left)), (free, others)):
            entities.append(chosen)
            owners.append(np.full(len(chosen), number))
            weights.append(np.full(len(chosen), each[number] * stand_for / max(1, len(chosen))))
    owner, entity = np.concatenate(owners), np.concatenate(entities)
    triples = np.stack([entity, relations[owner], anchors[owner]], axis=1)
    rows, ids = (torch.from_numpy(part).to(asked.scores.device) for part in (owner, entity))
    features = asked.of_scores(evidence.temperature, rows, asked.scores[rows, ids])
    return (
        triples if side is Side.HEAD else triples[:, ::-1],
        np.concatenate(weights),
        features.double().cpu().numpy(),
    )


def claim_logits(
    evidence: Evidence,
    calibration: Calibration,
    triples: Integers,
    positions: Positions | None = None,
    own: Bools | None = None,
) -> Floats:
    """Return the log-odds of claims of which, before they are seen, one in two is true.

    ``positions`` are those of the training triples, unless others are given; ``own`` says which
    claims are training triples.
    """
    features = evidence.of_answers(triples, _BOTH, positions, own)
    return calibration.claims.logits(features, triples[:, 1])


def answer_logits(fitted: Floats) -> Floats:
    """Return the log-odds that new answers are true, from those that the curve of answers gives.

    The curve sets v facts of valid against all that is not known: n false triples and m missing
    facts, at the same features. With m = v the probability of a new answer is
    q = m / (n + m) = v / (n + m): the odds of the curve, not its probability (as in Elkan and Noto,
    2008, where half of the positives have a label). Said otherwise, q has the odds of valid to
    what is false: v / (n + m - t m) with t = 1, which is odds / (1 - t q).

    Where the curve has odds above 1 there are fewer candidates than facts to be expected, and q
    would be above 1. With t = .99 it approaches 1 instead: at odds of .5, 1 and 2 it is .50, .91
    and .99. It rises with the odds, so that the order of answers is that of the curve.
    """
    odds = np.exp(np.clip(fitted, -100, 100))
    # The smaller root of t q^2 - (1 + odds) q + odds = 0.
    chances = 2 * odds / (1 + odds + np.sqrt((1 - odds) ** 2 + 4 * (1 - TAKEN_OUT) * odds))
    logits: Floats = fitted - np.log1p(-TAKEN_OUT * chances)
    return logits


# How good they are: reliability diagrams and expected calibration error --------------------------


@dataclass(frozen=True)
class ReliabilityBin:
    """Triples whose probability lies between two bounds."""

    low: float
    high: float
    count: int
    predicted: float  #: mean probability; NaN for no triple
    true: float  #: share that is true; NaN for no triple


@dataclass(frozen=True)
class CalibrationReport:
    """How probabilities compare with how many triples are true, before and after calibration.

    Before: the logistic function of the raw score. ECE is the expected calibration error, the mean
    distance of probability and share over the bins.
    """

    split: str
    count: int
    facts: int
    ece: float
    ece_before: float
    brier: float
    brier_before: float
    bins: tuple[ReliabilityBin, ...]
    bins_before: tuple[ReliabilityBin, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values; NaN becomes None."""
        plain = asdict(self)
        for part in (*plain["bins"], *plain["bins_before"]):
            part.update({key: None for key, value in part.items() if value != value})
        return {**plain, "bins": list(plain["bins"]), "bins_before": list(plain["bins_before"])}

    def to_frame(self) -> Any:
        """Return a pandas data frame, one row per bin, after calibration and before."""
        both = {"after": self.bins, "before": self.bins_before}
        return frame([{"of": of, **asdict(part)} for of, bins in both.items() for part in bins])

    def __repr__(self) -> str:
        return (
            f"<CalibrationReport of {self.split}: ECE {self.ece:.4f} "
            f"(before {self.ece_before:.4f}), {self.count:,} triples>"
        )


def calibration_report(
    evidence: Evidence, calibration: Calibration, *, split: str, seed: int = 0, bins: int = 15
) -> CalibrationReport:
    """Compare probabilities with truth on a split's facts and negatives of both kinds."""
    graph = evidence.graph
    triples, true, _ = claims_of(graph, graph.split(split).astype(np.int64), seed=seed + 1)
    after = expit(claim_logits(evidence, calibration, triples) + logit(float(true.mean())))
    before = expit(score_triples(evidence.model, triples).astype(np.float64))
    reliability = [reliability_bins(chances, true, bins) for chances in (after, before)]
    errors = [expected_calibration_error(part) for part in reliability]
    return CalibrationReport(
        split=split,
        count=len(triples),
        facts=int(true.sum()),
        ece=errors[0],
        ece_before=errors[1],
        brier=float(((after - true) ** 2).mean()),
        brier_before=float(((before - true) ** 2).mean()),
        bins=reliability[0],
        bins_before=reliability[1],
    )


def reliability_bins(chances: Floats, true: Bools, bins: int = 15) -> tuple[ReliabilityBin, ...]:
    """Return what a reliability diagram draws: bins of equal width. Shapes: (n,), (n,)."""
    place = np.minimum((chances * bins).astype(np.int64), bins - 1)
    count = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):  # NaN for an empty bin
        means = [np.bincount(place, each, bins) / count for each in (chances, true)]
    parts = zip(count.tolist(), *(mean.tolist() for mean in means), strict=True)
    return tuple(ReliabilityBin(n / bins, (n + 1) / bins, *part) for n, part in enumerate(parts))


def expected_calibration_error(bins: tuple[ReliabilityBin, ...]) -> float:
    """Return the distance of probability and share, averaged over triples."""
    off = sum(part.count * abs(part.predicted - part.true) for part in bins if part.count)
    return off / max(1, sum(part.count for part in bins))
