"""Trackers: what a run writes for TensorBoard, MLflow, Weights & Biases or a spreadsheet.

Each imports its library when it is made.
"""

from __future__ import annotations

import csv
import io
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nscaching.artefacts.files import explained_writes, write_text
from nscaching.errors import UserError, nearest_names
from nscaching.extras import need

#: The project of W&B, and the experiment of MLflow.
PROJECT = "nscaching"
HEADER = ("epoch", "split", "metric", "value")
#: MLflow has its own words for how a run ended.
_MLFLOW_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


@dataclass(frozen=True)
class RunStart:
    """What is known when training begins."""

    name: str  #: of the run
    config: Mapping[str, Any]  #: every option, as in ``config.yaml``
    epochs_done: int = 0  #: above 0 where a stopped run is resumed


class Tracker:
    """Told of a run as it trains; a subclass overrides the methods it needs.

    By default ``on_epoch`` and ``on_evaluation`` both call ``log_values``.

    Examples:
        >>> from nscaching.interop.tracking import Tracker
        >>> class Printer(Tracker):
        ...     def log_values(self, split, epoch, values):
        ...         print(epoch, split, "mrr" in values)
        >>> tracked = ns.train("world", epochs=1, dim=4, track=Printer(), progress="none")
        1 train False
        1 valid True
        1 test True

    """

    def on_new_run(self) -> None:
        """A run is about to be made that neither resumes nor replaces one; nothing is written yet.

        A :class:`UserError` from here refuses it.
        """

    def on_start(self, start: RunStart) -> None:
        """Training is about to begin.

        Args:
            start: Name and options of the run, and how many epochs were done before.

        """

    def on_epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        """An epoch is done.

        Args:
            epoch: Its number, from 1.
            values: The loss, and the seconds so far.

        """
        self.log_values("train", epoch, values)

    def on_evaluation(self, epoch: int, split: str, values: Mapping[str, float]) -> None:
        """A split was evaluated.

        Args:
            epoch: The epoch of the model.
            split: ``"valid"`` or ``"test"``.
            values: Metrics by name.

        """
        self.log_values(split, epoch, values)

    def on_end(self, status: str) -> None:
        """Training is over.

        Args:
            status: ``"finished"``, ``"stopped"`` by a signal, or ``"failed"``.

        """

    def log_values(self, split: str, epoch: int, values: Mapping[str, float]) -> None:
        """Write values.

        Args:
            split: What they are of; those of training have ``"train"``.
            epoch: Its number, from 1.
            values: Numbers by name.

        """


class TensorBoardTracker(Tracker):
    """Writes ``train/loss``, ``valid/mrr`` and so on into a folder for ``tensorboard --logdir``."""

    def __init__(self, target: str) -> None:
        need("tensorboard", "tensorboard", "track tensorboard")
        self.folder = Path(target).expanduser()
        self._writer: Any = None

    def on_start(self, start: RunStart) -> None:
        """Open the log; where a run is resumed, later epochs are purged."""
        writer = need("torch.utils.tensorboard", "tensorboard", "track tensorboard").SummaryWriter
        purge = start.epochs_done + 1 if start.epochs_done else None
        with explained_writes(self.folder):
            self._writer = writer(str(self.folder), purge_step=purge)
        options = "\n".join(f"    {name}: {value}" for name, value in start.config.items())
        self._writer.add_text("config", options, start.epochs_done)

    def log_values(self, split: str, epoch: int, values: Mapping[str, float]) -> None:
        """Add one scalar per value."""
        for name, value in values.items():
            self._writer.add_scalar(f"{split}/{name}", value, epoch)
        self._writer.flush()

    def on_end(self, status: str) -> None:
        """Close the log."""
        self._writer.close()


class MlflowTracker(Tracker):
    """Logs options as parameters, and ``train.loss``, ``valid.mrr`` and so on as metrics.

    The target is a folder, which gets an ``mlflow.db`` (``mlflow ui --backend-store-uri
    sqlite:///DIR/mlflow.db`` shows it), or the address of a tracking server. A resumed run is a new
    run there, with the tag ``resumed_from_epoch``.
    """

    def __init__(self, target: str) -> None:
        for module in ("mlflow", "sqlalchemy"):
            need(module, "mlflow", "track mlflow")
        self.target = target
        self._client: Any = None
        self._run = ""

    def on_start(self, start: RunStart) -> None:
        """Create the run with its parameters."""
        from mlflow.entities import Param, RunTag
        from mlflow.tracking import MlflowClient

        for library in ("mlflow", "alembic"):  # they log each table that they make
            logging.getLogger(library).setLevel(logging.WARNING)
        address, artifacts = self._addresses()
        self._client = MlflowClient(tracking_uri=address)
        experiment = self._client.get_experiment_by_name(PROJECT)
        if experiment is not None:
            number = experiment.experiment_id
        else:
            number = self._client.create_experiment(PROJECT, artifact_location=artifacts)
        self._run = self._client.create_run(number, run_name=start.name).info.run_id
        params = [Param(name, str(value)) for name, value in start.config.items()]
        tags = [RunTag("resumed_from_epoch", str(start.epochs_done))] if start.epochs_done else []
        self._client.log_batch(self._run, params=params, tags=tags)

    def _addresses(self) -> tuple[str, str | None]:
        """Return the address of the store, and where files go."""
        if "://" in self.target:
            return self.target, None
        folder = Path(self.target).expanduser().resolve()
        with explained_writes(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()

    def log_values(self, split: str, epoch: int, values: Mapping[str, float]) -> None:
        """Log one metric per value."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [
            # MLflow allows no @ in names: hits@10 becomes hits_at_10.
            Metric(f"{split}.{name.replace('@', '_at_')}", value, now, epoch)
            for name, value in values.items()
        ]
        self._client.log_batch(self._run, metrics=metrics)

    def on_end(self, status: str) -> None:
        """Say how the run ended."""
        self._client.set_terminated(self._run, status=_MLFLOW_STATUS[status])


class WandbTracker(Tracker):
    """Logs ``train/loss``, ``valid/mrr`` and so on, offline: ``wandb sync`` sends the folder.

    ``WANDB_MODE`` and the other variables of W&B are respected where they are set.
    """

    def __init__(self, target: str) -> None:
        need("wandb", "wandb", "track wandb")
        self.folder = Path(target).expanduser()
        self._run: Any = None
        self._step = 0

    def on_start(self, start: RunStart) -> None:
        """Open a run with its options."""
        import wandb

        with explained_writes(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=start.name,
            dir=str(self.folder),
            config=dict(start.config),
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=wandb.Settings(silent=True, console="off"),
        )

    def log_values(self, split: str, epoch: int, values: Mapping[str, float]) -> None:
        """Log the values; those of an earlier epoch's model are logged at the last epoch."""
        self._step = max(self._step, epoch)  # W&B drops steps that go back
        self._run.log({f"{split}/{name}": value for name, value in values.items()}, step=self._step)

    def on_end(self, status: str) -> None:
        """Close the run; only a finished one counts as a success."""
        self._run.finish(exit_code=0 if status == "finished" else 1)


class CsvTracker(Tracker):
    """Appends lines of epoch, split, metric and value; a resumed run is cut back to its stop."""

    def __init__(self, target: str) -> None:
        self.path = Path(target).expanduser()
        if self.path.is_dir():
            raise UserError(f"{self.path} is a folder; csv: takes the name of a file.")
        if self.path.is_file() and not self._is_ours():
            raise UserError(
                f"{self.path} is no file of this tracker, so it is not replaced; name another file."
            )

    def _is_ours(self) -> bool:
        """Tell whether the file is empty or begins with the header."""
        with explained_writes(self.path), self.path.open("rb") as file:
            first = file.readline(100)
        return not first or first.rstrip(b"\r\n") == _csv([HEADER]).strip().encode()

    def on_new_run(self) -> None:
        """Refuse a file with the values of another run."""
        if self._rows():
            raise UserError(
                f"{self.path} has the values of another run, so it is not replaced; name another "
                "file."
            )

    def on_start(self, start: RunStart) -> None:
        """Write the header, and what an earlier part of the run had written."""
        with explained_writes(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        kept = [row for row in self._rows() if int(row[0]) <= start.epochs_done]
        kept = [row for row in kept if row[1] != "test"]  # told again at the end
        write_text(self.path, _csv([HEADER, *kept]))

    def _rows(self) -> list[list[str]]:
        """Return the rows of the file that have an epoch, from 1."""
        if not self.path.exists():
            return []
        with self.path.open(encoding="utf-8", errors="replace", newline="") as file:
            rows = [row for row in csv.reader(file) if len(row) == len(HEADER)]
        return [row for row in rows if row[0].isdecimal()]

    def log_values(self, split: str, epoch: int, values: Mapping[str, float]) -> None:
        """Append one line per value."""
        lines = _csv((epoch, split, name, repr(value)) for name, value in values.items())
        with explained_writes(self.path), self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(lines)


def _csv(rows: Iterable[Iterable[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


#: What makes a tracker out of the text after the colon.
TRACKERS: dict[str, Callable[[str], Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "mlflow": MlflowTracker,
    "wandb": WandbTracker,
    "csv": CsvTracker,
}


def make_tracker(wanted: str | Tracker) -> Tracker:
    """Return the tracker for ``KIND:TARGET``; a tracker is returned as it is."""
    if isinstance(wanted, Tracker):
        return wanted
    if not isinstance(wanted, str):
        raise UserError(f"track takes 'KIND:TARGET' or a Tracker, not {wanted!r}.")
    kind, _, target = wanted.partition(":")
    if kind not in TRACKERS:
        hint = nearest_names(kind, TRACKERS) or f"; there are {', '.join(TRACKERS)}."
        raise UserError(f"There is no tracker '{kind}'{hint}")
    if not target:
        place = "a file" if kind == "csv" else "a folder"
        raise UserError(f"Say where {kind} should write: {kind}:PATH, with {place} as PATH.")
    return TRACKERS[kind](target)
