"""Embeddings as features: tell the continent of a country from its vector, with scikit-learn.

The facts "in continent" are taken out of the graph before training, so the vectors know continents
only from what countries have to do with each other: neighbours, languages, currencies, cities.

``python examples/classifier_on_embeddings.py``
"""

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nscaching as ns
from nscaching.interop import EntityVectors


def main() -> None:
    """Train without the answer, then learn it from the vectors of four fifths of the countries."""
    world = ns.load_graph("world")
    continent = world.relation_id("in continent")
    facts = np.concatenate([world.train, world.valid, world.test])
    asked = facts[facts[:, 1] == continent]
    rest = facts[facts[:, 1] != continent]
    graph = ns.KnowledgeGraph(world.entities, world.relations, rest, name="world, no continents")

    run = ns.train(graph, dim=50, l2=0.1, alpha3=3, epochs=20, valid_every=0, progress="none")

    countries = np.array(world.entities, dtype=object)[asked[:, 0]]
    continents = np.array(world.entities, dtype=object)[asked[:, 2]]
    model = make_pipeline(
        EntityVectors(run),  # names in, vectors out
        StandardScaler(),
        LogisticRegression(C=0.1, max_iter=1000),
    )
    guessed = cross_val_predict(model, countries, continents, cv=5)

    names, counts = np.unique(continents, return_counts=True)
    print(f"{len(countries)} countries and territories, {len(names)} continents")
    print(
        f"right: {np.mean(guessed == continents):.0%}; the largest continent alone would be ",
        end="",
    )
    print(f"{counts.max() / counts.sum():.0%}\n")
    for name in names:
        mine = continents == name
        print(f"  {name:15} {np.mean(guessed[mine] == name):4.0%} of {mine.sum()}")
    print("\nSome that it gets wrong:")
    for country, right, wrong in [*zip(countries, continents, guessed, strict=True)]:
        if right != wrong and country in (
            "Russia",
            "Turkey",
            "Egypt",
            "Cyprus",
            "Mexico",
            "Armenia",
        ):
            print(f"  {country}: {right}, not {wrong}")


if __name__ == "__main__":
    main()
