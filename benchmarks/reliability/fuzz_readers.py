"""Mutated files for every reader of graphs: each is read right or refused with one sentence.

    python benchmarks/reliability/fuzz_readers.py --count 5000 --workers 16 --out counts.json

Triples with odd names are written in a format, most files are then mutated (bytes flipped, cut,
repeated, put in; tokens of the format put in), and the file is loaded. Each case ends as

- ``equal``: what was loaded is what the oracle says;
- ``loaded``: the mutated file is still a file of its format, and there is no oracle for it;
- ``refused``: a ``UserError`` of one or two sentences on one line that names the file;
- ``wrong``: it was loaded, and the oracle says otherwise;
- ``crashed``: another exception, an unfit message, or more than thirty seconds.

The oracle of a file that was not mutated is what was written. Of a mutated one it is a short
reading straight from the definition (tab, comma, OpenKE), another reader (pyoxigraph for
N-Triples), or again what was written where a checksum guards the bytes (gzip, bzip2, xz,
archives).
A process that dies counts all of its cases as crashed.
"""

from __future__ import annotations

import argparse
import bz2
import contextlib
import csv
import gzip
import hashlib
import io
import json
import lzma
import random
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pyarrow as pa
import pyarrow.parquet as pq
from shares import keep

from nscaching.errors import UserError
from nscaching.graph import KnowledgeGraph, load_graph
from nscaching.graph.datasets import DownloadError, extract, sha256_of

Triples = list[tuple[str, str, str]]
Files = dict[str, bytes]
INTACT = 5  #: every fifth file is not mutated
SECONDS = 30  # a busy machine stops for seconds
NAMES = [
    "a",
    "b",
    "é😀",
    "NA",
    "null",
    '"',
    "a,b",
    " x ",
    "0",
    "1e5",
    "#",
    "\\",
    "\x1b[31m",
    "\x85",
]
TOKENS = [
    b"\t",
    b"\n",
    b"\r",
    b",",
    b'"',
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b" ",
    b"-1",
    b"<",
    b">",
]
TOKENS += [
    b"9" * 5000,
    b"99999999999",
    b"\\u0000",
    b"\\uD800",
    b"_:b",
    b".",
    b"&lol;",
    b"1_0",
    b"\x1b",
]


# What is written ---------------------------------------------------------------------------------


def some_triples(rng: random.Random, iris: bool = False) -> Triples:
    names = [f"http://e/n{i}" for i in range(9)] if iris else NAMES + [f"e{i}" for i in range(9)]
    count = rng.choice([1, 2, 5, 20, 60])
    return [(rng.choice(names), rng.choice(names), rng.choice(names)) for _ in range(count)]


def as_tab(triples: Triples) -> bytes:
    return "".join("\t".join(triple) + "\n" for triple in triples).encode()


def as_csv(triples: Triples) -> bytes:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(triples)
    return out.getvalue().encode()


def as_ntriples(triples: Triples) -> bytes:
    return "".join(f"<{h}> <{r}> <{t}> .\n" for h, r, t in triples).encode()


def as_xml(triples: Triples) -> bytes:
    rows = (
        f"<rdf:Description rdf:about={quoteattr(h)}><x:{r[9:]} rdf:resource={quoteattr(t)}/>"
        "</rdf:Description>\n"
        for h, r, t in triples
    )
    space = 'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:x="http://e/"'
    return f"<rdf:RDF {space}>\n{''.join(rows)}</rdf:RDF>\n".encode()


def as_parquet(triples: Triples) -> bytes:
    out = io.BytesIO()
    columns = list(zip(*triples, strict=True))
    table = {name: pa.array(c, pa.string()) for name, c in zip("hrt", columns, strict=True)}
    pq.write_table(pa.table(table), out, compression="NONE")
    return out.getvalue()


def as_openke(triples: Triples) -> dict[str, bytes]:
    entities = list(dict.fromkeys(name for h, _, t in triples for name in (h, t)))
    relations = list(dict.fromkeys(r for _, r, _ in triples))
    rows = [f"{entities.index(h)} {entities.index(t)} {relations.index(r)}" for h, r, t in triples]
    files = {
        "entity2id.txt": [f"{name}\t{at}" for at, name in enumerate(entities)],
        "relation2id.txt": [f"{name}\t{at}" for at, name in enumerate(relations)],
        "train2id.txt": rows,
    }
    return {
        file: "".join(f"{line}\n" for line in [len(lines), *lines]).encode()
        for file, lines in files.items()
    }


def as_tar(triples: Triples, mode: Any) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, data in (("g/é", b"other"), ("g/train.txt", as_tab(triples))):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def as_zip(triples: Triples) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("g/é", b"other")
        zipped.writestr("g/train.txt", as_tab(triples))
    return out.getvalue()


# What should be read -----------------------------------------------------------------------------


def tab_oracle(files: Files) -> Triples | None:
    """Read a .txt file as the documentation has it; None for what must be refused."""
    rows = []
    for line in files["x.txt"].removeprefix(b"\xef\xbb\xbf").splitlines():
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            return None
        if text.strip(" "):
            rows.append(tuple(text.split("\t")))
    return _checked(rows)


def csv_oracle(files: Files) -> Triples | None:
    """Read a .csv file with Python's own module; None for what must be refused."""
    try:
        text = files["x.csv"].removeprefix(b"\xef\xbb\xbf").decode("utf-8")
        lines = io.StringIO(text, newline="")
        rows = list(csv.reader(lines, strict=True, skipinitialspace=True))
    except (UnicodeDecodeError, csv.Error):
        return None
    return _checked([row for row in map(_bare, rows) if len(row) > 1 or (row and row[0])])


def _bare(row: Iterable[str]) -> tuple[str, ...]:
    """Return names without the spaces around them, which do not count in CSV."""
    return tuple(name.strip(" ") for name in row)


def _checked(rows: list[tuple[str, ...]]) -> Triples | None:
    good = all(len(row) == 3 and all(row) for row in rows)
    good = good and not any(sign in name for row in rows for name in row for sign in "\r\n")
    return [(row[0], row[1], row[2]) for row in rows] if rows and good else None


def ntriples_oracle(files: Files) -> Triples | None:
    """Read N-Triples with pyoxigraph; None for what it refuses, where our reader may be wider."""
    import pyoxigraph  # of an extra, which the other formats do without

    rows = []
    try:
        for quad in pyoxigraph.parse(files["x.nt"], format=pyoxigraph.RdfFormat.N_TRIPLES):
            parts = list(quad.triple)
            if all(isinstance(p, pyoxigraph.NamedNode | pyoxigraph.BlankNode) for p in parts):
                blank = [isinstance(part, pyoxigraph.BlankNode) for part in parts]
                names = [
                    f"_:{p.value}" if b else p.value for p, b in zip(parts, blank, strict=True)
                ]
                rows.append((names[0], names[1], names[2]))
    except SyntaxError:
        return None
    return rows or None


def openke_oracle(files: Files) -> Triples | None:
    """Read OpenKE files that are written in the plainest way; None for all others."""
    lines = {}
    for file, data in files.items():
        first, *rest = data.split(b"\n")
        form = (
            rb"[0-9]{1,9} [0-9]{1,9} [0-9]{1,9}"
            if file == "train2id.txt"
            else rb"[^\t\r]+\t[0-9]{1,9}"
        )
        plain = rest and rest.pop() == b"" and all(re.fullmatch(form, line) for line in rest)
        if not plain or not re.fullmatch(rb"[0-9]{1,9}", first) or int(first) != len(rest):
            return None
        lines[file] = rest
    names = {}
    for file in ("entity2id.txt", "relation2id.txt"):
        pairs = [line.split(b"\t") for line in lines[file]]
        names[file] = {int(number): name for name, number in pairs}
        whole = sorted(names[file]) == list(range(len(pairs)))
        if (
            not whole
            or len(set(names[file].values())) != len(pairs)
            or not all(n.strip() for n, _ in pairs)
        ):
            return None
    entities, relations = names["entity2id.txt"], names["relation2id.txt"]
    try:
        ids = [tuple(map(int, line.split())) for line in lines["train2id.txt"]]
        rows = [
            (entities[h].decode(), relations[r].decode(), entities[t].decode()) for h, t, r in ids
        ]
    except (KeyError, UnicodeDecodeError):
        return None
    return rows or None


# One case ----------------------------------------------------------------------------------------


class Format:
    """How a format is written, and what a mutated file should be read as."""

    def __init__(
        self,
        file: str,
        write: Callable[[Triples], bytes | dict[str, bytes]],
        oracle: Callable[[Files], Triples | None] | None = None,
        *,
        strict: bool = True,
        iris: bool = False,
        guarded: bool = False,
        archive: bool = False,
    ) -> None:
        self.file, self.write, self.oracle = file, write, oracle
        self.strict = strict  #: whether a file must be refused when the oracle has no answer
        self.iris, self.guarded, self.archive = iris, guarded or archive, archive


FORMATS = {
    "tab": Format("x.txt", as_tab, tab_oracle),
    "csv": Format("x.csv", as_csv, csv_oracle),
    "ntriples": Format("x.nt", as_ntriples, ntriples_oracle, strict=False, iris=True),
    "turtle": Format("x.ttl", as_ntriples, iris=True),
    "rdfxml": Format("x.rdf", as_xml, iris=True),
    "nquads": Format("x.nq", as_ntriples, iris=True),
    "parquet": Format("x.parquet", as_parquet),
    "openke": Format("", as_openke, openke_oracle, strict=False),
    "gzip": Format("x.txt.gz", lambda t: gzip.compress(as_tab(t), mtime=0), guarded=True),
    "bzip2": Format("x.txt.bz2", lambda t: bz2.compress(as_tab(t)), guarded=True),
    "xz": Format("x.txt.xz", lambda t: lzma.compress(as_tab(t)), guarded=True),
    "tar.gz": Format("x.tar.gz", lambda t: as_tar(t, "w:gz"), archive=True),
    "tar.bz2": Format("x.tar.bz2", lambda t: as_tar(t, "w:bz2"), archive=True),
    "tar.xz": Format("x.tar.xz", lambda t: as_tar(t, "w:xz"), archive=True),
    "zip": Format("x.zip", lambda t: as_zip(t), archive=True),
}


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = rng.randrange(len(out) + 1)
        end = min(len(out), at + rng.choice([1, 1, 4, 40]))
        kind = rng.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del out[at:end]
        elif kind == 2:
            out[at:at] = out[at:end]
        elif kind == 3:
            out[at:at] = rng.choice(TOKENS)
        elif kind == 4:
            out[at:end] = rng.randbytes(end - at)
        else:
            del out[at:]
    return bytes(out)


def named(graph: KnowledgeGraph) -> Triples:
    e, r = graph.entities, graph.relations
    return [(e[h], r[k], e[t]) for h, k, t in graph.train.tolist()]


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    def stop(*given: object) -> None:
        raise TimeoutError(f"more than {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def unfit(message: str, place: str) -> bool:
    """Tell whether a message is not what a user should be shown."""
    return not message.isprintable() or len(message) > 700 or place not in message


def load_archive(archive: Path, written: Triples) -> KnowledgeGraph:
    """Unpack as a download does, which compares the SHA-256 of each file."""
    target = archive.with_name("train.txt")
    target.unlink(missing_ok=True)
    extract(archive, {"train.txt": "train.txt"}, archive.parent)
    if not target.exists() or sha256_of(target) != hashlib.sha256(as_tab(written)).hexdigest():
        raise DownloadError(f"{archive.name}: the checksum is wrong")
    return load_graph(target)


def one_case(kind: str, number: int, seed: int, folder: Path) -> tuple[str, str]:
    """Write, mutate and load one file; return how it ended, and what was said."""
    form = FORMATS[kind]
    rng = random.Random(f"{kind}/{seed}/{number}")
    written = some_triples(rng, form.iris)
    data = form.write(written)
    files = dict(data) if isinstance(data, dict) else {form.file: data}
    intact = number % INTACT == 0
    if not intact:
        chosen = rng.choice(sorted(files))
        files[chosen] = mutated(files[chosen], rng)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    try:
        with limited(SECONDS):
            if form.archive:
                graph = load_archive(folder / form.file, written)
            else:
                graph = load_graph(folder / form.file if form.file else folder)
    except (UserError, DownloadError) as error:
        said = str(error)
        if unfit(said, form.file if form.archive else str(folder)):
            return "crashed", f"unfit message: {said[:300]!r}"
        expected = form.oracle(files) if form.oracle else None
        wrong = intact or (expected is not None and not _is_header(expected))
        return ("wrong" if wrong else "refused"), said
    except BaseException:
        return "crashed", traceback.format_exc(limit=-3)
    loaded = named(graph)
    if intact or form.guarded:
        meant = map(_bare, written) if form.write is as_csv else written
        return ("equal" if loaded == list(dict.fromkeys(meant)) else "wrong"), repr(loaded[:3])
    expected = form.oracle(files) if form.oracle else None
    if form.oracle is None or (expected is None and not form.strict):
        return "loaded", ""
    if expected is not None and _is_header(expected):
        return "loaded", ""
    right = expected is not None and loaded == list(dict.fromkeys(expected))
    return ("equal" if right else "wrong"), repr((loaded[:3], expected and expected[:3]))


def _is_header(triples: Triples) -> bool:
    """Tell whether the first row may have been taken as column names."""
    return any(name.strip().casefold() in ("r", "p", "rel", "edge") for name in triples[0])


def warm_up(kind: str, folder: Path) -> None:
    """Load a whole file once: importing what a reader needs is not its time."""
    form = FORMATS[kind]
    written = some_triples(random.Random(0), form.iris)
    data = form.write(written)
    for name, content in (data if isinstance(data, dict) else {form.file: data}).items():
        (folder / name).write_bytes(content)
    if form.archive:
        load_archive(folder / form.file, written)
    else:
        load_graph(folder / form.file if form.file else folder)


def run_cases(kind: str, first: int, count: int, seed: int) -> dict[str, Any]:
    """Run some cases in this process; return counts, and the cases that went wrong."""
    counts: Counter[str] = Counter()
    failures = []
    with tempfile.TemporaryDirectory() as temporary:
        with contextlib.suppress(Exception):  # whatever is wrong, the cases will say
            warm_up(kind, Path(temporary))
        for number in range(first, first + count):
            ended, said = one_case(kind, number, seed, Path(temporary))
            counts[ended] += 1
            if ended in ("wrong", "crashed"):
                failures.append({"format": kind, "seed": seed, "case": number, "said": said})
    return {"counts": dict(counts), "failures": failures}


def run_process(kind: str, first: int, count: int, seed: int) -> dict[str, Any]:
    """Run some cases in a process of their own."""
    command = [sys.executable, __file__, "--worker", kind, str(first), str(count), str(seed)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode == 0:
        found: dict[str, Any] = json.loads(ended.stdout)
        return found
    said = f"exit {ended.returncode}: {ended.stderr[-400:]}"
    failure = {
        "format": kind,
        "seed": seed,
        "case": f"{first} to {first + count - 1}",
        "said": said,
    }
    return {"counts": {"crashed": count}, "failures": [failure]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000, help="cases per format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--workers", type=int, default=1, help="processes at once")
    parser.add_argument("--out", type=Path, help="file of the counts, written as they come")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no batch after that")
    parser.add_argument("--worker", nargs=4, metavar=("FORMAT", "FIRST", "COUNT", "SEED"))
    options = parser.parse_args()
    if options.worker:
        kind, first, count, seed = options.worker
        print(json.dumps(run_cases(kind, int(first), int(count), int(seed))))
        return 0
    formats: dict[str, Counter[str]] = {kind: Counter() for kind in options.formats.split(",")}
    batches = [
        (kind, first, min(500, options.count - first), options.seed)
        for first in range(0, options.count, 500)
        for kind in formats
    ]
    failures: list[dict[str, Any]] = []
    started, mutations = time.monotonic(), 0
    told: dict[str, Any] = {}

    def run(batch: tuple[str, int, int, int]) -> tuple[str, dict[str, Any]]:
        if time.monotonic() - started > options.seconds:
            return batch[0], {"counts": {}, "failures": []}
        return batch[0], run_process(*batch)

    with ThreadPoolExecutor(options.workers) as pool:
        for ended in as_completed([pool.submit(run, batch) for batch in batches]):
            kind, found = ended.result()
            formats[kind].update(found["counts"])
            failures += found["failures"]
            count = sum(found["counts"].values())
            mutations += count - len(range(0, count, INTACT))
            told = _result(formats, failures) | {"mutated": mutations, "seed": options.seed}
            told["seconds"] = round(time.monotonic() - started)
            keep(options.out, told)
    print(json.dumps(told))
    return 1 if failures else 0


def _result(formats: dict[str, Counter[str]], failures: list[dict[str, Any]]) -> dict[str, Any]:
    total: Counter[str] = sum(formats.values(), Counter())
    counted = {kind: dict(counts) for kind, counts in formats.items()}
    return {
        "cases": total.total(),
        "total": dict(total),
        "formats": counted,
        "failures": failures,
    }


if __name__ == "__main__":
    raise SystemExit(main())
