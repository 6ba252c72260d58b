"""``nscaching nodes``: embeddings of graphs without relations."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from nscaching.artefacts.outputs import check_embeddings, check_picture
from nscaching.cli.command import (
    ConfigFile,
    ExportFile,
    Format,
    Output,
    Overwrite,
    Quiet,
    argument,
    command,
    flag,
    table,
)
from nscaching.cli.experiments import tune_nodes_command
from nscaching.errors import UserError, plural
from nscaching.nodes import NodeConfig, embed_nodes, load_node_graph, load_nodes
from nscaching.nodes.api import compare_methods, make_node_config
from nscaching.nodes.loading import read_labels
from nscaching.nodes.tasks import SHARES
from nscaching.training import Progress
from nscaching.training.opening import data_name
from nscaching.training.progress import duration

app = typer.Typer(
    no_args_is_help=True,
    help="Embed the nodes of a graph without relations.\n\n"
    "Try first:  nscaching nodes train cora --out runs/cora",
)
EmbeddingFolder = Annotated[Path, typer.Argument(help="Folder that 'nodes train' wrote.")]
LabelFile = Annotated[Path | None, typer.Option(help="File with a node and its class per line.")]


@app.command("train")
@command(NodeConfig, leave_out=("data",))
def train(
    data: str | None = argument(
        None, "cora, citeseer, or an edge list: two nodes per line, and a weight."
    ),
    out: Path | None = flag(None, "Folder to write.", shown="runs/nodes-DATA-MODEL-SAMPLER"),
    labels: LabelFile = None,
    config: ConfigFile = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    **options: Any,
) -> Output:
    """Embed the nodes of a graph."""
    settings = make_node_config(data, config, options)
    if not settings.data:
        raise UserError("Name a graph (cora, citeseer) or an edge list to train on.")
    if out is None:
        out = Path("runs") / f"nodes-{data_name(settings.data)}-{settings.model}-{settings.sampler}"
    embedding = embed_nodes(
        settings.data,
        labels=labels,
        out=out,
        overwrite=overwrite,
        config=settings,
        progress="none" if quiet else "auto",
    )
    summary = embedding.summary
    said = (
        f"Embedded {summary['nodes']:,} nodes and {summary['edges']:,} edges of "
        f"{embedding.graph.name} by {settings.model} with {settings.sampler}: "
        f"{plural(summary['epochs'], 'epoch')} in {duration(summary['seconds'])}, "
        f"loss {summary['loss']:.4f}."
    )
    return Output(
        summary, [said, f"Folder: {out}  (nscaching nodes evaluate {shlex.quote(str(out))})"]
    )


app.command("tune")(tune_nodes_command)


@app.command("evaluate")
@command()
def evaluate(
    run: EmbeddingFolder,
    labels: LabelFile = None,
    draws: int = flag(5, "Random draws of labelled nodes.", min=1),
    seed: int = flag(0, "Seed of the draws.", min=0),
) -> Output:
    """Classify nodes from 30, 50 and 70 % of the labels; predict the edges that were held out."""
    loaded = load_nodes(run)
    labelled = read_labels(labels, loaded.graph) if labels is not None else None
    given = labelled.labels if labelled is not None else None
    known = given or loaded.graph.labels
    if labelled is not None and (more := labelled.nodes[len(loaded.graph) :]):
        raise UserError(
            f"{labels} names {plural(len(more), 'node')} that {run} lacks, such as "
            f"'{more[0]}'; leave them out."
        )
    if known is None and not len(loaded.held_out):
        raise UserError(
            f"There is nothing to evaluate {run} with: give classes (--labels), or train with "
            "--held-out 0.1."
        )
    classes = None if known is None else loaded.classify(known, draws=draws, seed=seed)
    links = loaded.predict_links(seed=seed) if len(loaded.held_out) else None
    shown: list[Table] = []
    if classes is not None:
        rows = (
            (
                f"{share} of the labels",
                *(f"{score['mean']:.4f} ± {score['std']:.4f}" for score in scores.values()),
            )
            for share, scores in classes.items()
        )
        title = f"Classes of {loaded.graph.name}, {draws} draws"
        shown.append(table(title, ("", "micro F1", "macro F1"), rows))
    if links is not None:
        names = {"auc": "AUC", "average_precision": "average precision"}
        numbers = ((name, f"{links[key]:.4f}") for key, name in names.items())
        shown.append(table(f"{links['edges']:,} held-out edges", ("", ""), numbers))
    return Output({"classification": classes, "link_prediction": links}, shown)


@app.command("neighbours")
@command()
def neighbours(
    run: EmbeddingFolder,
    node: str = argument(..., "Name of a node."),
    k: int = flag(10, "Answers to show.", "-k", "--count", min=1),
) -> Output:
    """List the nodes whose embeddings are most like that of one."""
    loaded = load_nodes(run)
    found = loaded.neighbours(node, k)
    labels = loaded.graph.labels
    rows = []
    for near in found:
        of_node = labels.of_node[loaded.graph.id_of(near.node)] if labels else -1
        shown = labels.classes[of_node] if labels and of_node >= 0 else ""
        rows.append((near.node, f"{near.similarity:.3f}", shown))
    listed = table(f"Most like {node}", ("", "cosine", "class" if labels else ""), rows)
    return Output({"neighbours": [near.as_dict() for near in found]}, [listed])


@app.command("export")
@command()
def export(run: EmbeddingFolder, to: ExportFile, format: Format = "auto") -> Output:
    """Write the vectors with their names for other programs."""
    check_embeddings(to, format)
    files = [str(path) for path in load_nodes(run).export(to, format)]
    return Output({"files": files}, [f"Wrote {' and '.join(files)}"])


@app.command("picture")
@command()
def picture(
    run: EmbeddingFolder, to: Path = argument(..., "Picture to write, an .svg file.")
) -> Output:
    """Draw the embedding in two dimensions, coloured by class."""
    check_picture(to)
    written = str(load_nodes(run).picture(to))
    return Output({"files": [written]}, [f"Wrote {written}"])


@app.command("compare")
@command()
def compare(
    data: str = argument(..., "A named graph, or an edge list with --labels."),
    labels: LabelFile = None,
    seeds: int = flag(3, "Trainings of each method.", min=1),
    draws: int = flag(5, "Draws of labelled nodes per training.", min=1),
    epochs: int | None = flag(
        None, "Epochs of each training.", min=1, shown="as chosen for the data"
    ),
    quiet: Quiet = False,
) -> Output:
    """Train LINE, Node2vec, SeedNE and NSCaching on the same walks: the paper's table."""
    graph = load_node_graph(data, labels=labels)
    if graph.labels is None:
        raise UserError(f"The nodes of {graph.name} have no classes; name a file with --labels.")
    progress = Progress("none" if quiet else "auto")
    chosen: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    results = compare_methods(graph, seeds=seeds, draws=draws, progress=progress, **chosen)
    methods = {result.method: result.as_dict() for result in results}
    tables = []
    for number, name in enumerate(("micro F1", "macro F1")):
        rows = []
        for result in results:
            cells = [
                f"{column[:, number].mean():.4f} ± {column[:, number].std():.4f}"
                + (f" ({result.paper[at][number]:.4f})" if result.paper else "")
                for at, column in enumerate(result.scores)
            ]
            rows.append((result.method, *cells, f"{result.seconds:.0f}"))
        title = f"{graph.name}, {name}: {seeds} seeds x {draws} draws (the paper's beside it)"
        tables.append(table(title, ("", *(f"{share:.0%}" for share in SHARES), "seconds"), rows))
    value = {"data": graph.name, "seeds": seeds, "draws": draws, "methods": methods}
    return Output(value, tables)
