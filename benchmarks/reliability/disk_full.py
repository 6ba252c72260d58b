"""Fill the disk at each write of a command in turn: what was there stays whole, one sentence tells.

    python benchmarks/reliability/disk_full.py --workers 16 --out disk_full.json

Every command runs on a small file system of its own (a tmpfs; it needs root). It is run once to
count the calls that make, open or rename a file in it. Then, for each such call in turn, the file
system is filled up just before it, but for a few pages. The command must end with one or two
sentences that name the folder and the bytes that are free, or finish. The folder must be whole
then: the run that was there, or the new one up to its last checkpoint, and nothing temporary. With
space again the command is run anew, or resumed, to the bits of an unbroken run.

Where nothing can be mounted, files are limited in size instead (``ulimit -f``) from that call on.
Counts are printed as JSON and written to ``--out``; the exit code is 1 after a failure.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kills import content, damage, difference
from shares import Share, add_options, run_share, run_shares

PAGE = os.sysconf("SC_PAGE_SIZE")
#: Events of the interpreter that come before a change of the file system.
EVENTS = {"open", "os.mkdir", "os.rename"}
SMALL = ["--device", "cpu", "--dim", "4", "--quiet", "--checkpoint-seconds", "0"]
SMALL += ["--valid-every", "1", "--recipe", "paper"]


@dataclass
class Command:
    """A command that writes a folder; what is there before; how it is completed afterwards."""

    name: str
    begin: list[str]
    resume: list[str]
    old: Path | None = None


def make_commands(place: Path) -> list[Command]:
    """Write a graph, train the runs that some commands begin from, and return all commands."""
    data, edges, facts = place / "g.tsv", place / "edges.txt", place / "facts.tsv"
    lines = [f"e{i}\tr{i % 3}\te{(7 * i + 1) % 40}\n" for i in range(240)]
    data.write_text("".join(sorted(set(lines))), encoding="utf-8")
    edges.write_text("".join(f"n{i} n{(i * 3 + 1) % 40}\n" for i in range(40)))
    facts.write_text("new\tr0\te1\ne2\tr1\tnew\n")
    old, nodes, out = place / "old", place / "nodes", ["--out", "{out}"]
    store = place / "store"
    train = ["train", str(data), *SMALL, "--epochs", "3", *out]
    strata = ["train", str(data), *SMALL, "--epochs", "2", "--strata", "2", "--no-report", *out]
    ingest = ["ingest", str(data), "--split", "0.1", "--threads", "1", "--quiet", *out]
    embed = ["nodes", "train", str(edges), "--dim", "4", "--epochs", "1", "--quiet", *out]
    again = ["train", "--resume", "--quiet", *out]
    begin = [(train, old), (embed, nodes)]
    begin += [(ingest, store)] if importlib.util.find_spec("duckdb") else []
    for arguments, folder in begin:
        code, said = call([*arguments, "--seed", "1"], folder)
        assert code == 0, said
    more = ["train", "--resume", "--quiet", "--epochs", "5", *out]
    samplers = ["compare", str(data), "--samplers", "bernoulli", "--seeds", "0", *SMALL]
    compare = [*samplers, "--epochs", "2", "--resume", *out]
    update = ["update", str(old), "--facts", str(facts), "--epochs", "2", "--quiet", *out]
    commands = [
        Command("train", train, again),
        Command("train --overwrite", [*train, "--overwrite"], again, old),
        Command("train --resume", more, more, old),
        Command("compare", compare, compare),
        Command("nodes train --overwrite", [*embed, "--overwrite"], [], nodes),
        Command("update", [*update, "--device", "cpu"], [*again, "--no-report"]),
        Command("report", ["report", "{out}"], ["report", "{out}"], old),
        Command("train --strata", strata, [*again, "--no-report"]),
        Command("ingest --overwrite", [*ingest, "--overwrite"], [], store),
    ]
    return commands if store.exists() else commands[:-1]


def call(arguments: list[str], out: Path) -> tuple[int, str]:
    """Run a command in this process; return its exit code and what it said on stderr."""
    from nscaching.cli.main import app

    said = io.StringIO()
    code: Any = 0
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            app([word.format(out=out) for word in arguments])
        except SystemExit as ended:
            code = ended.code
        except BaseException as error:  # nothing but an exit may leave a command
            said.write(f"Traceback: {type(error).__name__}: {error}")
            code = -1
    return int(code or 0), said.getvalue()


# A disk that fills up -----------------------------------------------------------------------------


class Disk:
    """A folder on a file system that can be filled up at the n-th write."""

    def __init__(self, place: Path, mounted: bool) -> None:
        self.folder, self.mounted = place, mounted
        self.out = place / "R"
        self.count, self.full_at, self.pages, self.watching = 0, 0, 0, False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.watching or event not in EVENTS or not self._is_write(event, given):
            return
        self.count += 1
        if self.count == self.full_at:
            self.watching = False
            self.fill()

    def _is_write(self, event: str, given: tuple[Any, ...]) -> bool:
        if event == "open" and (not isinstance(given[2], int) or not given[2] & 3):
            return False
        path = given[0]
        path = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        return path.startswith(str(self.folder))

    def fill(self) -> None:
        """Leave so many pages."""
        if not self.mounted:
            unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.pages * 64, unlimited))
            return
        status = os.statvfs(self.folder)
        left = status.f_bavail * status.f_frsize - self.pages * PAGE
        with (self.folder / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, left))

    def free(self) -> None:
        """Make space again."""
        if not self.mounted:
            unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (unlimited, unlimited))
        (self.folder / "ballast").unlink(missing_ok=True)

    def prepare(self, old: Path | None) -> None:
        """Empty it, but for what a command finds there."""
        for found in self.folder.iterdir():
            shutil.rmtree(found) if found.is_dir() else found.unlink()
        if old is not None:
            shutil.copytree(old, self.out)

    def run(self, command: Command, full_at: int = 0, pages: int = 0) -> tuple[int, str]:
        """Run a command on it, which is full from the n-th write on; 0 is never."""
        self.prepare(command.old)
        self.count, self.full_at, self.pages, self.watching = 0, full_at, pages, True
        try:
            return call(command.begin, self.out)
        finally:
            self.watching = False
            self.free()


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[Disk]:
    """Mount a tmpfs of a few megabytes; a plain folder where that is not allowed."""
    folder = place / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    mounted = False
    with contextlib.suppress(OSError):
        if "NO_MOUNT" in os.environ:  # to try the other way
            raise OSError
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield Disk(folder, mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


# One point ----------------------------------------------------------------------------------------


def one_point(disk: Disk, command: Command, expected: dict[str, Any], at: int, pages: int) -> str:
    """Fill the disk at one write; return how it ended: "finished", "refused", or what is wrong."""
    code, said = disk.run(command, at, pages)
    out = disk.out
    wrong = said_wrongly(code, said, out, disk.mounted)
    wrong = wrong or damage(out) or _temporary(out) or _old_is_lost(command, out)
    if wrong is not None:
        return wrong
    begun = (out / "nscaching.json").exists() and not _is_old(command, out)
    code_then, said_then = (
        (0, "") if begun and not command.resume else call(_next(command, begun), out)
    )
    if code_then != 0:
        return f"with space again: exit {code_then}, {said_then[-300:]}"
    differs = difference(content(out), expected)
    if differs is not None:
        return f"with space again: {differs}"
    return "finished" if code == 0 else "refused"


def _next(command: Command, begun: bool) -> list[str]:
    return command.resume if begun and command.resume else command.begin


def said_wrongly(code: int, said: str, out: Path, mounted: bool) -> str | None:
    """Say what is wrong with how a command ended."""
    if "Traceback" in said or "should not have" in said or code not in (0, 1, 2):
        return f"exit {code}: {said[-500:]}"
    if code == 0:
        return None
    told = "bytes" in said and "free" in said if mounted else "limit" in said
    if str(out) not in said or not told or said.count("\n") > 3:
        return f"unfit message: {said[-500:]}"
    return None


def _is_old(command: Command, out: Path) -> bool:
    """Tell whether what is there is still the artefact that was there before."""
    marks = [folder / "nscaching.json" for folder in (out, command.old) if folder is not None]
    return len(marks) == 2 and marks[0].read_bytes() == marks[1].read_bytes()


def _old_is_lost(command: Command, out: Path) -> str | None:
    """Say where the run that was to be replaced was damaged; a resumed one grows."""
    if command.old is None or "--overwrite" not in command.name:
        return None
    if not (out / "nscaching.json").exists():
        return "the run that was there is gone"
    return difference(content(out), content(command.old)) if _is_old(command, out) else None


def _temporary(out: Path) -> str | None:
    found = [str(file.relative_to(out)) for file in out.rglob(".*")] if out.exists() else []
    return f"left behind: {found[0]}" if found else None


def campaign(place: Path, given: argparse.Namespace, share: Share) -> None:
    """Go through a share of all points."""
    points, seed = given.points, given.seed
    wanted = given.commands.split(",") if given.commands else []
    with small_disk(place) as disk:
        share.more["mounted"] = disk.mounted
        for command in make_commands(place):
            if wanted and command.name not in wanted:
                continue
            code, said = disk.run(command)
            assert code == 0, f"{command.name}: {said}"
            expected, writes = content(disk.out), disk.count
            share.count(command.name, "writes", writes if share.number == 0 else 0)
            chance = random.Random(f"{command.name}/{seed}")
            every = [(at, chance.choice([0, 0, 1, 2, 4, 8])) for at in range(1, writes + 1)]
            if points:
                every = chance.sample(every, min(points, len(every)))
            for at, pages in every[given.first - 1 + share.number :: share.of]:
                if share.is_over():
                    return
                ended = one_point(disk, command, expected, at, pages)
                good = ended in ("finished", "refused")
                share.count(command.name, ended if good else "failed")
                if not good:
                    told = {"command": command.name, "write": at, "pages": pages, "what": ended}
                    share.failures.append(told)


def main() -> int:
    """Start the workers, or do the share of one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--points", type=int, default=0, help="writes per command; 0 is all")
    parser.add_argument("--commands", default="", help="names with commas between; all by default")
    parser.add_argument(
        "--first", type=int, default=1, help="begin with this write of each command"
    )
    add_options(parser)
    given = parser.parse_args()
    if given.share is None:
        options = ["--points", str(given.points), "--commands", given.commands]
        options += ["--first", str(given.first)]
        return run_shares(given, *options, kept="commands")
    with tempfile.TemporaryDirectory(prefix="disk-full-") as place:
        return run_share(given, lambda s: campaign(Path(place), given, s))


if __name__ == "__main__":
    raise SystemExit(main())
