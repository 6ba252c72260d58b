"""The end of a run: the test split, once, and what :func:`nscaching.train` returns."""

from __future__ import annotations

from nscaching.distributed.launch import current_group
from nscaching.evaluation import RankingReport
from nscaching.runs.run import Run
from nscaching.training import Progress, Trainer
from nscaching.training.folder import evaluation_line


def finished(trainer: Trainer, shown: Progress, probabilities: bool = True) -> Run:
    """Look at the test split, once, with the best model; sum the run up.

    Probabilities are fitted now, so that the first question is quick, or when they are asked for.
    """
    counters, group = trainer.counters, current_group()
    if group.size > 1:
        run, test = _finished_together(trainer)
    else:
        model, trace = trainer.best_model(), trainer.tracer.lines if trainer.tracer else None
        run = Run(trainer.config, trainer.graph, model, folder=trainer.folder, trace=trace)
        test = run.evaluate("test", progress=shown) if len(trainer.graph.test) else None
    run._lines = trainer.tracking.lines
    if test is not None and group.rank == 0:
        line = evaluation_line(test.overall(), "test", test.seconds, counters.best_epoch)
        trainer.record(line)
    run.summary = {
        "run": str(trainer.folder.path) if trainer.folder else None,
        "epochs": counters.epoch,
        "best_epoch": counters.best_epoch,
        "select": trainer.config.select,
        "seconds": counters.seconds,
        "seconds_per_epoch": counters.epoch_seconds / max(1, counters.epoch),
        "device": str(trainer.device),
        "extra_parameters": trainer.sampler.extra_parameters,
        "valid": counters.best_valid,
        "test": test.overall() if test is not None else None,
    }
    if run.folder is not None and group.rank == 0 and probabilities:
        _ = run.calibration
    return run


def _finished_together(trainer: Trainer) -> tuple[Run, RankingReport | None]:
    """Rank the test split on all processes; the run is then read from its folder, by shard."""
    assert trainer.folder is not None
    test = (
        trainer.validation.rank(trainer.best_model(), "test") if len(trainer.graph.test) else None
    )
    run = Run.load(trainer.folder.path, trainer.device, mapped=True)
    if test is not None:
        run.evaluations["test"] = test
    return run, test
