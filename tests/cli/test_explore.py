"""``explore``: a file, or a server that stops when it is told to."""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from .helpers import complaint, invoke


def test_out_writes_one_file(run, tmp_path):
    out = tmp_path / "page.html"
    outcome = invoke("explore", run, "--out", out)
    assert outcome.code == 0, outcome.stderr
    assert f"Explorer: {out}" in outcome.stdout
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_json_is_the_path_and_the_bytes(run, tmp_path):
    out = tmp_path / "page.html"
    outcome = invoke("explore", run, "--out", out, "--json")
    assert outcome.code == 0, outcome.stderr
    value = json.loads(outcome.stdout)
    assert (value["path"], value["bytes"]) == (str(out), out.stat().st_size)
    assert value["seconds"] > 0


def test_json_of_a_server_is_its_address(run, monkeypatch):
    pytest.importorskip("uvicorn", reason="the extra explore is not installed")
    served = []
    serve = "nscaching.report.server.serve"
    monkeypatch.setattr(serve, lambda _, listening: served.append(listening))
    outcome = invoke("explore", run, "--port", 0, "--no-browser", "--json")
    assert outcome.code == 0, outcome.stderr
    (listening,) = served
    port = listening.getsockname()[1]
    assert json.loads(outcome.stdout) == {"address": f"http://127.0.0.1:{port}/"}
    listening.close()


def test_what_is_no_run_is_named(tmp_path):
    assert str(tmp_path / "none") in complaint("explore", tmp_path / "none", "--no-browser")


def first_found(address, patience=30.0):
    """Return the first entity found; the server listens a moment after it says so."""
    deadline = time.monotonic() + patience
    while True:
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                return json.load(answer)["entities"][0]
        except urllib.error.URLError:
            assert time.monotonic() < deadline, f"{address} never answered"
            time.sleep(0.1)


@pytest.mark.slow
def test_it_serves_this_computer_until_it_is_interrupted(run):
    pytest.importorskip("uvicorn", reason="the extra explore is not installed")
    command = [
        sys.executable,
        "-m",
        "nscaching",
        "explore",
        str(run),
        "--no-browser",
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as it:
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+/", it.stdout.readline()).group()
            assert first_found(f"{address}api/find?text=e1")["name"] == "e1"
        finally:
            it.send_signal(signal.SIGINT)
            _, said = it.communicate(timeout=30)
    assert it.returncode in (0, 130)
    assert "Traceback" not in said
