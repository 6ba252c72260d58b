"""``nscaching classify``: true or not? A split, or a file of triples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from nscaching.cli.output import JsonFlag, friendly, print_json, stdout, table
from nscaching.errors import UserError
from nscaching.evaluation import ClassificationReport, Verdicts
from nscaching.graph import read_triples
from nscaching.runs.api import load_run
from nscaching.runs.run import Run


@friendly
def command(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    split: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Split to classify: test, valid or train.", show_default="test"),
    ] = None,
    file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Instead: a file of triples to label, of any kind that train reads."),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Which negatives are drawn, where the data has none.", min=0)
    ] = 0,
    replaced: Annotated[
        str, typer.Option(help="Side that drawn negatives replace: tail, head or either.")
    ] = "tail",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Tell true triples from false ones, by a threshold for each relation learnt on valid."""
    if file is not None and split is not None:
        raise UserError("Give --split or --file, not both.")
    loaded = load_run(run, device)
    if file is not None:
        triples = read_triples(file)
        _refuse_unknown(loaded, file, triples)
        verdicts = loaded.classify(triples, seed=seed, replaced=replaced)
        _label(file.name, triples, verdicts, loaded.probabilities(triples).tolist(), as_json)
        return
    report = loaded.classification(split or "test", seed=seed, replaced=replaced)
    if as_json:
        print_json(report.as_dict())
    else:
        _show(loaded, report)


def _refuse_unknown(run: Run, file: Path, triples: list[tuple[str, str, str]]) -> None:
    """Name the first triple of a file with a name that the run does not know."""
    for place, (head, relation, tail) in enumerate(triples, 1):
        try:
            run.graph.entity_id(head)
            run.graph.relation_id(relation)
            run.graph.entity_id(tail)
        except UserError as error:
            raise UserError(
                f"Triple {place} of {file} ({head}, {relation}, {tail}): {error}"
            ) from error


def _show(run: Run, report: ClassificationReport) -> None:
    console = stdout()
    made = table(
        f"{report.split} of {run.graph.name}, {report.seconds:.1f} s", "", "accuracy", "triples"
    )
    made.add_row("all relations", f"{report.accuracy:.2%}", f"{report.count:,}")
    console.print(made)
    made = table("\nBy relation", "", "accuracy", "triples", "threshold")
    for name, part in report.per_relation.items():
        mark = "" if part.own_threshold else "*"
        cells = f"{part.accuracy:.2%}", f"{part.count:,}", f"{part.threshold:.3f}{mark}"
        made.add_row(name, *cells)
    console.print(made)
    drawn = f"drawn with seed {report.seed}, {report.replaced} replaced"
    source = drawn if report.negatives == "seeded" else "those of the data set"
    console.print(f"\n{report.facts:,} facts; the negatives are {source}.")
    for note in report.notes:
        console.print(note)


def _label(
    name: str,
    triples: list[tuple[str, str, str]],
    verdicts: Verdicts,
    chances: list[float],
    as_json: bool,
) -> None:
    labels, margins = verdicts
    rows = list(zip(triples, labels.tolist(), margins.tolist(), chances, strict=True))
    if as_json:
        print_json(
            {
                "triples": [
                    {
                        "head": h,
                        "relation": r,
                        "tail": t,
                        "label": label,
                        "margin": margin,
                        "probability": chance,
                    }
                    for (h, r, t), label, margin, chance in rows
                ]
            }
        )
        return
    title = f"{name}, {labels.sum():,} of {len(rows):,} true"
    made = table(title, "", "", "margin", "probability")
    for (h, r, t), label, margin, chance in rows:
        cells = "true" if label else "false", f"{margin:+.3f}", f"{chance:.1%}"
        made.add_row(f"{h} · {r} · {t}", *cells)
    stdout().print(made)
