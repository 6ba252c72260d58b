"""Each tracker writes real files with the real package, and they are read back."""

import csv
import json
import struct
import time

import pytest

from nscaching import TrainingDiverged, TrainingInterrupted, UserError, extras
from nscaching.interop.tracking import RunStart, Tracker, make_tracker
from nscaching.training.trackers import Tracking

from ..training.helpers import ring, train

OPTIONS = {"epochs": 4, "dim": 4, "valid_every": 2, "checkpoint_seconds": 0}


def told(folder):
    """Return {(split, metric): [(epoch, value), ...]} of the lines in metrics.jsonl."""
    found = {}
    for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()):
        split = line.pop("split", "train")
        epoch, _ = line.pop("epoch"), line.pop("event")
        for name, value in line.items():
            found.setdefault((split, name), []).append((epoch, value))
    return found


def close(one, other):
    """Compare lists of (epoch, value); some packages store 32 bits."""
    return len(one) == len(other) and all(
        a[0] == b[0] and a[1] == pytest.approx(b[1], rel=1e-5)
        for a, b in zip(one, other, strict=True)
    )


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(ring(), out=tmp_path / "run", track=f"tensorboard:{tmp_path / 'logs'}", **OPTIONS)
    log = EventAccumulator(str(tmp_path / "logs")).Reload()
    wanted = told(tmp_path / "run")
    assert {tuple(tag.split("/", 1)) for tag in log.Tags()["scalars"]} == set(wanted)
    for (split, name), values in wanted.items():
        scalars = [(event.step, event.value) for event in log.Scalars(f"{split}/{name}")]
        assert close(scalars, values)
    assert "scoring" in str(log.Tensors("config/text_summary"))


@pytest.mark.slow
def test_mlflow(tmp_path):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    train(ring(), out=tmp_path / "run", track=[f"mlflow:{tmp_path / 'flow'}"], **OPTIONS)
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'flow' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("nscaching")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "run"
    assert run.info.status == "FINISHED"
    assert run.data.params["dim"] == "4"
    for (split, name), values in told(tmp_path / "run").items():
        key = f"{split}.{name.replace('@', '_at_')}"
        history = client.get_metric_history(run.info.run_id, key)
        assert close(sorted((metric.step, metric.value) for metric in history), values)


def wandb_records(data):
    """Yield the records of an offline file: a log of blocks of 32 KiB, as LevelDB writes it."""
    at, whole = 7, b""  # after the file's own header
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if at + 7 + length > len(data):
            return  # not written to the end yet
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a full record, or the last part of one
            yield whole
            whole = b""


def whole_wandb_file(file, parse, seconds=30):
    """Return the records of a file once the process that W&B keeps beside us has ended it."""
    deadline = time.monotonic() + seconds
    while True:
        records = [parse(data) for data in wandb_records(file.read_bytes())]
        if any(record.HasField("exit") for record in records):
            return records
        assert time.monotonic() < deadline, "the run was not ended"
        time.sleep(0.1)


@pytest.mark.slow
def test_wandb_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.delenv("WANDB_MODE", raising=False)
    train(ring(), out=tmp_path / "run", track=f"wandb:{tmp_path / 'bias'}", **OPTIONS)
    (file,) = (tmp_path / "bias").rglob("*.wandb")
    found = {}
    for record in whole_wandb_file(file, wandb_internal_pb2.Record.FromString):
        for item in record.history.item:
            name = item.key or "/".join(item.nested_key)
            found.setdefault(name, []).append(json.loads(item.value_json))
    for (split, name), values in told(tmp_path / "run").items():
        assert found[f"{split}/{name}"] == pytest.approx([value for _, value in values])


def test_csv(tmp_path):
    path = tmp_path / "new" / "curve.csv"
    train(ring(), out=tmp_path / "run", track=[f"csv:{path}"], **OPTIONS)
    rows = list(csv.DictReader(path.open()))
    assert list(rows[0]) == ["epoch", "split", "metric", "value"]
    found = {}
    for row in rows:
        key = (row["split"], row["metric"])
        found.setdefault(key, []).append((int(row["epoch"]), float(row["value"])))
    assert found == told(tmp_path / "run")


def test_a_run_that_goes_on_is_cut_back_in_the_csv(tmp_path):
    path = tmp_path / "curve.csv"
    train(ring(), out=tmp_path / "run", track=[f"csv:{path}"], **OPTIONS)
    with path.open("a") as file:
        file.write("9,train,loss,0.5\n")  # an epoch that no checkpoint kept
    train(
        ring(), out=tmp_path / "run", resume=True, track=f"csv:{path}", **{**OPTIONS, "epochs": 6}
    )
    losses = [row["epoch"] for row in csv.DictReader(path.open()) if row["metric"] == "loss"]
    assert losses == ["1", "2", "3", "4", "5", "6"]


def losses(path):
    """Return the epochs whose loss a CSV file has, in order."""
    return [int(r["epoch"]) for r in csv.DictReader(path.open()) if r["metric"] == "loss"]


def test_a_file_that_is_named_twice_has_each_line_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    twice = ["csv:curve.csv", f"csv:{tmp_path}/link/curve.csv", "csv:./curve.csv"]
    train(ring(), out="run", track=twice, **OPTIONS)
    assert losses(tmp_path / "curve.csv") == [1, 2, 3, 4]


def test_a_resumed_run_keeps_its_trackers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    memory = Memory()
    train(ring(), out="run", track=["csv:a.csv", "csv:b.csv", memory], **OPTIONS)
    told = len(memory.moments)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    more = {**OPTIONS, "out": tmp_path / "run", "resume": True}
    train(ring(), progress="lines", **{**more, "epochs": 5})
    assert f"Logging to csv:{tmp_path / 'a.csv'}, csv:{tmp_path / 'b.csv'}, as before." in (
        capsys.readouterr().err
    )
    assert losses(tmp_path / "a.csv") == losses(tmp_path / "b.csv") == [1, 2, 3, 4, 5]
    assert len(memory.moments) == told  # an object lives in its process
    before = (tmp_path / "a.csv").read_bytes()
    tests = [row for row in csv.DictReader((tmp_path / "a.csv").open()) if row["split"] == "test"]
    assert len({row["metric"] for row in tests}) == len(tests)
    train(ring(), **{**more, "epochs": 5})  # nothing to do
    assert (tmp_path / "a.csv").read_bytes() == before
    train(ring(), track=f"csv:{tmp_path / 'b.csv'}", **{**more, "epochs": 6})
    train(ring(), **{**more, "epochs": 7})  # what was named last is what it has
    assert losses(tmp_path / "b.csv") == [1, 2, 3, 4, 5, 6, 7]
    assert (tmp_path / "a.csv").read_bytes() == before
    train(ring(), track="none", **{**more, "epochs": 8})
    train(ring(), **{**more, "epochs": 9})
    assert losses(tmp_path / "b.csv") == [1, 2, 3, 4, 5, 6, 7]


def test_a_tracker_that_is_not_there_any_more_does_not_bar_the_way(tmp_path):
    path, longer = tmp_path / "curve.csv", {**OPTIONS, "epochs": 6, "resume": True}
    train(ring(), out=tmp_path / "run", track=f"csv:{path}", **OPTIONS)
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match=r"is a folder.*begun with this tracker; --track none"):
        train(ring(), out=tmp_path / "run", **longer)
    (tmp_path / "run" / "track.json").write_text("{}")
    with pytest.raises(UserError, match=r"names no trackers.*; --track none"):
        train(ring(), out=tmp_path / "run", **longer)
    train(ring(), out=tmp_path / "run", track="none", **longer)
    assert not (tmp_path / "run" / "track.json").exists()


def test_a_remembered_tracker_that_cannot_start_says_how_to_resume(tmp_path):
    class Broken(Tracker):
        def on_start(self, start):
            raise OSError("no server")

    with pytest.raises(OSError, match="no server"):
        Tracking(Broken()).begin(RunStart("x", {}))
    with pytest.raises(UserError, match=r"no server\. The run was begun with this tracker"):
        Tracking(Broken(), remembered=True).begin(RunStart("x", {}))


def test_the_values_of_another_run_are_not_replaced_by_a_csv(tmp_path):
    path = tmp_path / "curve.csv"
    train(ring(), out=tmp_path / "a", track=f"csv:{path}", **OPTIONS)
    before = path.read_text()
    for out in (tmp_path / "b", None):
        with pytest.raises(UserError, match=r"another run.*name another file"):
            train(ring(), out=out, track=f"csv:{path}", **OPTIONS)
    assert path.read_text() == before
    assert not (tmp_path / "b").exists()
    longer = {**OPTIONS, "epochs": 6, "track": f"csv:{path}"}
    train(ring(), out=tmp_path / "a", overwrite=True, **longer)
    assert len(path.read_text()) > len(before)


class Memory(Tracker):
    """Remembers what it is told."""

    def __init__(self):
        self.moments = []

    def on_start(self, start):
        self.moments.append(("start", start.name, start.config["epochs"], start.epochs_done))

    def on_epoch(self, epoch, values):
        self.moments.append(("epoch", epoch, sorted(values)))

    def on_evaluation(self, epoch, split, values):
        self.moments.append(("evaluation", epoch, split, "mrr" in values))

    def on_end(self, status):
        self.moments.append(("end", status))


def test_a_tracker_of_your_own_is_told_in_order():
    memory = Memory()
    train(ring(), track=memory, epochs=2, dim=4, valid_every=2)
    assert memory.moments == [
        ("start", "ring", 2, 0),
        ("epoch", 1, ["loss", "seconds"]),
        ("epoch", 2, ["loss", "seconds"]),
        ("evaluation", 2, "valid", True),
        ("evaluation", 2, "test", True),
        ("end", "finished"),
    ]


@pytest.mark.parametrize(
    ("error", "status"),
    [(TrainingInterrupted("now"), "stopped"), (TrainingDiverged("so"), "failed")],
)
def test_trackers_learn_how_a_run_ended(monkeypatch, error, status):
    from nscaching.training import Trainer

    memory = Memory()

    def broken(self, resume):
        self.tracking.begin(RunStart("x", self.config.as_dict()))
        raise error

    monkeypatch.setattr(Trainer, "run", broken)
    with pytest.raises(type(error)):
        train(ring(), track=memory, epochs=1, dim=4)
    assert memory.moments[-1] == ("end", status)


def test_a_tracker_that_breaks_does_not_break_the_run():
    class Broken(Memory):
        def on_epoch(self, epoch, values):
            raise OSError("no disk")

    said, good, bad = [], Memory(), Broken()
    tracking = Tracking([bad, good], said.append)
    tracking.begin(RunStart("x", {"epochs": 1}))
    for epoch in (1, 2):
        tracking.record({"event": "epoch", "epoch": epoch, "loss": 0.5, "seconds": 1})
    tracking.end("finished")
    assert [moment[0] for moment in good.moments] == ["start", "epoch", "epoch", "end"]
    assert len(said) == 1
    assert "Broken" in said[0]
    assert "no disk" in said[0]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("tensorbord:x", "did you mean 'tensorboard'"),
        ("grafana:x", "there are tensorboard"),
        ("csv", "csv:PATH"),
        ("tensorboard:", "a folder"),
        (5, "not 5"),
    ],
)
def test_bad_trackers_are_explained(wanted, words):
    with pytest.raises(UserError, match=words):
        make_tracker(wanted)


def test_a_folder_where_a_csv_should_be(tmp_path):
    with pytest.raises(UserError, match="is a folder"):
        make_tracker(f"csv:{tmp_path}")


@pytest.mark.parametrize("kind", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_package_is_asked_for_before_training(monkeypatch, kind):

    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(extras.importlib, "import_module", absent)
    monkeypatch.setattr(extras, "is_installed", lambda module: False)
    with pytest.raises(UserError, match=rf"nscaching\[{kind}\]"):
        make_tracker(f"{kind}:somewhere")


@pytest.mark.parametrize(
    "content", ["head,relation,tail\na,b,c\n", "\n\xff", "epoch,split,metric,value,more\n"]
)
def test_a_file_of_others_is_not_replaced_by_a_csv(tmp_path, content):
    path = tmp_path / "mine.csv"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(UserError, match="is not replaced"):
        train(ring(), out=tmp_path / "run", track=f"csv:{path}", **OPTIONS)
    assert path.read_text(encoding="latin-1") == content
    assert not (tmp_path / "run").exists()
    for old in ("", "epoch,split,metric,value\n1,train,loss,0.5\n"):
        path.write_text(old)
        make_tracker(f"csv:{path}").on_start(RunStart("run", {}))
        assert path.read_text() == "epoch,split,metric,value\n"
