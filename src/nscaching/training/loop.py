"""The training loop (paper, ``alg-cache``): sample, update the sampler, step; validate; keep best.

Order in a step: negatives come from the caches as they stand, then the caches are updated, then
the parameters.
"""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable
from typing import NoReturn

import torch
from torch import Tensor

from nscaching.artefacts.files import append_json_line
from nscaching.errors import (
    CHOOSE_ANOTHER,
    TrainingDiverged,
    TrainingInterrupted,
    UserError,
    resume_command,
)
from nscaching.evaluation.metrics import SELECTABLE
from nscaching.graph import KnowledgeGraph
from nscaching.interop.tracking import RunStart
from nscaching.interrupt import StopRequest
from nscaching.kernels.availability import HAVE_NUMBA
from nscaching.models import EmbeddingModel
from nscaching.processes import current_group
from nscaching.sampling import BernoulliSampler, Sampler
from nscaching.sampling.random_state import restore
from nscaching.training.checkpoint import Counters
from nscaching.training.config import TrainConfig
from nscaching.training.devices import pick_device
from nscaching.training.execution import Executor, make_executor
from nscaching.training.folder import RunFolder, evaluation_line
from nscaching.training.opening import copies_of, make_optimizer
from nscaching.training.placement import Placement
from nscaching.training.progress import Progress
from nscaching.training.tracing import Tracer
from nscaching.training.trackers import Tracking
from nscaching.training.validation import Validation
from nscaching.training.warm_up import warm_up

#: Numbers that are looked through at once for what is none: a look makes copies of them.
_CHECKED = 1 << 24


class Trainer:
    """One run: its model, sampler, optimiser and counters, and where they are kept."""

    def __init__(
        self,
        graph: KnowledgeGraph,
        config: TrainConfig,
        folder: RunFolder | None,
        progress: Progress,
        tracking: Tracking | None = None,
    ) -> None:
        if len(graph.train) == 0:
            raise UserError("The graph has no training triples; there is nothing to learn from.")
        self.graph, self.config, self.folder, self.progress = graph, config, folder, progress
        self.tracking = tracking or Tracking()
        if folder is None or not folder.is_run():  # else it is resumed or replaced
            self.tracking.begin_anew()
        self.device = pick_device(config.device)
        self.batch_size = config.batch(len(graph.train))
        self.placement = Placement.of(graph, config, self.device)
        self.model = self.placement.model()
        self.generator = torch.Generator(self.device).manual_seed(config.seed)
        self._warm_start = config.warm_start(self.batch_size)
        begins_with_bernoulli = config.pretrain_epochs > 0 or self._warm_start is not None
        self.counters = Counters(graph.fingerprint, pretraining=begins_with_bernoulli)
        copies = copies_of(self.model, config, graph)
        self.sampler = self._make_sampler()
        self.loss = config.build_loss(self.model.scoring.usual_loss)
        self.optimizer = make_optimizer(self.model, config, len(graph.train), copies)
        self.columns = self.placement.columns()
        self.tracer: Tracer | None = None
        if config.is_traced():
            self.tracer = Tracer(graph, config, self.loss, self.columns)
        self.executor = self._make_executor()
        self.validation = Validation(graph, config, self.placement.count())
        self.best: dict[str, Tensor] = {}
        self.order: Tensor | None = None
        #: Called with the number of each finished epoch; for studies that look at the model.
        self.after_epoch: Callable[[int], None] | None = None
        self._clock = self._epoch_began = self._last_checkpoint = time.monotonic()

    def _make_sampler(self) -> Sampler:
        """Return Bernoulli's until pretraining and warm start are over, then the chosen one."""
        name = BernoulliSampler.name if self.counters.pretraining else self.config.sampler
        return self.placement.sampler(name, self.model)

    def _make_executor(self) -> Executor:
        parts = self.model, self.sampler, self.loss, self.optimizer, self.generator
        step = self.placement.step(*parts)
        return make_executor(step, self.columns, self.batch_size, self.tracer)

    # Running -------------------------------------------------------------------------------------

    def run(self, resume: bool, stop: StopRequest | None = None) -> None:
        """Train to the end, or until a signal; ``resume`` continues from the folder's checkpoint.

        ``stop`` is the request of a run that this one is a part of.
        """
        kept = self.folder if resume and self.folder and self.folder.has_checkpoint() else None
        if self.device.type == "cpu" and not (kept and kept.is_done(self.config)):
            current_group().one_by_host_first(lambda: warm_up(self.config, self.progress.say))
        self._clock = time.monotonic()
        if kept is not None:
            self._load_checkpoint(kept)
            self._clock -= self.counters.seconds
        else:
            self._begin()
        name = self.folder.path.name if self.folder is not None else self.graph.name
        self.tracking.begin(RunStart(name, self.config.as_dict(), self.counters.epoch))
        if self.device.type == "cpu" and not HAVE_NUMBA:
            self.progress.say(
                "Numba is not installed; training without it is several times slower."
            )
        limits = self.config.epochs, self.config.max_seconds
        asked = StopRequest() if stop is None else contextlib.nullcontext(stop)
        with asked as stop, self.progress.training(*limits) as bar:
            bar.advance(self.counters.epoch, self.counters.epoch_seconds)
            while self.order is not None or self._goes_on():  # an epoch that has begun is ended
                pretrained = self.counters.epoch >= self.config.pretrain_epochs
                if self.counters.pretraining and pretrained and self.order is None:
                    self._end_pretraining(stop)
                self._epoch_began = time.monotonic()
                loss = self._train_epoch(stop, bar)
                self.counters.epoch += 1
                self._count_epoch_seconds()
                self._report_epoch(loss, bar)
                self._trace()
                if self.after_epoch is not None:
                    self.after_epoch(self.counters.epoch)
                if self._validation_due():
                    self._validate(bar)
                if (number := self._stop_signal(stop)) is not None:
                    self._stop_here(number)
                waited = self.placement.agree(time.monotonic() - self._last_checkpoint)
                if self.folder is not None and waited >= self.config.checkpoint_seconds:
                    self._save_checkpoint()
        self._finish()

    def _begin(self) -> None:
        """Prepare what the first epoch needs."""
        self.sampler.prepare(self.model, self.generator)
        if self.folder is not None and self.placement.leads:
            self.folder.clear_metrics()
        self._trace()

    def save_start(self, folder: RunFolder) -> None:
        """Write the state before the first epoch, from which :meth:`run` resumes."""
        self.folder, before = folder, self.folder
        try:
            self._begin()
            self._save_checkpoint()
        finally:
            self.folder = before

    def _end_pretraining(self, stop: StopRequest) -> None:
        """Continue from the parameters that Bernoulli gave, with a fresh Adam.

        Nothing changes before the warm start is done: a run stopped in it does it again.
        """
        transe = self._trained_transe(stop)
        self.counters.pretraining = False
        self.counters.validations_without_gain = 0
        self.sampler = self._make_sampler()
        self.optimizer.forget()
        self.executor = self._make_executor()
        if transe is not None:
            self.sampler.warm_start(transe)
        self.sampler.prepare(self.model, self.generator)

    def _trained_transe(self, stop: StopRequest) -> EmbeddingModel | None:
        """Train the TransE that a generator starts from, where one is wanted."""
        if self._warm_start is None:
            return None
        if self.folder is not None:
            self._save_checkpoint()
        epochs = self._warm_start.epochs
        self.progress.say(f"Warm-starting the generator: {epochs} epochs of TransE.")
        trainer = Trainer(self.graph, self._warm_start, None, self.progress)
        try:
            trainer.run(resume=False, stop=stop)
        except TrainingInterrupted:
            assert stop.signal is not None
            self._stop_here(stop.signal, "in the generator's warm start ")
        return trainer.best_model()

    def _train_epoch(self, stop: StopRequest, bar: Progress.Bar) -> float:
        """Run the rest of the current epoch; return its mean loss."""
        counters = self.counters
        if self.order is None:
            since = 0 if counters.pretraining else self.config.pretrain_epochs
            self.order = self.sampler.begin_epoch(counters.epoch - since, self.generator)
        steps = math.ceil(len(self.order) / self.batch_size)
        so_far = counters.loss_sum if self.placement.leads else 0.0
        self.executor.begin_epoch(self.order, counters.steps_into_epoch, so_far)
        while counters.steps_into_epoch < steps:
            done = counters.epoch + counters.steps_into_epoch / steps
            self.optimizer.set_lr_factor(self.config.lr_factor(done))
            self.executor.step()
            counters.steps_into_epoch += 1
            bar.within_epoch(counters.steps_into_epoch / steps)
            agreeing = counters.steps_into_epoch % self.placement.steps_between_agreements == 0
            if agreeing and (number := self._stop_signal(stop)) is not None:
                counters.loss_sum = self.placement.total(self.executor.loss())
                self._count_epoch_seconds()
                self._stop_here(number)
        mean = self.placement.total(self.executor.loss()) / len(self.order)
        self.order, counters.steps_into_epoch, counters.loss_sum = None, 0, 0.0
        return mean

    def _count_epoch_seconds(self) -> None:
        took = self.placement.agree(time.monotonic() - self._epoch_began)
        self.counters.epoch_seconds += took

    def _report_epoch(self, loss: float, bar: Progress.Bar) -> None:
        epoch = self.counters.epoch
        if not math.isfinite(loss):
            self._diverged(f"The loss is {loss}")
        self.record({"event": "epoch", "epoch": epoch, "loss": loss, "seconds": self._seconds()})
        bar.epoch_done(epoch, loss)

    def _stop_signal(self, stop: StopRequest) -> int | None:
        """Return the signal that asks this process, or another of the group, to stop."""
        return int(self.placement.agree(stop.signal or 0)) or None

    def _check_parameters(self) -> None:
        tables = self.model.parameters()
        blocks = (b for t in tables for b in torch.split(t, 1 + _CHECKED // t.shape[1]))
        if self.placement.agree(not all(bool(block.isfinite().all()) for block in blocks)):
            self._diverged("The parameters are not numbers any more")

    def _diverged(self, what: str) -> NoReturn:
        kept = "No checkpoint had been written."
        if self.folder is not None and self.folder.has_checkpoint():
            kept = f"The last good checkpoint is kept in {self.folder.checkpoint.parent}."
        broken = not all(bool(table.isfinite().all()) for table in self.best.values())
        if self.folder is not None and self.best and not self.placement.agree(broken):
            self.placement.write_model(self.folder, self.best)
            kept += f" The best model, of epoch {self.counters.best_epoch}, is {self.folder.model}."
        raise TrainingDiverged(
            f"{what} after epoch {self.counters.epoch}: training diverged. {kept} "
            "Try a smaller lr, or a larger l2."
        )

    def _goes_on(self) -> bool:
        """Tell whether another epoch is to begin."""
        return self._within_budget() and not self._out_of_patience()

    def _within_budget(self) -> bool:
        """Tell whether epochs and seconds are left."""
        return self.counters.within_budget(self.config.epochs, self.config.max_seconds)

    def _out_of_patience(self) -> bool:
        return self.counters.out_of_patience(self.config.patience)

    # Validation ----------------------------------------------------------------------------------

    def _validation_due(self) -> bool:
        every, epoch = self.config.valid_every, self.counters.epoch
        if every == 0 or len(self.graph.valid) == 0:
            return False
        return epoch % every == 0 or not self._within_budget()

    def _validate(self, bar: Progress.Bar) -> None:
        counters = self.counters
        with bar.evaluating("valid", 2 * len(self.validation.facts)) as advance:
            found, seconds = self.validation.measure(self.model, advance)
        select = self.config.select
        if counters.best_valid is None or found[select] > counters.best_valid[select]:
            counters.best_valid, counters.best_epoch = found, counters.epoch
            counters.validations_without_gain = 0
            self.best = {}  # memory has room for one best model, not for two
            self.best = {name: table.detach().clone() for name, table in self.model.state().items()}
        else:
            counters.validations_without_gain += 1
        self.record(evaluation_line(found, "valid", seconds, counters.epoch))
        values = found[select], counters.best_valid[select]
        bar.validated(counters.epoch, SELECTABLE[select], *values, counters.best_epoch)

    def best_model(self) -> EmbeddingModel:
        """Return the model that is best on valid, or the last one without validation."""
        tables = self.best or self.optimizer.caught_up()
        return self.placement.whole(self.model.with_tables(tables))

    # Keeping -------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Write the best model and the last checkpoint, from which a run can be prolonged."""
        counters = self.counters
        counters.seconds = self._seconds()
        self._check_parameters()
        if not self.best:
            counters.best_epoch = counters.epoch
        if self.folder is None:
            return
        if not counters.finished or not self.folder.has_model():
            counters.finished = True
            self._save_checkpoint(last=True)

    def _save_checkpoint(self, last: bool = False) -> None:
        """Write the state of the run; the ``last`` time before it ends, wait until it is there."""
        assert self.folder is not None
        self._check_parameters()
        self.counters.seconds = self._seconds()
        parts = {
            "model": self.model.state(),
            "best": self.best,
            "adam": self.optimizer.state(),
            "sampler": self.sampler.state(),
            "random": {"state": self.generator.get_state()},
        }
        if self.tracer is not None:
            parts["trace"] = self.tracer.state()
        if self.order is not None:
            parts["epoch"] = {"order": self.order}
        tables = self.best or self.optimizer.caught_up()
        self.placement.save(self.folder, self.counters, parts, tables, last)
        self._last_checkpoint = time.monotonic()

    def _load_checkpoint(self, folder: RunFolder) -> None:
        counters, parts = self.placement.load(folder)
        if counters.fingerprint != self.graph.fingerprint:
            raise UserError(
                f"{folder.path} was trained on another graph: its triples or names differ from "
                f"those given now. Resume with the same data, or {CHOOSE_ANOTHER}"
            )
        if counters.pretraining != self.counters.pretraining:
            self.counters = counters
            self.sampler = self._make_sampler()
            self.executor = self._make_executor()
        self.optimizer.set_lr_factor(self.config.lr_factor(counters.epoch))
        try:
            for name, table in self.model.state().items():
                table.copy_(parts["model"][name])
            self.optimizer.load_state(parts["adam"])  # may bring deferred rows up to date
            self.model.refresh_copies()
            self.sampler.load_state(parts.get("sampler", {}))
            if not restore(self.generator, parts["random"]["state"]):
                self.progress.say(
                    "The run was trained on another kind of device; from here on its random "
                    "numbers, and so its results, differ from those of a run that was not stopped."
                )
            if self.tracer is not None:
                self.tracer.load_state(parts["trace"])
        except (KeyError, RuntimeError) as error:
            raise UserError(
                f"{folder.checkpoint.parent} does not fit this run ({error}); begin anew with "
                "--overwrite (overwrite=True)."
            ) from error
        self.best = {name: table.to(self.device) for name, table in parts.get("best", {}).items()}
        order = parts.get("epoch", {}).get("order")
        self.order = None if order is None else order.to(self.device)
        self.counters = counters
        counters.finished = counters.finished and not self._goes_on()
        if self.placement.leads:
            folder.keep_metrics_until(counters.epoch)
        if self.tracer is not None:
            self.tracer.lines = folder.read_trace()

    def _stop_here(self, number: int, doing: str = "") -> NoReturn:
        name, epoch = signal.Signals(number).name, self.counters.epoch
        place = f"after epoch {epoch}" if self.order is None else f"in epoch {epoch + 1}"
        where = f"{doing}{place} of {self.config.epochs}"
        if self.folder is None:
            raise TrainingInterrupted(f"Stopped by {name} {where}; nothing was kept.", number)
        self._save_checkpoint(last=True)
        raise TrainingInterrupted(
            f"Stopped by {name} {where}; everything is kept. Resume with:\n"
            f"  {resume_command('train', self.folder.path)}",
            number,
        )

    def record(self, line: dict[str, object]) -> None:
        """Keep a line of ``metrics.jsonl``, and hand it to the trackers."""
        if self.folder is not None and self.placement.leads:
            append_json_line(self.folder.metrics, line)
        self.tracking.record(line)

    def _trace(self) -> None:
        if self.tracer is not None:
            lines = self.tracer.end_epoch(self.counters.epoch, self.model, self.sampler)
            if self.folder is not None:
                self.folder.append_trace(lines)

    def _seconds(self) -> float:
        return time.monotonic() - self._clock
