"""Kill long commands at random moments and resume them: the result is that of an unbroken run.

    python benchmarks/reliability/kills.py --kills 1000 --workers 16 --out kills.json

Every case is a long command on a small graph: trainings, one of them in strata and one on a graph
on disk, a search, a comparison, an embedding of nodes, a table of the paper, an update, a training
that replaces an older run, an ingestion. It is run twice without a stop, which must give the same
and says how long it takes once kernels are compiled. Then it is killed at random moments, most
often by SIGKILL, else by SIGTERM, SIGHUP or SIGINT, and resumed, until it ends; model, checkpoint,
metrics and trial log must then be those of the unbroken run, bit for bit (times aside), and no
temporary file, lock or process may be left.
After every kill the folder must be whole, or hold nothing yet.

Counts are written to ``--out`` as JSON as the campaign goes; the exit code is 1 after a failure.
Needs only the package; cases whose extra is not installed (tune, ingest) are skipped and named.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib.util
import io
import json
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shares import ONE_THREAD, keep
from starter import Child, Starter

#: Most kills are the hard one; the others must also say something and give the right exit code.
SIGNALS = [signal.SIGKILL] * 14 + [signal.SIGTERM] * 3 + [signal.SIGHUP] * 2 + [signal.SIGINT]
#: What a clock or chance decides: left out of every comparison.
UNTIMED = {"validating", "time", "id", "run", "anew", "hardware", "out", "starttime", "endtime",
           "digest", "check", "sha256", "cpu_time", "wall"}  # fmt: skip
#: Folders of a sharded checkpoint have a random part in their names.
TOKEN = re.compile(rb"(epoch-[0-9]+-)[0-9a-f]{8}")
#: Pages and pictures show times; SMAC's files hold them: they need only be there.
ONLY_THERE = (".html", ".svg", ".png")
#: A process is killed at most so often within one run, and is given so long to end.
MOST_KILLS, PATIENCE = 10, 300.0
#: One process of so many imports its packages itself; the others are forked with them (starter.py).
ANEW = 6


@dataclass
class Case:
    """A long command: how it is begun and resumed, and which file tells that it has begun."""

    name: str
    begin: list[str]
    resume: list[str] | None = None  #: None: the same command again
    begun: str = "nscaching.json"  #: file in the folder from which on ``resume`` is used
    needs: str = ""  #: package of an extra
    old: Path | None = None  #: folder of an older run that it replaces
    startup: float = 0.0  #: seconds until the folder was there, in the unbroken run
    seconds: float = 0.0  #: of the unbroken run
    expected: dict[str, Any] = field(default_factory=dict)


def make_cases(place: Path) -> list[Case]:
    """Write the graphs, and return all cases on them."""
    data = place / "data"
    write_graph(data)
    edges = place / "edges.txt"
    edges.write_text("".join(f"n{i} n{(i * k + k) % 200}\n" for i in range(200) for k in (1, 3)))
    facts = place / "facts.tsv"
    facts.write_text("new\tr0\te1\ne2\tr1\tnew\ne5\tr9\te90\n")
    common = ["--device", "cpu", "--dim", "8", "--batch-size", "128", "--quiet"]
    common += ["--checkpoint-seconds", "0", "--valid-every", "3", "--patience", "0"]
    paper = ["--recipe", "paper", "--scoring", "transe", "--sampler", "nscaching"]
    paper += ["--alpha1", "0.5", "--cache-size", "8", "--candidates", "8", "--l2", "0.01"]
    softmax = ["--recipe", "paper", "--scoring", "complex", "--loss", "softmax", "--reciprocal"]
    softmax += ["--optimizer", "adagrad", "--dropout", "0.1", "--n3", "0.01", "--lr", "0.1"]
    cached = [*softmax, "--sampler", "nscaching", "--negatives", "6", "--cache-size", "8",
              "--candidates", "8", "--pool", "12"]  # fmt: skip
    train = ["train", str(data), *common]
    again = ["train", "--resume", "--quiet", "--out", "{out}"]
    few = ["--epochs", "9"]
    searched = ["--quiet", "--device", "cpu", "--dim", "8", "--epochs", "6", "--valid-every", "2"]
    old = place / "old"
    out = ["--out", "{out}"]
    resumed = [*out, "--resume"]
    compare = ["compare", str(data), "--samplers", "bernoulli,nscaching", "--seeds", "0"]
    nodes = ["nodes", "train", str(edges), "--dim", "8", "--epochs", "3", "--quiet"]
    table = ["reproduce", "table-7", "--dataset", "WN18RR", "--scoring", "simple", "--mode"]
    table += ["scratch", "--sampler", "bernoulli", "--sampler", "nscaching", "--on", "shape/400"]
    update = ["update", str(old), "--facts", str(facts), "--epochs", "12", "--device", "cpu"]
    tune = ["tune", str(data), "--trials", "4", "--space", "sampler", *searched]
    every = ["--sampler", "all", "--trace", "--epochs", "30"]
    anew = ["--epochs", "12", "--seed", "5", "--overwrite"]
    ingest = ["ingest", str(data), "--quiet", "--overwrite", *out]
    stored = [
        "train",
        str(place / "store"),
        *common,
        *paper,
        "--epochs",
        "20",
        "--no-report",
        *resumed,
    ]
    strata = ["--alpha1", "0", "--strata", "2", "--epochs", "20"]
    return [
        Case("train", [*train, *paper, "--epochs", "30", *resumed]),
        Case("train-softmax", [*train, *cached, "--epochs", "30", "--no-report", *resumed]),
        Case("train-all", [*train, *softmax, *every, "--no-report", *resumed]),
        Case("train-overwrite", [*train, *paper, *anew, *out], again, old=old),
        Case("compare", [*compare, *common, *few, *resumed]),
        Case("tune", [*tune, *resumed], needs="smac"),
        Case("nodes", [*nodes, *out, "--overwrite"]),
        Case("reproduce", [*table, "--budget", "6", "--device", "cpu", "--quiet", *out]),
        Case("update", [*update, "--quiet", *out], [*again, "--no-report"]),
        Case("train-strata", [*train, *paper, *strata, *resumed]),
        Case("ingest", ingest, needs="duckdb"),
        Case("train-stored", stored, needs="duckdb"),
    ]


def write_graph(folder: Path) -> None:
    """Write a ring of 300 entities and 10 relations as train, valid and test."""
    triples = [f"e{i}\tr{r}\te{(i + r + 1) % 300}\n" for i in range(300) for r in range(10)]
    random.Random(0).shuffle(triples)
    folder.mkdir(parents=True)
    parts = {"train": triples[200:], "valid": triples[:100], "test": triples[100:200]}
    for name, part in parts.items():
        (folder / f"{name}.txt").write_text("".join(part), encoding="utf-8")


# What a folder holds ------------------------------------------------------------------------------


def content(folder: Path) -> dict[str, Any]:
    """Return all that a command has written, without what a clock or chance decides."""
    found: dict[str, Any] = {}
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        if not file.is_dir():
            called = TOKEN.sub(rb"\1", os.fsencode(name)).decode()
            found[called] = "" if _only_there(name) else _content(file, folder)
    return found


def _only_there(name: str) -> bool:
    return name.endswith(ONLY_THERE) or name.startswith("smac/")


def _content(file: Path, folder: Path) -> Any:
    from safetensors import safe_open

    if file.suffix == ".safetensors":
        with safe_open(file, framework="np") as opened:
            told = json.loads((opened.metadata() or {}).get("details", "{}"))
            tensors = {n: opened.get_tensor(n) for n in opened.keys()}  # noqa: SIM118
        parts = {
            name: (str(tensor.dtype), tensor.shape, tensor.tobytes())
            for name, tensor in tensors.items()
            if not name.endswith("/digest")  # it names the checkpoint, which has a random part
        }
        return _untimed(told), parts
    whole = file.read_bytes().replace(os.fsencode(folder), b"OUT")
    whole = TOKEN.sub(rb"\1", whole) if file.suffix == ".json" else whole
    if file.suffix == ".json":
        return _untimed(json.loads(whole))
    if file.suffix == ".jsonl":
        return [_untimed(json.loads(line)) for line in whole.splitlines()]
    if file.suffix == ".csv":
        return [_untimed(row) for row in csv.DictReader(io.StringIO(whole.decode()))]
    return whole


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        timed = {name for name in value if name in UNTIMED or "seconds" in str(name)}
        return {name: _untimed(each) for name, each in value.items() if name not in timed}
    if isinstance(value, list):
        return [_untimed(each) for each in value]
    return value


def difference(found: dict[str, Any], expected: dict[str, Any]) -> str | None:
    """Say in which file two folders differ; None where they are the same."""
    for name in sorted(found.keys() | expected.keys()):
        if name not in found:
            return f"{name} is missing"
        if name not in expected:
            return f"{name} is left over"
        if found[name] != expected[name]:
            return f"{name} differs: {_first(found[name], expected[name])}"
    return None


def _first(one: Any, other: Any) -> str:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        for at, pair in enumerate(zip(one, other, strict=False)):
            if pair[0] != pair[1]:
                return f"{at}: {_first(*pair)}"
        return f"{len(one)} in place of {len(other)} entries"
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys(), key=str):
            if one.get(name) != other.get(name):
                return f"{name}: {_first(one.get(name), other.get(name))}"
    return f"{str(one)[:60]} in place of {str(other)[:60]}"


def damage(folder: Path) -> str | None:
    """Say what is not whole in a folder that a killed process left."""
    from nscaching.errors import UserError
    from nscaching.runs.checks import check_folder

    if not (folder / "nscaching.json").exists():
        return None
    try:
        found = check_folder(folder)
    except UserError as error:
        return str(error)
    lines = ("metrics.jsonl", "trace.jsonl", "trials.jsonl")  # a line may be half written
    wrong = [part for part in found.parts if part.state == "damaged" and part.name not in lines]
    return f"{wrong[0].name}: {wrong[0].remark}" if wrong else None


# One run ------------------------------------------------------------------------------------------


class Attempt:
    """One process of a command, in a session of its own so that all it started can be found.

    Without a starter it is a new Python, which begins with its imports.
    """

    def __init__(
        self, arguments: list[str], out: Path, temporary: Path, starter: Starter | None = None
    ) -> None:
        temporary.mkdir(parents=True, exist_ok=True)
        words = [word.format(out=out) for word in arguments]
        self.errors = temporary / "stderr"
        self.process: Child | subprocess.Popen[bytes]
        self.forked = starter is not None
        if starter is not None:
            self.process = starter.start(words, str(self.errors), {"TMPDIR": str(temporary)})
        else:
            with self.errors.open("wb") as errors:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "nscaching", *words],
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    env={**os.environ, **ONE_THREAD, "TMPDIR": str(temporary)},
                )
        self.started = time.monotonic()

    def wait_for_our_code(self) -> None:
        """Wait until signals are caught: before that Python starts itself, and none of us runs."""
        end = time.monotonic() + PATIENCE
        while self.alive() and time.monotonic() < end and not self._catches(signal.SIGTERM):
            time.sleep(0.002)

    def _catches(self, number: signal.Signals) -> bool:
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:  # it has ended, or this is another system
            return True
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
        return caught is None or bool(int(caught[1], 16) >> (number - 1) & 1)

    def alive(self) -> bool:
        """Tell whether it has not ended yet."""
        return self.process.poll() is None

    def wait(self, seconds: float = PATIENCE) -> int | None:
        """Return the exit code; None after so long, when everything is killed."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._kill_all()
            self.process.wait()
            return None

    def said(self) -> str:
        """Return what it wrote on stderr."""
        return self.errors.read_bytes().decode("utf-8", "replace")

    def left_alive(self) -> bool:
        """Tell whether a process that this one started outlives it by ten seconds; end it."""
        for _ in range(100):
            try:
                os.killpg(self.process.pid, 0)
            except (ProcessLookupError, PermissionError):
                return False
            time.sleep(0.1)
        self._kill_all()
        return True

    def _kill_all(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def unbroken(
    case: Case, place: Path, name: str = "whole", starter: Starter | None = None
) -> str | None:
    """Run a case without a stop and keep what it wrote; return what went wrong."""
    out = place / case.name / name
    _prepare(case, out)
    before = _stamp(out)
    attempt = Attempt(case.begin, out, place / case.name / "tmp", starter)
    while attempt.alive() and _stamp(out) == before:
        time.sleep(0.005)
    case.startup = time.monotonic() - attempt.started
    code = attempt.wait(2 * PATIENCE)
    case.seconds = time.monotonic() - attempt.started
    if code != 0:
        return f"exit {code}: {attempt.said()[-600:]}"
    expected, case.expected = case.expected, content(out)
    differs = difference(case.expected, expected) if expected else None
    return None if differs is None else f"a second time, {differs}"


def _prepare(case: Case, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    if case.old is not None:
        shutil.copytree(case.old, out)


def _stamp(folder: Path) -> tuple[Any, ...]:
    """Return what changes whenever something is written below a folder."""
    found = []
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            try:
                told = os.lstat(f"{above}/{name}")
                found.append((name, told.st_mtime_ns, told.st_size))
            except OSError:
                found.append((name, 0, 0))
    return tuple(found)


def wait_for_the_moment(attempt: Attempt, case: Case, out: Path, chance: random.Random) -> None:
    """Wait for a random moment: while it starts, while it works, or at a write of a file."""
    kind = chance.random()
    writes_late = case.startup > 0.7 * case.seconds
    if kind < (0.6 if writes_late else 0.15):
        _sleep(attempt, chance.uniform(0, case.startup))
        return
    working = max(0.05, case.seconds - case.startup)
    before = _stamp(out)
    limit = attempt.started + 3 * case.seconds
    while attempt.alive() and time.monotonic() < limit and _stamp(out) == before:
        time.sleep(0.001)
    case.startup = min(case.startup, time.monotonic() - attempt.started)
    if kind < 0.5:
        _sleep(attempt, chance.uniform(0, 0.35 * working))
        return
    for _ in range(chance.randrange(16)):
        before, since = _stamp(out), time.monotonic()
        while attempt.alive() and time.monotonic() < since + working and _stamp(out) == before:
            time.sleep(0.0005)
    _sleep(attempt, chance.choice([0, 0, chance.uniform(0, 0.02)]))


def _sleep(attempt: Attempt, seconds: float) -> None:
    end = time.monotonic() + seconds
    while attempt.alive() and time.monotonic() < end:
        time.sleep(min(0.01, max(0.0, end - time.monotonic())))


@dataclass
class Outcome:
    """How one run of a case went."""

    case: str
    number: int
    signals: Counter[str] = field(default_factory=Counter)
    failure: str | None = None


def one_run(
    case: Case, number: int, seed: int, place: Path, until: float, starter: Starter | None = None
) -> Outcome:
    """Kill a case and resume it until it ends; compare the result. No kill comes after ``until``.

    The unbroken run may have compiled kernels: where this one is faster, its times are kept.
    """
    chance = random.Random(f"{case.name}/{seed}/{number}")
    outcome = Outcome(case.name, number)
    here = place / case.name / f"{number}"
    out, temporary = here / "R", here / "tmp"
    _prepare(case, out)
    for attempt_number in range(MOST_KILLS + 1):
        anew = chance.randrange(ANEW) == 0
        attempt = Attempt(_command(case, out), out, temporary, None if anew else starter)
        last = attempt_number == MOST_KILLS or time.monotonic() > until
        if not last:
            attempt.wait_for_our_code()
            wait_for_the_moment(attempt, case, out, chance)
        sent = None
        if not last and attempt.alive():
            sent = chance.choice(SIGNALS)
            attempt.process.send_signal(sent)
        code = attempt.wait()
        if attempt_number == 0 and code == 0:
            case.seconds = min(case.seconds, time.monotonic() - attempt.started)
        if sent is not None and code != 0:
            outcome.signals[sent.name] += 1
        outcome.failure = _wrong(attempt, code, sent) or (None if code == 0 else damage(out))
        if outcome.failure is not None or code == 0:
            break
    if outcome.failure is None:
        outcome.failure = difference(content(out), case.expected) or _left_over(temporary)
    if outcome.failure is None:
        shutil.rmtree(here)
    return outcome


def _command(case: Case, out: Path) -> list[str]:
    """Return how to start, or how to resume, as a user would who looks at the folder."""
    if case.resume is None or not (out / case.begun).exists():
        return case.begin
    if case.old is not None and _identity(out) == _identity(case.old):
        return case.begin
    return case.resume


def _identity(folder: Path) -> Any:
    return json.loads((folder / "nscaching.json").read_text()).get("id")


def _wrong(attempt: Attempt, code: int | None, sent: signal.Signals | None) -> str | None:
    said = attempt.said()
    if code is None:
        return f"hung for {PATIENCE:.0f} s; {sent}; {said[-300:]}"
    if "Traceback" in said:
        return f"traceback after {sent}: {said[-1500:]}"
    if sent is None and code != 0:
        return f"exit {code} without a signal: {said[-600:]}"
    if sent is not None and code not in (0, 128 + sent, -sent):
        return f"exit {code} after {sent.name}: {said[-600:]}"
    if attempt.left_alive():
        return f"a process outlived {sent}"
    return None


def _left_over(temporary: Path) -> str | None:
    found = [file.name for file in temporary.iterdir() if "nscaching" in file.name]
    return f"left in the folder of temporary files: {found[0]}" if found else None


# The campaign -------------------------------------------------------------------------------------


class Campaign:
    """Hands out runs until there were enough kills; counts, and writes the counts down."""

    def __init__(self, cases: list[Case], given: argparse.Namespace, place: Path) -> None:
        self.cases, self.given, self.place = cases, given, place
        self.started, self.lock = time.monotonic(), threading.Lock()
        self.next = 0
        self.outcomes: list[Outcome] = []
        self.starter = Starter({**os.environ, **ONE_THREAD})
        self.skipped: dict[str, str] = {}

    def kills(self) -> int:
        """Return how many processes ended by a signal so far."""
        return sum(sum(each.signals.values()) for each in self.outcomes)

    def seconds(self) -> float:
        """Return how long the campaign has been running."""
        return time.monotonic() - self.started

    def prepare(self) -> None:
        """Make what some cases begin from, then run every case unbroken, twice."""
        begin = {case.name: case.begin for case in self.cases}
        for case in self.cases:
            if case.needs and importlib.util.find_spec(case.needs) is None:
                self.skipped[case.name] = f"needs {case.needs}"
        self._make(Case("old", [*begin["train"], "--epochs", "6"]))
        if "ingest" not in self.skipped:
            self._make(Case("store", begin["ingest"]))
        wanted = self.given.cases.split(",") if self.given.cases else []
        self.cases = [
            case
            for case in self.cases
            if case.name not in self.skipped and (not wanted or case.name in wanted)
        ]
        with ThreadPoolExecutor(self.given.workers) as pool:
            for name in ("whole", "again"):
                done = pool.map(
                    lambda c, n=name: unbroken(c, self.place, n, self.starter), self.cases
                )
                for case, wrong in zip(self.cases, done, strict=True):
                    self._fail(case, wrong)
        for case in self.cases:
            print(f"{case.name}: {case.seconds:.1f} s unbroken", file=sys.stderr, flush=True)

    def _make(self, case: Case) -> None:
        """Run a command once into the folder of its name."""
        self._fail(case, unbroken(case, self.place, starter=self.starter))
        (self.place / case.name).rename(self.place / "made")
        (self.place / "made" / "whole").rename(self.place / case.name)
        shutil.rmtree(self.place / "made")

    def _fail(self, case: Case, wrong: str | None) -> None:
        if wrong is not None:
            raise SystemExit(f"{case.name} cannot be run unbroken: {wrong}")

    def work(self) -> None:
        """Run cases in turn, as one of several workers."""
        while True:
            with self.lock:
                enough = self.kills() >= self.given.kills
                if enough or self.seconds() > self.given.seconds:
                    return
                number, self.next = self.next, self.next + 1
            case = self.cases[number % len(self.cases)]
            try:
                until = self.started + self.given.seconds
                turn = number // len(self.cases)
                seed = self.given.seed
                outcome = one_run(case, turn, seed, self.place, until, self.starter)
            except Exception as error:
                outcome = Outcome(case.name, number, failure=f"{type(error).__name__}: {error}")
            with self.lock:
                self.outcomes.append(outcome)
                self._tell(outcome)

    def _tell(self, outcome: Outcome) -> None:
        if outcome.failure is not None:
            said = f"{outcome.case} {outcome.number}: {outcome.failure}"
            print(said, file=sys.stderr, flush=True)
        keep(self.given.out, self.counts())

    def counts(self) -> dict[str, Any]:
        """Return all counts so far."""
        import torch

        by_case = {}
        for case in self.cases:
            runs = [each for each in self.outcomes if each.case == case.name]
            by_case[case.name] = {
                "runs": len(runs),
                "kills": sum(sum(each.signals.values()) for each in runs),
                "equal": sum(each.failure is None for each in runs),
            }
        failed = [each for each in self.outcomes if each.failure is not None]
        return {
            "kills": self.kills(),
            "runs": len(self.outcomes),
            "signals": dict(sum((each.signals for each in self.outcomes), Counter())),
            "cases": by_case,
            "skipped": self.skipped,
            "failures": [
                {"case": each.case, "run": each.number, "what": each.failure} for each in failed
            ],
            "seed": self.given.seed,
            "seconds": round(self.seconds()),
            "workers": self.given.workers,
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "torch": torch.__version__,
        }


def main() -> int:
    """Run the campaign and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=3600.0, help="kill none after that")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", help="names with commas between them; all by default")
    parser.add_argument("--out", type=Path, help="file of the counts")
    parser.add_argument("--keep", action="store_true", help="keep the folders, for a look")
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="kills-"))
    campaign = Campaign(make_cases(place), given, place)
    try:
        campaign.prepare()
        with ThreadPoolExecutor(given.workers) as pool:
            for each in [pool.submit(campaign.work) for _ in range(given.workers)]:
                each.result()
    finally:
        campaign.starter.close()
        if given.keep:
            print(f"Kept: {place}", file=sys.stderr)
        else:
            shutil.rmtree(place, ignore_errors=True)
    counts = campaign.counts()
    print(json.dumps(counts))
    return 1 if counts["failures"] or not counts["kills"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
