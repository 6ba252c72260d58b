"""The named data sets: what they are, what their files must hash to, and where to get them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nscaching.graph.mirrors import Archive, Mirror, PlainFiles

GITHUB = "https://raw.githubusercontent.com"


@dataclass(frozen=True)
class DatasetInfo:
    """A data set: its counts, the SHA-256 of each file, and the mirrors that serve them."""

    name: str
    title: str
    entities: int
    relations: int
    train: int
    valid: int
    test: int
    files: Mapping[str, str] = field(default_factory=dict)
    mirrors: tuple[Mirror, ...] = ()
    bundled: bool = False
    """Whether it comes with the package."""


def _rotate(folder: str) -> PlainFiles:
    """Return the copies in the repository of RotatE."""
    return PlainFiles(f"{GITHUB}/DeepGraphLearning/KnowledgeGraphEmbedding/master/data/{folder}")


def _villmow(folder: str) -> PlainFiles:
    """Return the copies that PyTorch Geometric uses too."""
    return PlainFiles(f"{GITHUB}/villmow/datasets_knowledge_embedding/master/{folder}")


def _conve(name: str) -> Archive:
    """Return the archives in the repository of ConvE."""
    return Archive(f"https://github.com/TimDettmers/ConvE/raw/master/{name}.tar.gz")


def _libkge(name: str, stem: str) -> Archive:
    """Return the archives that LibKGE uses, which keep the names of the first publication."""
    return Archive(
        f"https://web.informatik.uni-mannheim.de/pi1/kge-datasets/{name}.tar.gz",
        names={f"{split}.txt": f"{stem}-{split}.txt" for split in ("train", "valid", "test")},
    )


_KG_BERT = PlainFiles(
    f"{GITHUB}/yao8839836/kg-bert/master/data/FB13",
    names={
        "train.txt": "train.tsv",
        "valid.labeled.txt": "dev.tsv",
        "test.labeled.txt": "test.tsv",
    },
    positives_of={"valid.txt": "valid.labeled.txt", "test.txt": "test.labeled.txt"},
)

REGISTRY: tuple[DatasetInfo, ...] = (
    DatasetInfo(
        name="world",
        title="Countries, cities, languages and currencies of the world; comes with the package.",
        entities=7_134,
        relations=14,
        train=31_159,
        valid=1_728,
        test=1_714,
        bundled=True,
    ),
    DatasetInfo(
        name="WN18",
        title="WordNet with 18 relations; most test triples are a training triple read backwards.",
        entities=40_943,
        relations=18,
        train=141_442,
        valid=5_000,
        test=5_000,
        files={
            "train.txt": "24c9b02dc57d3ae8ca8467ce355995edee7be8eddc3bd070ee34d3c6fc3c95eb",
            "valid.txt": "13347bfb5e17d1cae003e0bfe29b4716d3ab748e8cfb6af997138d37da3a51dc",
            "test.txt": "d22c19d176d4ba6a6f0d0c6bfce39ab3c16e3b20e1df6f9efe0d9ed86542fa10",
        },
        mirrors=(_rotate("wn18"), _villmow("WN18/original"), _libkge("wn18", "wordnet-mlj12")),
    ),
    DatasetInfo(
        name="WN18RR",
        title="WN18 without the relations that mirror another one.",
        entities=40_943,
        relations=11,
        train=86_835,
        valid=3_034,
        test=3_134,
        files={
            "train.txt": "038612e783c215ee5f3ca9fbfca27b8d0739be1028fe4ee7c174aecf0b83d5df",
            "valid.txt": "453ce7202afa58094a04d2b1560ee2b02660f1c260b32ce6651c8ccedd1028ab",
            "test.txt": "0383bceaaa1096cf3c03ec021ed0048068e2355dbfc0239b292cefdac821cec5",
        },
        mirrors=(_rotate("wn18rr"), _villmow("WN18RR/original"), _conve("WN18RR")),
    ),
    DatasetInfo(
        name="FB15K",
        title="A part of Freebase; many test triples are a training triple read backwards.",
        entities=14_951,
        relations=1_345,
        train=483_142,
        valid=50_000,
        test=59_071,
        files={
            "train.txt": "f9cdfd2685f6483bd3a499d433919b15d62f0715c6cf18b2ca30c2aa5c47a704",
            "valid.txt": "471929cde9cf74b1caa8348c2b601c8010d6b2f2a56bae49b4ebfd14c9bce855",
            "test.txt": "5b60b4de325482c3368e22d0b7452d465b09a610fea0ce3768d8b1e8b5a7e42a",
        },
        mirrors=(_rotate("FB15k"), _libkge("fb15k", "freebase_mtr100_mte100")),
    ),
    DatasetInfo(
        name="FB15K-237",
        title="FB15K without the relations that mirror another one.",
        entities=14_541,
        relations=237,
        train=272_115,
        valid=17_535,
        test=20_466,
        files={
            "train.txt": "61099230e4439f90885ca9767739e31e8e32f54736fa1c35952b27997bc7c08a",
            "valid.txt": "749cbe9d923bac7b9354da5614ecfed2e0220256d442c3e04a6b303db1f273d9",
            "test.txt": "e2e35e8e6113de220140b6f44dc71a5207b0fc6872d575e874aefe13259b655b",
        },
        mirrors=(_rotate("FB15k-237"), _villmow("FB15k-237"), _conve("FB15k-237")),
    ),
    DatasetInfo(
        name="YAGO3-10",
        title="Facts about people from YAGO3, each entity in at least ten of them.",
        entities=123_182,
        relations=37,
        train=1_079_040,
        valid=5_000,
        test=5_000,
        files={
            "train.txt": "afb9b51c68d1c997e85655477045b4c5146cd2a6b50b6eea5373383f35dcb12a",
            "valid.txt": "c9018b77ec77e99f8d48bc3258d404f10b2049a6c7b4ac6eb663697e799dc6f5",
            "test.txt": "003887ca8a34c90fcaf9b0250b1c30a4b5f617f80f8cf0aeab9723333061598a",
        },
        mirrors=(_rotate("YAGO3-10"), _conve("YAGO3-10")),
    ),
    DatasetInfo(
        name="FB13",
        title="People of Freebase in 13 relations, with labelled negatives to classify.",
        entities=75_043,
        relations=13,
        train=316_232,
        valid=5_908,
        test=23_733,
        files={
            "train.txt": "a5fbd015907724cea39d1eb8379cdd5b4859515196beda261e302401428035fb",
            "valid.labeled.txt": "431d05a8dd27cf5adbfc9ae5f7f3f40037bcdc9632bfc87eccdb4895e2633c6c",
            "test.labeled.txt": "a85b2e843f64b2020987bf3e99aac0a875ac5d05e900f5a63a37305b7c34741b",
            "valid.txt": "5894f04d657f9169abce63f3b5e3f3e678aad0fddbde0dbfe0a3b19821741574",
            "test.txt": "e0a7ed4fcc1e5842444d0f0a09a0d5260cbedffeeff99de5a2a971541afb1f49",
        },
        mirrors=(_KG_BERT,),
    ),
)
