"""Which known drug might help against which disease? On a graph of our own making.

THE GRAPH IS SYNTHETIC: no drug, gene or disease in it exists, and nothing here is medical advice.
It has the shape of public ones (drugs, genes, diseases, side effects) and a planted structure: each
gene belongs to one of 20 mechanisms; a drug targets genes of its mechanism, a disease goes back to
genes of its own, and where both mechanisms are the same the drug usually treats the disease. For
every ten such edges one random edge is added as noise. Because the structure is planted, we can
check whether held-out treatments are found.

``python examples/drug_repurposing.py``
"""

import numpy as np

import nscaching as ns

MECHANISMS, GENES, DRUGS, DISEASES, EFFECTS = 20, 200, 240, 120, 60
HELD_OUT = 0.2  # of the treatments


def planted_graph(seed: int = 0) -> tuple[ns.KnowledgeGraph, dict[str, int]]:
    """Return the graph, and the mechanism of each drug and disease, which training never sees."""
    rng = np.random.default_rng(seed)
    of = {"drug": DRUGS, "gene": GENES, "disease": DISEASES, "effect": EFFECTS}
    mechanism = {kind: rng.integers(MECHANISMS, size=count) for kind, count in of.items()}

    def edges(head: str, relation: str, tail: str, chance: float) -> list[tuple[str, str, str]]:
        """Link what shares a mechanism with some chance, and a tenth as many at random."""
        shared = mechanism[head][:, None] == mechanism[tail][None, :]
        linked = shared & (rng.random(shared.shape) < chance)
        linked |= rng.random(shared.shape) < 0.1 * linked.mean()
        return [(f"{head}-{i}", relation, f"{tail}-{j}") for i, j in np.argwhere(linked)]

    background = [
        *edges("drug", "targets", "gene", 0.4),
        *edges("disease", "goes back to", "gene", 0.5),
        *edges("drug", "causes", "effect", 0.6),
        *edges("gene", "interacts with", "gene", 0.2),
    ]
    treatments = edges("drug", "treats", "disease", 0.6)
    rng.shuffle(treatments)
    cut = int(HELD_OUT * len(treatments))
    test, valid, train = np.split(np.array(treatments), [cut, cut + cut // 2])
    graph = ns.KnowledgeGraph.from_triples([*background, *train], valid, test, name="synthetic")
    hidden = {f"{k}-{i}": int(m) for k in ("drug", "disease") for i, m in enumerate(mechanism[k])}
    return graph, hidden


def main() -> None:
    """Train, rank the diseases of every held-out treatment, and compare with chance."""
    graph, hidden = planted_graph()
    print(f"SYNTHETIC {graph}")
    run = ns.train(graph, scoring="complex", dim=50, l2=0.1, batch_size=512, progress="none")

    # Rank each held-out disease among the diseases that the graph does not list for the drug.
    diseases = [graph.entity_id(f"disease-{i}") for i in range(DISEASES)]
    treats = graph.relation_id("treats")
    places, chances = [], []
    for drug, _, disease in graph.test.tolist():
        listed = graph.answers("tail", drug, treats)
        rivals = [d for d in diseases if d not in listed]
        scores = run.score([(drug, treats, d) for d in [disease, *rivals]])
        places.append(1 + int((scores[1:] >= scores[0]).sum()))
        chances.append(1 + len(rivals) / 2)
    top = np.mean([place <= 5 for place in places])
    print(
        f"\n{len(places)} held-out treatments, each among some {np.mean(chances) * 2:.0f} diseases:"
        f"\n  mean place      {np.mean(places):5.1f}   by chance {np.mean(chances):5.1f}"
        f"\n  among the top 5 {top:5.0%}   by chance {5 / (2 * np.mean(chances)):5.0%}"
    )

    # New hypotheses for one drug: what the graph does not say, with the planted truth beside it.
    drug = graph.entities[int(graph.test[0, 0])]
    print(f"\nBest candidates for {drug} (mechanism {hidden[drug]}), without listed ones:")
    answers = [a for a in run.predict_tails(drug, "treats", k=300) if a.tail.startswith("disease")]
    for answer in answers[:6]:
        right = "same mechanism" if hidden[answer.tail] == hidden[drug] else "another mechanism"
        print(f"  {answer.tail:12} score {answer.score:6.2f}   {right}")


if __name__ == "__main__":
    main()
