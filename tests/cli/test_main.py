"""The command itself: what it loads, how it lists its commands, and signals before it is loaded."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nscaching.cli.main import COMMANDS

from .helpers import invoke

#: Packages that take a second or more to load, and their own kernels.
LARGE = {"torch", "numba", "pandas", "sklearn", "scipy", "pyarrow", "triton"}
LOADED = "import sys; from nscaching.cli.start import main\ntry: main()\nexcept SystemExit: pass\n"


def loaded_by(*arguments):
    """Return the top-level packages that a process has loaded after a command."""
    code = LOADED + "print('LOADED', *{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    said, _, names = done.stdout.rpartition("LOADED ")
    return said, set(names.split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], [], ["trian"]])
def test_what_computes_nothing_loads_nothing_large(arguments):
    said, loaded = loaded_by(*arguments)
    assert not loaded & LARGE
    if arguments == ["--help"]:
        assert all(name in said for name in COMMANDS)


def test_help_takes_little_time():
    before = os.times()
    subprocess.run([sys.executable, "-m", "nscaching", "--help"], check=True, capture_output=True)
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    assert used < 0.8  # 0.2 s on a quiet machine; torch alone would take 1.3 s


def test_predict_loads_no_compiler_and_no_statistics(run):
    _, loaded = loaded_by("predict", str(run), "--head", "e1", "--relation", "r0")
    assert "torch" in loaded
    assert not loaded & {"numba", "pandas", "sklearn", "scipy", "triton"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_its_own(name):
    outcome = invoke(name, "--help")
    assert outcome.code == 0, outcome.stderr
    assert f"nscaching {name}" in outcome.stdout
    assert "--help" in outcome.stdout


def test_an_unknown_command_is_named_with_the_nearest():
    outcome = invoke("trian")
    assert outcome.code == 2
    assert "train" in outcome.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("moment", ["nscaching.cli.main", "torch"])
def test_a_signal_while_modules_are_loaded_ends_with_a_sentence(number, moment):
    """The process sends itself the signal when it begins to import a module."""
    code = (
        "import os, sys, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {moment!r}: os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from nscaching.cli.start import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, "evaluate", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 128 + number
    assert done.stderr == "Stopped before anything was done.\n"
    assert done.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.3, 0.6, 0.9])
def test_a_signal_in_the_first_second_leaves_no_traceback(delay, tmp_path):
    command = [sys.executable, "-m", "nscaching", "train", "world", "--out", str(tmp_path / "R")]
    process = subprocess.Popen(command, stdout=-1, stderr=-1, text=True)
    time.sleep(delay)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_kernels_are_compiled_leaves_no_traceback(tmp_path, number):
    """Kernels are compiled into an empty folder; the signal comes when its first file is there."""
    cache, out = tmp_path / "kernels", tmp_path / "R"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "nscaching", "train", "world", "--epochs", "1"]
    process = subprocess.Popen(
        [*command, "--out", str(out), "--device", "cpu"],
        stdout=-1,
        stderr=-1,
        text=True,
        env=environment,
        start_new_session=True,  # a shell in the background has SIGINT ignored
    )
    while process.poll() is None and not any(cache.rglob("*.nbi")):
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + number, said
    assert "Traceback" not in said
    assert not list(out.rglob(".*")), "a lock or temporary files were left"


@pytest.mark.skipif(sys.platform == "win32", reason="shells differ")
@pytest.mark.parametrize(
    ("redirection", "code", "words"),
    [
        (">&-", 0, ""),
        (">&- 2>&-", 0, ""),
        ("</dev/null >/dev/full", 1, "The output cannot be written: No space left on device.\n"),
        ("| true", 0, None),
    ],
)
@pytest.mark.parametrize("arguments", ["--help", "datasets list --json"])
def test_an_output_that_is_closed_or_full(arguments, redirection, code, words):
    command = f"{sys.executable} -m nscaching {arguments} {redirection}"
    path = os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part)
    done = subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if words is not None:
        assert done.stderr == words


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits on memory are those of Linux")
@pytest.mark.parametrize("kilobytes", [150_000, 600_000, 650_000, 2_400_000])
def test_a_limit_on_memory_is_named(tmp_path, kilobytes):
    # With some of these limits torch crashed or did not end, whatever we caught.
    command = f"ulimit -v {kilobytes}; {sys.executable} -m nscaching train world --out {tmp_path}/R"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"{kilobytes >> 10:,} MB of memory here (ulimit -v)" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="paths are bytes only there")
def test_a_path_that_is_not_utf8_is_refused_before_anything_is_written(tmp_path):
    file = tmp_path / "g.tsv"
    file.write_text("a\tr\tb\nb\tr\tc\n")
    out = os.fsencode(tmp_path) + b"/x\xff"
    command = [sys.executable, "-m", "nscaching", "train", str(file), "--split", "0", "--out", out]
    done = subprocess.run([*command, "--quiet"], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"is not UTF-8 text" in done.stderr
    assert b"Traceback" not in done.stderr
    assert not os.path.lexists(out)


@pytest.mark.slow
def test_an_ascii_terminal_is_no_error(tmp_path):
    file = tmp_path / "g.tsv"
    file.write_text("Zürich\tr\tBasel\nBasel\tr\tGenève\nGenève\tr\tZürich\n" * 1)
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "NSCACHING_WARM_UP": "0"}

    def said(*arguments):
        command = [sys.executable, "-m", "nscaching", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode("ascii")

    small = ["--epochs", 1, "--dim", 2, "--split", 0, "--quiet", "--no-report"]
    said("train", file, *small, "--out", tmp_path / "R")
    asked = ["predict", tmp_path / "R", "--head", "Basel", "--relation", "r", "--known"]
    assert "Z\\xfcrich" in said(*asked)
    assert {p["tail"] for p in json.loads(said(*asked, "--json"))["predictions"]} >= {"Zürich"}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("ImportError('libtorch.so: cannot allocate memory')", "cannot allocate memory"),
        ("MemoryError()", "not enough memory"),
        ("OSError('failed to map segment')", "failed to map segment"),
    ],
)
def test_an_import_that_fails_is_one_sentence(tmp_path, error, words):
    (tmp_path / "torch.py").write_text(f"raise {error}\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-m", "nscaching", "evaluate", "nowhere"]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps the folder of a process")
def test_a_working_folder_that_is_gone_is_named(tmp_path):
    (tmp_path / "gone").mkdir()
    code = "import os, sys; os.rmdir(os.getcwd()); from nscaching.cli.start import main; main()"
    command = [sys.executable, "-c", f"import nscaching; {code}", "evaluate", "nowhere"]
    source = os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path / "gone",
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.returncode == 2
    assert done.stderr == "The working folder is not there any more; change to another one.\n"
