"""A small graph with types: towns in countries, and a run on it."""

import numpy as np

import nscaching as ns

COUNTRIES, TOWNS = 8, 12


def towns_graph(seed=0, held_out=0.12):
    """Return towns that lie in one country each, speak its language and are near each other."""
    random = np.random.default_rng(seed)
    facts = []
    for country in range(COUNTRIES):
        land = f"land{country}"
        facts.append((land, "has language", f"language{country % 5}"))
        for number in range(TOWNS):
            town = f"town{country}.{number}"
            facts.append((town, "in country", land))
            facts.append((town, "speaks", f"language{country % 5}"))
            for step in (1, 2):
                other = f"town{country}.{(number + step) % TOWNS}"
                facts += [(town, "near", other), (other, "near", town)]
    kinds = random.random(len(facts))
    splits = {"train": [], "valid": [], "test": []}
    for fact, share in zip(facts, kinds, strict=True):
        held = "valid" if share < held_out / 2 else "test" if share < held_out else "train"
        # Every country keeps its language in train.
        splits["train" if fact[1] == "has language" else held].append(fact)
    return ns.KnowledgeGraph.from_triples(
        splits["train"], splits["valid"], splits["test"], name="towns"
    )


def towns_run(out=None, **options):
    """Train on the towns: seconds."""
    given = {"scoring": "complex", "dim": 16, "epochs": 60, "lr": 0.02, "l2": 0.01, "seed": 0}
    return ns.train(towns_graph(), out=out, progress="none", **{**given, **options})
