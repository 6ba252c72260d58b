"""Groups of processes: what they refuse together, how they end, and that they start again."""

import os
import subprocess
import sys

import pytest

from nscaching import processes
from nscaching.errors import LostPeers, UserError
from nscaching.processes import ALONE, Group, current_group, end_worker, is_main, joined

WORKER = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


class Told(Group):
    """A group whose other ranks say what a test has them say."""

    others: list

    def gather(self, value):
        return [value, *self.others] if self.rank == 0 else [*self.others, value]


def told(rank, *others):
    group = Told(rank, 2)
    object.__setattr__(group, "others", list(others))
    return group


def test_a_process_of_its_own_is_a_group_of_one():
    assert current_group() is ALONE
    assert is_main()
    assert (ALONE.gather(3), ALONE.broadcast("a"), ALONE.any(True)) == ([3], "a", True)
    with joined() as group:
        assert group is ALONE
    with pytest.raises(UserError, match="mine"), ALONE.together():
        raise UserError("mine")


def test_one_error_is_raised_on_all_ranks_and_printed_by_one():
    with pytest.raises(UserError, match="on rank 1") as heard, told(0, "on rank 1").together():
        pass
    assert heard.value.quiet
    with pytest.raises(UserError, match="here") as own, told(1, None).together():
        raise UserError("here")
    assert not hasattr(own.value, "quiet")


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ({"nscaching": "0.0.1"}, "agree on nscaching: rank 0 .* rank 1 on other has 0.0.1"),
        ({"the data": "ffff"}, "agree on the data"),
        ({"dim": "9"}, "agree on dim: rank 0 on .* has 8, rank 1 on other has 9"),
    ],
)
def test_hosts_that_differ_are_told_in_what(theirs, words):
    facts = {"the data": "0123", "dim": "8"}
    mine = {"nscaching": processes.__version__, "torch": processes.torch.__version__, **facts}
    told(0, ("other", mine)).refuse_differences(facts)
    with pytest.raises(UserError, match=words):
        told(0, ("other", {**mine, **theirs})).refuse_differences(facts)


def test_a_host_without_enough_memory_is_named():
    told(0, ("small", 10, 11)).refuse_lack_of_memory(10, 20)
    with pytest.raises(UserError, match=r"small lacks memory: its 1 processes need 10.0 GB"):
        told(0, ("small", 10 * 10**9, 9 * 10**9)).refuse_lack_of_memory(1, None)


def test_a_folder_that_hosts_do_not_share_is_refused(tmp_path):
    told(0, ("other", "id")).refuse_another_folder(tmp_path, "id")
    with pytest.raises(UserError, match=r"other does not see .* file system that all hosts share"):
        told(0, ("other", None)).refuse_another_folder(tmp_path, "id")


def test_a_process_that_ends_for_good_tells_the_launcher(monkeypatch, tmp_path):
    assert end_worker(2) == 2
    for name, value in {**WORKER, processes._LAUNCHER: str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    assert not is_main()
    assert end_worker(LostPeers.exit_code) == LostPeers.exit_code  # it is started again
    assert not list(tmp_path.iterdir())
    assert end_worker(143) == 0
    assert (tmp_path / "exit-1").read_text() == "143"


SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from nscaching.processes import attempt, joined
from nscaching.errors import LostPeers, UserError
done = Path(sys.argv[sys.argv.index("--out") + 1])
with joined("cpu") as group:
    assert group.gather(group.rank) == [0, 1] and group.broadcast(group.rank) == 0
    if "killed" in sys.argv and attempt() == 0 and group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    group.barrier()
    if "wrong" in sys.argv:
        with group.together():
            if group.rank == 1:
                raise UserError("Rank 1 met a mistake.")
    (done / f"{group.rank}-{attempt()}").write_text(os.environ["OMP_NUM_THREADS"])
"""


def launched(tmp_path, *words):
    """Run the script on two processes, in place of nscaching, as ``--processes 2`` would."""
    package = tmp_path / "package" / "nscaching_worker"
    package.mkdir(parents=True)
    body = "".join(f"    {line}\n" for line in SCRIPT.strip().splitlines())
    (package / "__main__.py").write_text(
        "from nscaching.cli.command import command\nimport os, sys\n"
        f"@command()\ndef main():\n{body}\n"
        "from nscaching.processes import end_worker\nimport typer\n"
        "try:\n    main()\nexcept typer.Exit as end:\n    os._exit(end_worker(end.exit_code))\n"
    )
    start = (
        "import sys; from nscaching import processes as l; "
        "raise SystemExit(l.launch(sys.argv[1:], 2, 2, 'nscaching_worker'))"
    )
    environment = {k: v for k, v in os.environ.items() if not k.endswith("NUM_THREADS")}
    path = f"{package.parent}{os.pathsep}{os.environ.get('PYTHONPATH', 'src')}"
    return subprocess.run(
        [sys.executable, "-c", start, "--out", str(tmp_path), *words],
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
def test_a_lost_process_starts_the_group_again(tmp_path):
    ended = launched(tmp_path, "killed")
    assert ended.returncode == 0, ended.stderr
    assert sorted(file.name for file in tmp_path.glob("*-?")) == ["0-1", "1-1"]
    # Rank 0 notices its lost peer without a word; a loaded machine may tell it to end before that.
    assert ended.stderr in ("", "Stopped by SIGTERM.\n")


@pytest.mark.slow
def test_a_mistake_ends_the_group_for_good_with_one_sentence(tmp_path):
    ended = launched(tmp_path, "wrong")
    assert (ended.returncode, ended.stderr) == (2, "Rank 1 met a mistake.\n")
    assert not list(tmp_path.glob("*-?"))
