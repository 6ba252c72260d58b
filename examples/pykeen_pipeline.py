"""Our sampler in PyKEEN's pipeline, beside PyKEEN's own: one import, two arguments.

The graph is too small and the training too short for a difference; the script shows how to use the
sampler. benchmarks/pykeen_samplers.py compares the samplers on a larger graph.

``python examples/pykeen_pipeline.py`` (``pip install 'nscaching[pykeen]'`` first)
"""

import logging
import warnings

import numpy as np
from pykeen.pipeline import pipeline

import nscaching as ns
import nscaching.interop.pykeen  # registers negative_sampler="nscaching" and callbacks="nscaching"

EPOCHS = 8


def countries() -> ns.KnowledgeGraph:
    """Take what `world` says about countries: neighbours, languages, currencies, cities, zones."""
    world = ns.load_graph("world")
    continent = world.relation_id("in continent")
    heads = np.unique(world.train[world.train[:, 1] == continent, 0])
    train, valid, test = (
        [[world.entities[h], world.relations[r], world.entities[t]] for h, r, t in split.tolist()]
        for split in (s[np.isin(s[:, 0], heads)] for s in (world.train, world.valid, world.test))
    )
    known = {name for h, _, t in train for name in (h, t)}
    held_out = [[t for t in split if {t[0], t[2]} <= known] for split in (valid, test)]
    return ns.KnowledgeGraph.from_triples(train, *held_out, name="countries")


def trained(dataset, sampler: str, **sampler_options):
    """Train PyKEEN's own TransE; only the negative sampler differs."""
    ours = sampler == "nscaching"
    return pipeline(
        dataset=dataset,
        model="TransE",
        model_kwargs={"embedding_dim": 50},
        loss="marginranking",
        loss_kwargs={"margin": 4.0},
        optimizer_kwargs={"lr": 3e-3},
        negative_sampler=sampler,
        negative_sampler_kwargs=sampler_options,
        training_kwargs={
            "num_epochs": EPOCHS,
            "batch_size": 64,
            "use_tqdm": False,
            "callbacks": "nscaching" if ours else None,  # it brings the current model to the caches
        },
        evaluation_kwargs={"use_tqdm": False, "batch_size": 256},
        random_seed=0,
    )


def main() -> None:
    """Compare on the bundled graph."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    dataset = countries().to_pykeen()
    print(f"PyKEEN's TransE on countries of 'world', {EPOCHS} epochs, filtered test MRR")
    own = {"cache_size": 50, "candidates": 50, "alpha3": 1.0, "rescale": "none"}
    for sampler, options in {"bernoulli": {}, "nscaching": own}.items():
        result = trained(dataset, sampler, **options)
        mrr = result.get_metric("both.realistic.inverse_harmonic_mean_rank")
        print(f"  {sampler:10} {mrr:.3f}   trained in {result.train_seconds:.0f} s")


if __name__ == "__main__":
    main()
