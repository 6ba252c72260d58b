"""``nscaching nodes``: embeddings of graphs without relations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from nscaching.cli import tune
from nscaching.cli.option_flags import with_option_flags
from nscaching.cli.output import (
    ConfigFlag,
    JsonFlag,
    QuietFlag,
    friendly,
    print_json,
    stdout,
    table,
)
from nscaching.errors import UserError
from nscaching.nodes import NodeConfig, NodeEmbedding, embed_nodes, load_node_graph, load_nodes
from nscaching.nodes.api import make_node_config
from nscaching.nodes.compare import compare_methods
from nscaching.nodes.loading import read_labels
from nscaching.nodes.tasks import SHARES
from nscaching.training import Progress
from nscaching.training.progress import duration

app = typer.Typer(
    no_args_is_help=True,
    help="Embed the nodes of a graph without relations.\n\n"
    "Try first:  nscaching nodes train cora --out runs/cora",
)
EmbeddingFolder = Annotated[Path, typer.Argument(help="Folder that 'nodes train' wrote.")]
LabelFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="File with a node and its class per line."),
]


def train_command(
    data: Annotated[
        Optional[str],  # noqa: UP045 (typer reads this at run time on Python 3.10)
        typer.Argument(help="cora, citeseer, or an edge list: two nodes per line, and a weight."),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Folder to write.", show_default="runs/nodes-DATA-MODEL-SAMPLER"),
    ] = None,
    labels: LabelFile = None,
    config: ConfigFlag = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the embedding in --out.")
    ] = False,
    quiet: QuietFlag = False,
    as_json: JsonFlag = False,
    **options: Any,
) -> None:
    """Embed the nodes of a graph."""
    given = {name: value for name, value in options.items() if value is not None}
    settings = make_node_config(data, config, given)
    if not settings.data:
        raise UserError("Name a graph (cora, citeseer) or an edge list to train on.")
    if out is None:
        stem = Path(settings.data).name.split(".")[0]
        out = Path("runs") / f"nodes-{stem}-{settings.model}-{settings.sampler}"
    embedding = embed_nodes(
        settings.data,
        labels=labels,
        out=out,
        overwrite=overwrite,
        config=settings,
        progress=Progress("none" if quiet else "auto"),
    )
    if as_json:
        print_json(embedding.summary)
    else:
        _show(embedding, out)


@app.command("evaluate")
@friendly
def evaluate(
    run: EmbeddingFolder,
    labels: LabelFile = None,
    draws: Annotated[int, typer.Option(help="Random draws of labelled nodes.", min=1)] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the draws.", min=0)] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Classify nodes from 30, 50 and 70 % of the labels; predict the edges that were held out."""
    loaded = load_nodes(run)
    given = read_labels(labels, loaded.graph).labels if labels is not None else None
    known = given or loaded.graph.labels
    if known is not None and len(known.of_node) != len(loaded.graph):
        raise UserError(f"{labels} names nodes that {run} has not; leave them out.")
    if known is None and not len(loaded.held_out):
        raise UserError(
            f"There is nothing to evaluate {run} with: give classes (--labels), or train with "
            "--held-out 0.1."
        )
    classes = None if known is None else loaded.classify(known, draws=draws, seed=seed)
    links = loaded.predict_links(seed=seed) if len(loaded.held_out) else None
    if as_json:
        print_json({"classification": classes, "link_prediction": links})
        return
    if classes is not None:
        made = table(f"Classes of {loaded.graph.name}, {draws} draws", "", "micro F1", "macro F1")
        for share, scores in classes.items():
            made.add_row(f"{share} of the labels", *map(_spread, scores.values()))
        stdout().print(made)
    if links is not None:
        made = table(f"{links['edges']:,} held-out edges", "", "")
        made.add_row("AUC", f"{links['auc']:.4f}")
        made.add_row("average precision", f"{links['average_precision']:.4f}")
        stdout().print(made)


@app.command("neighbours")
@friendly
def neighbours(
    run: EmbeddingFolder,
    node: Annotated[str, typer.Argument(help="Name of a node.")],
    k: Annotated[int, typer.Option("-k", "--count", help="Answers to show.", min=1)] = 10,
    as_json: JsonFlag = False,
) -> None:
    """List the nodes whose embeddings are most like that of one."""
    loaded = load_nodes(run)
    found = loaded.neighbours(node, k)
    if as_json:
        print_json({"neighbours": [near.as_dict() for near in found]})
        return
    labels = loaded.graph.labels
    made = table(f"Most like {node}", "", "cosine", "class" if labels else "")
    for near in found:
        of_node = labels.of_node[loaded.graph.id_of(near.node)] if labels else -1
        shown = labels.classes[of_node] if labels and of_node >= 0 else ""
        made.add_row(near.node, f"{near.similarity:.3f}", shown)
    stdout().print(made)


@app.command("export")
@friendly
def export(
    run: EmbeddingFolder,
    to: Annotated[Path, typer.Argument(help="File to write: .npy, .txt/.vec or .parquet.")],
    format: Annotated[
        str, typer.Option(help="npy, word2vec or parquet; auto goes by the file's ending.")
    ] = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Write the vectors with their names for other programs."""
    files = [str(path) for path in load_nodes(run).export(to, format)]
    if as_json:
        print_json({"files": files})
    else:
        print("Wrote " + " and ".join(files))


@app.command("picture")
@friendly
def picture(
    run: EmbeddingFolder,
    to: Annotated[Path, typer.Argument(help="Picture to write, an .svg file.")],
    as_json: JsonFlag = False,
) -> None:
    """Draw the embedding in two dimensions, coloured by class."""
    written = str(load_nodes(run).picture(to))
    if as_json:
        print_json({"files": [written]})
    else:
        print(f"Wrote {written}")


@app.command("compare")
@friendly
def compare(
    data: Annotated[str, typer.Argument(help="A named graph, or an edge list with --labels.")],
    labels: LabelFile = None,
    seeds: Annotated[int, typer.Option(help="Trainings of each method.", min=1)] = 3,
    draws: Annotated[int, typer.Option(help="Draws of labelled nodes a training.", min=1)] = 5,
    epochs: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Epochs of each training.", min=1, show_default="as chosen for the data"),
    ] = None,
    quiet: QuietFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Train LINE, Node2vec, SeedNE and NSCaching on the same walks: the paper's table."""
    graph = load_node_graph(data, labels=labels)
    if graph.labels is None:
        raise UserError(f"The nodes of {graph.name} have no classes; name a file with --labels.")
    progress = Progress("none" if quiet else "auto")
    chosen: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    results = compare_methods(graph, seeds=seeds, draws=draws, progress=progress, **chosen)
    if as_json:
        methods = {result.method: result.as_dict() for result in results}
        print_json({"data": graph.name, "seeds": seeds, "draws": draws, "methods": methods})
        return
    for number, name in enumerate(("micro F1", "macro F1")):
        title = f"{graph.name}, {name}: {seeds} seeds x {draws} draws (the paper's beside it)"
        made = table(title, "", *(f"{share:.0%}" for share in SHARES), "seconds")
        for result in results:
            cells = [
                f"{column[:, number].mean():.4f} ± {column[:, number].std():.4f}"
                + (f" ({result.paper[at][number]:.4f})" if result.paper else "")
                for at, column in enumerate(result.scores)
            ]
            made.add_row(result.method, *cells, f"{result.seconds:.0f}")
        stdout().print(made)


def _show(embedding: NodeEmbedding, out: Path) -> None:
    summary, config = embedding.summary, embedding.config
    with_sampler = f"{config.model} with {config.sampler}"
    console = stdout()
    console.print(
        f"Embedded {summary['nodes']:,} nodes and {summary['edges']:,} edges of "
        f"{embedding.graph.name} by {with_sampler}: {summary['epochs']} epochs in "
        f"{duration(summary['seconds'])}, loss {summary['loss']:.4f}.",
        highlight=False,
    )
    console.print(
        f"Folder: {out}  (nscaching nodes evaluate {out})", highlight=False, soft_wrap=True
    )


def _spread(score: dict[str, float]) -> str:
    return f"{score['mean']:.4f} ± {score['std']:.4f}"


app.command("train")(with_option_flags(train_command, NodeConfig, leave_out=("data",)))
app.command("tune")(tune.nodes_command)
