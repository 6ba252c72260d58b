"""Recipes: settings that are good for a kind of graph, as YAML files beside this module.

``nscaching train graph`` without a word on the method takes the recipe that fits the graph's size
and density and the device; whatever is asked for besides wins. Chosen by validation on ``world``,
WN18, WN18RR, FB15K-237, DEBIAN and, for small graphs, UMLS, Kinships, Nations and the dishes of the
examples; the width on a processor also on six graphs that no recipe had seen. ``docs/recipes.md``
has the numbers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import resources
from typing import Any

import numpy as np
import yaml

from nscaching.errors import UserError, nearest_names, plural
from nscaching.graph import KnowledgeGraph
from nscaching.models import SCORING
from nscaching.models.matches import Dot
from nscaching.training.devices import pick_device

#: Names the recipe that is taken where none is asked for.
VARIABLE = "NSCACHING_RECIPE"
AUTO, PAPER, ALL_ENTITIES, CACHED = "auto", "paper", "all-entities", "cached"
#: Options that say nothing about the method: with others given, the paper's settings are kept.
_NEUTRAL = frozenset(
    (
        *("recipe", "data", "split", "dim", "epochs", "max_seconds", "batch_size", "valid_every"),
        *("valid_facts", "patience", "select", "seed", "device", "eval_memory", "table"),
        "checkpoint_seconds",
    )
)
#: What follows from the graph and the device with a recipe but the paper's.
FITTED = frozenset(
    (
        *("dim", "batch_size", "epochs", "valid_every", "valid_facts", "patience", "cache_size"),
        *("pool", "n3", "normalize", "relation_prediction"),
    )
)
#: Additions and products per epoch up to which a device scores all entities.
_MOST_WORK = {"cpu": 2e12, "cuda": 1e15}
#: Entities from which a GPU scores cached ones only, and vectors are shorter.
_MANY_ENTITIES = 100_000
#: Dimension of an entity vector (ComplEx has two numbers for each), by device.
_DIM = {"cpu": 64, "cuda": 1000}
#: Dimensions that a processor takes instead where the whole run stays within so much work, about a
#: minute of two cores that multiply bfloat16, and two of others.
_WIDER, _RUN_WORK = (256, 128), 2e13
#: Facts per entity up to which a graph is sparse, and from which on it is dense, or very dense.
_SPARSE, _DENSE, _VERY_DENSE = 3, 10, 30
#: N3 penalty on a dense graph, and where vectors are wide, of 256 dimensions or more.
_DENSE_PENALTY, _WIDE_PENALTY, _WIDE = 0.025, 0.035, 256
#: Dimensions that a processor takes with a cache, where facts times epochs times dimensions are at
#: most so many, about five minutes of two cores; distances have no fast products.
_WITH_CACHE, _CACHED_WORK, _DISTANCES = (512, 256, 128), 3e9, 128
#: Steps that a run takes at least, where epochs are short; on graphs of few facts, more.
_STEPS, _MORE_STEPS, _SMALL = 4000, 10_000, 20_000
#: Scores of valid facts per side that a validation takes at most, but for so many facts: one over
#: all would cost more than the epochs between. All recipes draw the same facts, so that the MRR on
#: valid of two runs on a graph can be compared.
_VALID_SCORES, _LEAST_VALID = 4e8, 3000
#: Weight of predicting relations where all entities are scored, and facts per pair of entities up
#: to which that is done: where pairs have several, there is no single one to predict.
_RELATION_PREDICTION, _FACTS_PER_PAIR = 0.2, 1.25
#: Relations per entity up to which that costs little beside scoring entities, and facts up to which
#: pairs are counted.
_RELATIONS_PER_ENTITY, _COUNTED = 0.25, 2_000_000


def names() -> list[str]:
    """Return the names of all recipes."""
    files = resources.files(__name__).iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def read(name: str) -> dict[str, Any]:
    """Return the options of a recipe."""
    if name not in names():
        hint = nearest_names(name, names()) or f". The recipes are: {', '.join(names())}."
        raise UserError(f"There is no recipe '{name}'{hint}")
    text = resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text) or {})


def is_open(given: Mapping[str, Any]) -> bool:
    """Tell whether options leave the method to a recipe."""
    asked = {name for name, value in given.items() if value is not None}
    return given.get("recipe") in (None, AUTO) and asked <= _NEUTRAL


def with_recipe(
    given: Mapping[str, Any], graph: KnowledgeGraph
) -> tuple[dict[str, Any], str | None]:
    """Put the options of a recipe below those given; also return a sentence on the choice."""
    name, sentence = given.get("recipe") or AUTO, None
    if name == AUTO and is_open(given):
        name = os.environ.get(VARIABLE) or AUTO
    if name == AUTO:
        name = PAPER
        if is_open(given):
            name, sentence = choose(graph, str(given.get("device") or "auto"))
    options = read(name)
    if name in (ALL_ENTITIES, CACHED):
        told = {option: value for option, value in given.items() if value is not None}
        options |= _fitted(options, told, graph)
    if (most := _valid_facts(graph)) is not None:
        options["valid_facts"] = most
    return {**options, **given, "recipe": name}, sentence


def choose(graph: KnowledgeGraph, device: str) -> tuple[str, str]:
    """Return the recipe for a graph and a device, and a sentence that says why."""
    kind = _kind(device)
    entities = plural(graph.num_entities, "entity", "entities")
    sizes = f"{entities} and {plural(len(graph.train), 'fact')}"
    place = "a GPU" if kind == "cuda" else "this processor"
    few = graph.num_entities <= _MANY_ENTITIES
    if few and _epoch_work(graph, _DIM[kind]) <= _MOST_WORK[kind]:
        return ALL_ENTITIES, (
            f"Recipe {ALL_ENTITIES}: {sizes} are few enough for {place} to score all entities for "
            "every fact. Another one: --recipe cached, --recipe paper."
        )
    return CACHED, (
        f"Recipe {CACHED}: for {sizes} a cache of hard negatives stands for all entities. Another "
        "one: --recipe all-entities, --recipe paper."
    )


def _kind(device: str) -> str:
    return "cuda" if pick_device(device).type == "cuda" else "cpu"


def _epoch_work(graph: KnowledgeGraph, dim: int) -> float:
    """Return the additions and products of an epoch: two questions per fact, three products."""
    return 12.0 * len(graph.train) * graph.num_entities * 2 * dim


def _fitted(
    options: dict[str, Any], given: Mapping[str, Any], graph: KnowledgeGraph
) -> dict[str, Any]:
    """Return what follows from the graph and the device: width, batch, epochs and penalties."""
    kind = _kind(str(given.get("device") or "auto"))
    triples, entities = len(graph.train), graph.num_entities
    on_gpu, batch = kind == "cuda", 64
    while batch < 1024 and 2 * batch * (256 if on_gpu else 128) <= triples:
        batch *= 2
    small = triples <= _SMALL
    least, steps = 30 if on_gpu else 20, _MORE_STEPS if small else _STEPS
    epochs = min(300, max(least, round(steps * batch / max(1, triples))))
    many = entities > _MANY_ENTITIES
    fitted: dict[str, Any] = {
        "dim": 256 if many and on_gpu else _DIM[kind],
        "batch_size": batch,
        "epochs": epochs,
        "valid_every": max(1, epochs // (30 if small else 15)),
    }
    if small:  # as many epochs as with half of the validations
        fitted["patience"] = 2 * options["patience"]
    if options["sampler"] == "nscaching":
        size = 100 if many and on_gpu else 50 if on_gpu else 20
        pool = 2000 if many and on_gpu else 1000
        fitted |= {"cache_size": min(size, max(1, entities // 4)), "pool": min(pool, entities)}
        if not on_gpu:
            fitted["dim"] = _dim_with_cache({**options, **fitted, **given}, triples)
    else:
        fitted |= _of_all_entities({**options, **fitted, **given}, graph, on_gpu)
    wide = on_gpu or (options["sampler"] == "nscaching" and {**fitted, **given}["dim"] >= _WIDE)
    return {**fitted, "n3": _penalty(triples / max(1, entities), wide)}


def _valid_facts(graph: KnowledgeGraph) -> int | None:
    """Return how many facts a validation ranks, or None for all."""
    most = max(_LEAST_VALID, int(_VALID_SCORES / max(1, graph.num_entities)))
    return most if most < len(graph.valid) else None


def _dim_with_cache(method: Mapping[str, Any], triples: int) -> int:
    """Return the dimension that a processor affords with cached candidates."""
    most = _CACHED_WORK / (triples * method["epochs"])
    if not isinstance(SCORING[method["scoring"]](1).match, Dot):
        most = min(most, _DISTANCES)
    return next((dim for dim in _WITH_CACHE if dim <= most), _DIM["cpu"])


def _of_all_entities(
    method: Mapping[str, Any], graph: KnowledgeGraph, on_gpu: bool
) -> dict[str, Any]:
    """Return what is affordable where all entities are scored by a matrix product."""
    function = SCORING[method["scoring"]]
    free = function(1, normalize=False)
    if method["sampler"] != "all" or not isinstance(free.match, Dot):
        return {}
    found: dict[str, Any] = {}
    if function(1).unit_relations and not free.unit_relations:
        found["normalize"] = False  # QuatE: relations with a length rank better
    if not on_gpu:
        work = method["epochs"] * _epoch_work(graph, 1)
        found["dim"] = next((d for d in _WIDER if d * work <= _RUN_WORK), _DIM["cpu"])
    scoring = function(1, normalize={**found, **method}.get("normalize", True))
    few = 1 < graph.num_relations <= _RELATIONS_PER_ENTITY * graph.num_entities
    if scoring.terms is not None and few and _has_single_relations(graph):
        found["relation_prediction"] = _RELATION_PREDICTION
    return found


def _has_single_relations(graph: KnowledgeGraph) -> bool:
    """Tell whether most pairs of a head and a tail have one relation; not of very many facts."""
    if len(graph.train) > _COUNTED:
        return False
    heads, _, tails = np.asarray(graph.train, dtype=np.int64).T
    pairs = len(np.unique(heads * graph.num_entities + tails))
    return len(graph.train) <= _FACTS_PER_PAIR * pairs


def _penalty(density: float, wide: bool) -> float:
    """Return the N3 penalty for so many facts per entity, and for wide vectors or not."""
    if density <= _DENSE:
        return 0.05 if density > _SPARSE else 0.1
    if density > _VERY_DENSE:
        return 0.01
    return _WIDE_PENALTY if wide else _DENSE_PENALTY
