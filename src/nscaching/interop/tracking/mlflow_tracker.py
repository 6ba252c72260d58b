"""MLflow: a run of the experiment ``nscaching``, in a folder or on a server."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nscaching.extras import need
from nscaching.files import explained_writes
from nscaching.interop.tracking.base import RunStart, Tracker

EXPERIMENT = "nscaching"
#: MLflow has its own words for how a run ended.
_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


class MlflowTracker(Tracker):
    """Options become parameters, and ``train.loss``, ``valid.mrr`` and so on metrics.

    The target is a folder, which gets an ``mlflow.db`` (``mlflow ui --backend-store-uri
    sqlite:///DIR/mlflow.db`` shows it), or the address of a tracking server. A run that goes on
    after a stop is a new run there, with the tag ``resumed_from_epoch``.
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

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it tells of its tables
        logging.getLogger("alembic").setLevel(logging.WARNING)
        address, artifacts = self._places()
        self._client = MlflowClient(tracking_uri=address)
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        number = (
            experiment.experiment_id
            if experiment is not None
            else self._client.create_experiment(EXPERIMENT, artifact_location=artifacts)
        )
        self._run = self._client.create_run(number, run_name=start.name).info.run_id
        params = [Param(name, str(value)) for name, value in start.config.items()]
        tags = [RunTag("resumed_from_epoch", str(start.epochs_done))] if start.epochs_done else []
        self._client.log_batch(self._run, params=params, tags=tags)

    def _places(self) -> tuple[str, str | None]:
        """Return the address of the store, and where files go."""
        if "://" in self.target:
            return self.target, None
        folder = Path(self.target).expanduser().resolve()
        with explained_writes(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()

    def on_epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        """Log the loss."""
        self._log("train", epoch, values)

    def on_evaluation(self, epoch: int, split: str, values: Mapping[str, float]) -> None:
        """Log the metrics of a split."""
        self._log(split, epoch, values)

    def on_end(self, status: str) -> None:
        """Say how the run ended."""
        self._client.set_terminated(self._run, status=_STATUS[status])

    def _log(self, split: str, epoch: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [
            # MLflow allows no @ in names: hits@10 becomes hits_at_10.
            Metric(f"{split}.{name.replace('@', '_at_')}", value, now, epoch)
            for name, value in values.items()
        ]
        self._client.log_batch(self._run, metrics=metrics)
