"""The engine: what is known is skipped, failures are records, an interrupt says how to resume."""

from concurrent.futures import Future
from dataclasses import dataclass

import pytest

from nscaching import NSCachingError, TrainingDiverged, TrainingInterrupted
from nscaching.experiments.runner import (
    DONE,
    FAILED,
    STOPPED,
    WAITING,
    Experiment,
    Failed,
    Pool,
    Sweep,
    TrialLog,
    failure,
    run_all,
    seconds_per_epoch,
    state_of,
    this_process,
)
from nscaching.training import Progress


@dataclass(frozen=True)
class Letter:
    identity: str

    @property
    def title(self):
        return f"letter {self.identity}"


class Letters(Sweep):
    """Writes letters in capitals; ``errors`` are raised for some."""

    noun, resume_command = "run", "write --resume"

    def __init__(self, letters, log, errors=None, progress="none"):
        super().__init__([Letter(letter) for letter in letters], Progress(progress))
        self.log, self.errors = log, errors or {}
        self.before = {record["letter"]: record for record in log.read()}
        self.trained = []

    def _known(self, letter):
        record = self.before.get(letter.identity)
        return None if record is None or record["error"] else record

    def run(self, letter):
        self.trained.append(letter.identity)
        if letter.identity in self.errors:
            raise self.errors[letter.identity]
        return {"letter": letter.identity, "capital": letter.identity.upper(), "error": None}

    def _failed(self, letter, reason):
        return {"letter": letter.identity, "error": reason}

    def _seconds(self, letter):
        return 60.0 if self.trained else None

    def _keep(self, letter, record):
        if self.before.get(letter.identity) != record:
            self.log.append(record)


@pytest.fixture
def log(tmp_path):
    return TrialLog(tmp_path / "trials.jsonl")


def test_a_sweep_runs_everything_once_and_in_order(log):
    sweep = Letters("abc", log)
    run_all(sweep, this_process(sweep.run))
    assert [record["capital"] for record in sweep.records.values()] == ["A", "B", "C"]
    assert [record["letter"] for record in log.read()] == ["a", "b", "c"]
    again = Letters("abcd", log)
    run_all(again, this_process(again.run))
    assert again.trained == ["d"]
    assert list(again.records) == ["a", "b", "c", "d"]
    assert len(log.read()) == 4


def test_a_failure_is_a_record_and_is_tried_again(log):
    errors = {"a": TrainingDiverged("The loss is nan"), "b": MemoryError(), "c": KeyError("x")}
    sweep = Letters("abcd", log, errors)
    run_all(sweep, this_process(sweep.run))
    reasons = [record["error"] for record in sweep.records.values()]
    assert reasons == ["The loss is nan", "out of memory", "KeyError: 'x'", None]
    assert sweep.finished == 1
    again = Letters("abcd", log)
    run_all(again, this_process(again.run))
    assert again.trained == ["a", "b", "c"]
    assert again.finished == 4


def test_an_interrupt_keeps_what_is_finished_and_says_how_to_resume(log):
    sweep = Letters("abc", log, {"b": KeyboardInterrupt()})
    with pytest.raises(TrainingInterrupted) as stopped:
        run_all(sweep, this_process(sweep.run))
    assert str(stopped.value) == (
        "Stopped with 1 of 3 runs finished; everything is kept. Resume with:\n  write --resume"
    )
    again = Letters("abc", log)
    run_all(again, this_process(again.run))
    assert again.trained == ["b", "c"]


def test_the_time_left_is_that_of_what_is_not_known(log, capsys):
    before = Letters("b", log)
    run_all(before, this_process(before.run))
    sweep = Letters("abcd", log, progress="lines")
    run_all(sweep, this_process(sweep.run))
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "Run 1 of 4: letter a",
        "Run 3 of 4: letter c (about 2 min 0 s left for all)",
        "Run 4 of 4: letter d (about 1 min 0 s left for all)",
    ]


def test_a_gpu_that_failed_ends_the_sweep_and_leaves_no_failures(log):
    broken = RuntimeError("CUDA error: an illegal memory access was encountered\nSearch for it.")
    sweep = Letters("abc", log, {"b": broken})
    with pytest.raises(NSCachingError, match=r"memory access was encountered\. Everything") as told:
        run_all(sweep, this_process(sweep.run))
    assert str(told.value).endswith("Resume with:\n  write --resume")
    assert sweep.trained == ["a", "b"]
    assert [record["letter"] for record in log.read()] == ["a"]


def test_a_half_written_record_is_dropped(log):
    log.append({"letter": "a", "error": None})
    with log.path.open("a") as file:
        file.write('{"letter": "b"')
    assert [record["letter"] for record in log.read()] == ["a"]
    log.repair()
    log.append({"letter": "c", "error": None})
    assert [record["letter"] for record in log.read()] == ["a", "c"]


def test_states():
    assert state_of({"error": None}, begun=True) == DONE
    assert state_of({"error": "diverged"}, begun=True) == FAILED
    assert state_of(None, begun=True) == STOPPED
    assert state_of(None, begun=False) == WAITING


def test_memory_is_named_as_such():
    assert failure(RuntimeError("CUDA out of memory")) == "out of memory: CUDA out of memory"
    assert failure(RuntimeError("no such kernel")) == "RuntimeError: no such kernel"


class Doubling(Experiment):
    """Numbers whose next one depends on the last result."""

    noun, total, resume_command, finished = "trial", 4, "", 0

    def __init__(self):
        self.values, self.free = [1], True

    def next(self):
        ready = self.free and len(self.values) <= self.total
        self.free = False
        return self.values[-1] if ready else None

    def run(self, number):
        return 2 * number

    def take_in(self, number, record):
        self.values.append(record)
        self.free = True


def test_what_is_next_may_depend_on_results():
    experiment = Doubling()
    run_all(experiment, this_process(experiment.run))
    assert experiment.values == [1, 2, 4, 8, 16]


def test_a_pool_is_kept_busy_and_answers_in_any_order(log):
    futures, most = [], []

    def submit(letter):
        futures.append((letter, Future()))
        waiting = [each for each in futures if not each[1].done()]
        most.append(len(waiting))
        if len(waiting) == 2 or letter.identity == "e":
            for each, future in waiting[::-1]:
                future.set_result({"letter": each.identity, "error": None})
        return futures[-1][1]

    sweep = Letters("abcde", log)
    run_all(sweep, Pool(submit, lambda: 2))
    assert max(most) == 2
    assert sorted(sweep.records) == list("abcde")


def test_what_a_worker_does_not_finish_is_a_failure(log):
    def submit(letter):
        future = Future()
        if letter.identity == "a":
            future.set_exception(RuntimeError("killed"))
        else:
            future.set_result(Failed("out of memory"))
        return future

    sweep = Letters("ab", log)
    run_all(sweep, Pool(submit, lambda: 2))
    reasons = [record["error"] for record in sweep.records.values()]
    assert reasons == ["its worker died (killed)", "out of memory"]


def epoch(number, seconds):
    return {"event": "epoch", "epoch": number, "loss": 1.0, "seconds": seconds}


#: The first epoch takes 10 s, the others 2 s; a validation takes 5 s.
LINES = [
    epoch(1, 10.0),
    epoch(2, 12.0),
    {"event": "evaluation", "epoch": 2, "split": "valid", "seconds": 5.0},
    epoch(3, 19.0),
    epoch(4, 21.0),
]


def test_an_epoch_is_one_of_the_sampler_itself_and_not_its_first():
    assert seconds_per_epoch(LINES, 0) == 2
    pretrained = [epoch(n, 100.0 * n) for n in (1, 2, 3)]
    pretrained += [epoch(4, 350.0), epoch(5, 360.0), epoch(6, 370.0)]
    assert seconds_per_epoch(pretrained, 3) == 10
    assert seconds_per_epoch([epoch(1, 3.0)], 0) == 3
    assert seconds_per_epoch([], 0) is None
