"""Install the wheel into empty environments, for each Python with the oldest and newest packages.

    python scripts/versions.py --python 3.10 --python 3.13 --out versions.json

Makes the wheel, an environment per Python and resolution with uv, and runs a smoke test in it: the
commands of the README on a small graph, from another folder. ``oldest`` takes the lower bound of
each dependency in ``pyproject.toml`` (or the first version after it that has a wheel for that
Python), ``newest`` the latest release. Counts go to ``--out``; the exit code is 1 after a failure.
``--torch`` pins torch in the newest environments, where its own build is wanted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
#: What is told of an environment.
PACKAGES = ("torch", "numpy", "numba", "pyarrow", "safetensors", "typer", "rich", "scikit-learn")
SMOKE = """
import json, sys
import nscaching as ns
triples = [(f"e{i}", f"r{i % 3}", f"e{(7 * i + 1) % 40}") for i in range(240)]
run = ns.train(triples, out="R", epochs=2, dim=4, progress="none", device="cpu")
again = ns.load_run("R")
assert again.evaluate("test").mrr == run.summary["test"]["mrr"]
assert len(again.predict_tails("e1", "r1", k=3, by="score")) == 3
softmax = ns.train(triples, epochs=1, dim=4, progress="none", device="cpu", loss="softmax",
                   sampler="nscaching", optimizer="adagrad", reciprocal=True, scoring="complex")
edges = [(f"n{i}", f"n{(3 * i + 1) % 30}") for i in range(30)]
open("edges.txt", "w").write("".join(f"{a} {b}\\n" for a, b in edges))
assert ns.embed_nodes("edges.txt", dim=4, epochs=1, progress="none").vectors.shape == (30, 4)
"""
COMMANDS = (
    ["--version"],
    ["train", "world", "--epochs", "1", "--dim", "8", "--out", "W", "--device", "cpu", "--quiet"],
    ["evaluate", "W", "--json"],
    ["predict", "W", "--head", "Uruguay", "--relation", "neighbour of", "--json"],
    ["classify", "W", "--json"],
    ["export", "W", "W.npy"],
    ["check", "W"],
    ["doctor"],
)


def dependencies() -> list[str]:
    """Return the requirements of the package, as ``pyproject.toml`` has them."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.M | re.S)
    assert listed is not None
    return re.findall(r'"([^"]+)"', listed[1])


def build_wheel(folder: Path) -> Path:
    """Return the wheel of this checkout."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder)]
    subprocess.run([*pip, str(ROOT)], check=True)
    return next(folder.glob("nscaching-*.whl"))


def one_environment(
    python: str, which: str, wheel: Path, place: Path, torch: str | None
) -> dict[str, Any]:
    """Make an environment, run the smoke test in it, and say how it went."""
    started = time.monotonic()
    told: dict[str, Any] = {"python": python, "packages": which}
    folder = place / f"{python}-{which}"
    inside = folder / "env" / "bin"
    folder.mkdir()
    wanted = [each for each in dependencies() if not each.startswith("torch")]
    wanted.append(f"torch=={torch}" if torch and which == "newest" else "torch>=2.6")
    uv = ["uv", "pip", "install", "--quiet", "--python", str(inside / "python")]
    steps = [
        ["uv", "venv", "--quiet", "--python", python, str(folder / "env")],
        [*uv, "--resolution", RESOLUTIONS[which], "--only-binary", ":all:", str(wheel), *wanted],
        [str(inside / "python"), "-c", SMOKE],
        *([str(inside / "nscaching"), *arguments] for arguments in COMMANDS),
    ]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for step in steps:
        done = subprocess.run(step, cwd=folder, capture_output=True, text=True, env=clean)
        if done.returncode != 0:
            told["failed"] = " ".join(step)[:200]
            told["said"] = (done.stderr or done.stdout)[-1500:]
            break
    listed = subprocess.run(
        ["uv", "pip", "list", "--format", "json", "--python", str(inside / "python")],
        capture_output=True,
        text=True,
    )
    if listed.returncode == 0:
        versions = {each["name"]: each["version"] for each in json.loads(listed.stdout)}
        told["versions"] = {name: versions.get(name) for name in PACKAGES}
    shutil.rmtree(folder)
    return {**told, "passed": "failed" not in told, "seconds": round(time.monotonic() - started)}


def main() -> int:
    """Try all environments that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", action="append", help="such as 3.12; all by default")
    parser.add_argument("--packages", choices=RESOLUTIONS, help="both by default")
    parser.add_argument("--torch", help="version of torch in the newest environments")
    parser.add_argument("--out", type=Path, help="file of the outcome")
    given = parser.parse_args()
    if shutil.which("uv") is None:
        raise SystemExit("This needs uv: pip install uv")
    found = []
    with tempfile.TemporaryDirectory(prefix="versions-") as place:
        wheel = build_wheel(Path(place))
        for python in given.python or PYTHONS:
            for which in [given.packages] if given.packages else RESOLUTIONS:
                told = one_environment(python, which, wheel, Path(place), given.torch)
                found.append(told)
                print(json.dumps(told), flush=True)
                if given.out is not None:
                    given.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(told["passed"] for told in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
