"""Your own file of triples: train, evaluate, predict, export.

``python examples/own_graph.py [FILE]``; the default is ``my-graph.tsv`` beside it. A file has one
fact per line: head, relation, tail, with tabs between them.
"""

import sys
import tempfile
from pathlib import Path

import nscaching as ns

HERE = Path(__file__).parent


def main() -> None:
    """Go through one file, from triples to vectors."""
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "my-graph.tsv"

    # 1. Train. A single file is split: 5 % of the facts for validation, 5 % for the test.
    #    The recipe that fits the graph decides the settings, early stopping the end.
    with tempfile.TemporaryDirectory() as folder:  # keep yours: out="runs/mine"
        run = ns.train(file, out=Path(folder) / "run", progress="none")
        print(f"{run.graph}\nBest of {run.summary['epochs']} epochs: {run.summary['best_epoch']}\n")

        # 2. Evaluate: the rank of the right answer among all entities.
        report = run.evaluate("test")
        guess = sum(1 / rank for rank in range(1, run.graph.num_entities + 1))
        guess /= run.graph.num_entities
        print(f"Held-out facts: MRR {report.mrr:.3f} (a guess: {guess:.3f})")
        for name, metrics in report.per_relation.items():
            print(f"  {name:20} MRR {metrics.mrr:.3f} of {metrics.count} ranks")

        # 3. Predict: what the graph does not say, about the first heads of the test split.
        print("\nWhat the graph does not say:")
        questions = dict.fromkeys((head, relation) for head, relation, _ in run.graph.test.tolist())
        for head, relation in [*questions][:4]:
            answers = run.predict_tails(head, relation, k=3)
            best = ", ".join(f"{answer.tail} ({answer.probability:.0%})" for answer in answers)
            asked = f"{run.graph.entities[head]} · {run.graph.relations[relation]}"
            print(f"  {asked} · {best or 'no new answer'}")

        # 4. Export: vectors and names, for any other program.
        written = run.export(Path(folder) / "vectors.npy")
        print(f"\nExported {run.embeddings().shape} to {', '.join(path.name for path in written)}")


if __name__ == "__main__":
    main()
