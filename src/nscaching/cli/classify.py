"""``nscaching classify``: the accuracy on a split, or which triples of a file are true."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nscaching.cli.ask import caution, notes_on
from nscaching.cli.command import Device, Output, Part, Quiet, RunPath, command, flag, table
from nscaching.errors import UserError, plural
from nscaching.evaluation import ClassificationReport
from nscaching.graph import read_triples
from nscaching.runs.api import load_run
from nscaching.runs.predictions import percent
from nscaching.runs.run import Run
from nscaching.runs.unknown import refuse_unknown
from nscaching.training import Progress


@command()
def classify_command(
    run: RunPath,
    split: str | None = flag(None, "Split to classify: test, valid or train.", shown="test"),
    file: Path | None = flag(
        None, "Instead: a file of triples to label, of any kind that train reads."
    ),
    seed: int = flag(0, "Seed for drawing negatives, where the data set has none.", min=0),
    replaced: str = flag(
        "tail", "Side that is corrupted in drawn negatives: tail, head or either."
    ),
    device: Device = "auto",
    quiet: Quiet = False,
) -> Output:
    """Classify triples as true or false, by a threshold per relation learnt on valid."""
    if file is not None and split is not None:
        raise UserError("Give --split or --file, not both.")
    loaded, progress = load_run(run, device), Progress("none" if quiet else "auto")
    if file is not None:
        labelled = _label(loaded, file, seed, replaced, remarks=not quiet)
        caution(loaded, progress, probabilities=True)
        return labelled
    report = loaded.classification(split or "test", seed=seed, replaced=replaced)
    caution(loaded, progress)
    return Output(report.as_dict(), _shown(loaded, report))


def _shown(run: Run, report: ClassificationReport) -> Iterable[Part]:
    title = f"{report.split} of {run.graph.name}, {report.seconds:.1f} s"
    overall = ("all relations", f"{report.accuracy:.2%}", f"{report.count:,}")
    rows = (
        (
            name,
            f"{part.accuracy:.2%}",
            f"{part.count:,}",
            f"{part.threshold:.3f}{'' if part.own_threshold else '*'}",
        )
        for name, part in report.per_relation.items()
    )
    drawn = f"drawn with seed {report.seed}, {report.replaced} replaced"
    source = drawn if report.negatives == "seeded" else "those of the data set"
    return (
        table(title, ("", "accuracy", "triples"), [overall]),
        table("\nBy relation", ("", "accuracy", "triples", "threshold"), rows),
        f"\n{plural(report.facts, 'fact')}; the negatives are {source}.",
        *report.notes,
    )


_CLAIMS = (
    "These probabilities take a triple to be as likely true as false beforehand. predict and "
    "discover look among all entities, nearly all of which are wrong answers, so the "
    "probabilities that they show are lower."
)
_UNDECIDED = (
    "Undecided: the threshold of the relation says one thing, and the probability, which knows "
    "what the graph says, another. --json has the label by the threshold."
)


def _label(run: Run, file: Path, seed: int, replaced: str, *, remarks: bool) -> Output:
    """Say of each triple of a file whether it is true."""
    triples = read_triples(file)
    refuse_unknown(run.graph, triples, file)
    verdicts = run.classify(triples, seed=seed, replaced=replaced)
    rows = verdicts.as_dicts()
    cells = (
        (
            " · ".join(claim.triple),
            "undecided" if row["undecided"] else "true" if row["label"] else "false",
            f"{row['margin']:+.3f}",
            "" if row["probability"] is None else percent(row["probability"]),
            notes_on(claim),
        )
        for claim, row in zip(verdicts.claims, rows, strict=True)
    )
    undecided = verdicts.undecided.sum()
    title = f"{file.name}, {(verdicts.labels & ~verdicts.undecided).sum():,} of {len(rows):,} true"
    title += f", {undecided:,} undecided" if undecided else ""
    shown = table(title, ("", "", "margin", "probability", ""), cells, texts=(0, 4))
    said = [_UNDECIDED] if undecided else []
    said += [_CLAIMS] if run.calibration is not None else []
    return Output({"triples": rows}, [shown, *(said if remarks else [])])
