"""The configuration of a run: file, Python and command line are the same thing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nscaching.errors import UserError, shown
from nscaching.evaluation.metrics import SELECTABLE
from nscaching.evaluation.ranking import DEFAULT_MEMORY_MB
from nscaching.losses import LossOptions
from nscaching.models import SCORING, ScoringOptions
from nscaching.models.match import UNIT
from nscaching.models.matches import Distance, Dot
from nscaching.optim.base import SCHEDULES
from nscaching.options import OptionGroup, OptionsT
from nscaching.sampling import SAMPLERS, BernoulliSampler, SamplerOptions
from nscaching.training.tracing import TraceOptions

_SMALLEST_USUAL_BATCH, _LARGEST_USUAL_BATCH = 64, 1024
_STEPS_WANTED = 16
#: Times that a step must read a row for a copy of the table to pay on a GPU.
_READS = 16

_data, _training = OptionGroup("Data"), OptionGroup("Training")


@dataclass(kw_only=True)
class TrainConfig(TraceOptions, SamplerOptions, LossOptions, ScoringOptions):
    """Everything that decides how a run turns out."""

    data: str = _data("", "A named data set, a folder with train/valid/test, or a file of triples.")
    split: float | None = _data(
        None,
        "For data without valid and test triples: the share held out for valid and again for test; "
        "default 0.05 of a single file or of a graph in memory, and at most 20,000 facts; 0 keeps "
        "all.",
        low=0,
        below=0.5,
    )
    recipe: str = _training(
        "auto",
        "Settings that suit a kind of graph: paper, all-entities or cached; auto takes the one "
        "that fits the graph if no option of the method is given, else paper.",
    )
    init_from: str | None = _training(
        None, "Start from the parameters of this run instead of random ones."
    )
    epochs: int = _training(100, "Epochs at most.", low=1)
    max_seconds: float | None = _training(
        None,
        "Stop after the epoch in which this many seconds of training are used up; default never.",
        above=0,
    )
    pretrain_epochs: int = _training(
        0,
        "Number of epochs at the start with Bernoulli negatives: the paper's 'pretrain'.",
        low=0,
    )
    batch_size: int | None = _training(
        None,
        "Positive triples per step; default 1024, and fewer where an epoch would have few steps.",
        low=1,
    )
    lr: float = _training(1e-3, "Learning rate.", above=0)
    schedule: str = _training(
        "constant",
        "Learning rate schedule; linear and cosine decay per step, to 0 at the end of --epochs.",
        choices=SCHEDULES,
    )
    optimizer: str = _training(
        "adam",
        "Adam moves every row in each step; lazy-adam and adagrad only rows with a gradient.",
        choices=("adam", "lazy-adam", "adagrad"),
    )
    table: str = _training(
        "float32",
        "Number format of the entity table; bfloat16 takes half of the memory, and on a GPU no "
        "dense gradients. It needs adagrad, which then rounds stochastically.",
        choices=("float32", "bfloat16"),
    )
    dropout: float = _training(
        0.0, "Share of the numbers of a query that are dropped.", low=0, below=1
    )
    valid_every: int = _training(5, "Epochs between two validations; 0 never validates.", low=0)
    valid_facts: int | None = _training(
        None,
        "Most facts of valid that a validation ranks, drawn once; default all, or fewer where "
        "ranking all would take longer than training.",
        low=1,
    )
    patience: int = _training(
        10, "Stop after this many validations without a gain in --select; 0 never stops.", low=0
    )
    select: str = _training(
        "mrr",
        "Measure on valid that decides the best epoch and early stopping, and in tune the best "
        "trial.",
        choices=SELECTABLE,
    )
    seed: int = _training(
        0, "Seed of the split, the parameters and the sampling.", low=0, high=2**32 - 1
    )
    device: str = _training(
        "auto",
        "Where to train; auto takes a GPU if there is one.",
        choices=("auto", "cpu", "cuda", "mps"),
    )
    strata: int = _training(
        1,
        "Random parts of the entities for runs on several processes; the number of processes "
        "divides it, and 1 means no parts.",
        low=1,
        high=4096,
    )
    eval_memory: int = _training(
        DEFAULT_MEMORY_MB, "Megabytes of scores held during evaluation.", low=1
    )
    checkpoint_seconds: float = _training(
        60.0,
        "Seconds between two checkpoints, written at the end of an epoch; 0 writes every epoch.",
        low=0,
    )

    def batch(self, triples: int) -> int:
        """Return the positive triples per step for so many.

        By default 1024, or the largest power of two down to 64 that gives an epoch 16 steps.
        """
        if self.batch_size is not None:
            return self.batch_size
        size = _LARGEST_USUAL_BATCH
        while size > _SMALLEST_USUAL_BATCH and size * _STEPS_WANTED > triples:
            size //= 2
        return size

    def lr_factor(self, epochs_done: float) -> float:
        """Return the factor of the learning rate after so many epochs, parts of one counted."""
        return SCHEDULES[self.schedule](min(1.0, epochs_done / self.epochs))

    def asks_both_sides(self) -> bool:
        """Tell whether a step asks for the head and the tail of every triple."""
        return self.loss_name(SCORING[self.scoring].usual_loss) == "softmax"

    def uses_copy(self, device_type: str, triples: int, entities: int) -> bool:
        """Tell whether candidates are scored from a copy of the entity table with fewer bits.

        On a GPU it pays where a step reads each row many times: the copy is written in every step.
        """
        if self.table == "bfloat16":
            return False
        if not self.int8 or not SAMPLERS[self.sampler].scores_candidates or self.asks_both_sides():
            return False
        if not isinstance(self.build_scoring().match, Dot):
            return False
        read = 2 * self.batch(triples) * (self.cache_size + self.candidates)
        return device_type == "cpu" or (device_type == "cuda" and read > _READS * entities)

    def warm_start(self, batch_size: int) -> TrainConfig | None:
        """Return how the TransE is trained that the generator of KBGAN or IGAN starts from.

        None where there is no generator, or it starts at random.
        """
        epochs = self.pretrain_epochs if self.generator_epochs is None else self.generator_epochs
        if not SAMPLERS[self.sampler].has_generator or epochs == 0:
            return None
        same = {name: getattr(self, name) for name in ("margin", "lr", "seed", "device")}
        same |= {"dim": self.generator_dim, "batch_size": batch_size, "epochs": epochs}
        sampler = BernoulliSampler.name
        return TrainConfig(**same, scoring="transe", sampler=sampler, valid_every=0)

    def check_sampler(self) -> None:
        """Refuse a sampler and a loss that do not go together."""
        sampler = SAMPLERS[self.sampler]
        if self.asks_both_sides() and not sampler.both_sides_possible:
            fitting = ", ".join(name for name, each in SAMPLERS.items() if each.both_sides_possible)
            raise UserError(
                "The softmax loss asks for the head and the tail of every triple, and the sampler "
                f"{self.sampler} replaces one of them; choose one of these samplers: {fitting}."
            )
        if self.asks_both_sides() and (self.preset is not None or self.nu > 0):
            name = "nu" if self.preset is None else "preset"
            raise UserError(
                f"{name} decides how single negatives are drawn from a cache row, and the softmax "
                f"loss takes the row as a whole; drop {name}, or choose another loss."
            )
        if self.cache_memory and self.is_traced():
            raise UserError(
                "A trace follows the row of every pair, and with cache_memory pairs share rows; "
                "trace without it."
            )
        if sampler.needs_both_sides and not self.asks_both_sides():
            raise UserError(
                f"The sampler {self.sampler} goes with the softmax loss only; set loss to softmax."
            )

    def check_relation_prediction(self) -> None:
        """Refuse scoring functions whose relations have no row that a dot product scores."""
        if self.relation_prediction > 0 and self.build_scoring().terms is None:
            fitting = ", ".join(name for name, each in SCORING.items() if each(1).terms is not None)
            free = SCORING[self.scoring](1, normalize=False).terms is not None
            raise UserError(
                f"relation_prediction does not go with the scoring function {self.scoring}, which "
                f"is not bilinear{' unless normalize is off' if free else ''}; set it to 0, or "
                f"choose one of these: {fitting}."
            )

    def check_strata(self) -> None:
        """Refuse what a run over several strata cannot do."""
        reasons = {
            f"the sampler {self.sampler}": SAMPLERS[self.sampler].has_generator,
            "tracing": self.is_traced(),
            "alpha1": self.alpha1 > 0,
            "subsampling": self.subsampling,
            "select accuracy": self.select == "accuracy",
        }
        for what, wrong in reasons.items():
            if wrong and self.strata > 1:
                raise UserError(
                    f"Several processes or strata do not go with {what}; train in one process, "
                    "with strata 1."
                )

    def check_table(self) -> None:
        """Refuse what does not go with rows of bfloat16."""
        if self.table == "float32":
            return
        reasons = {
            f"the optimizer {self.optimizer}": ("adagrad", self.optimizer != "adagrad"),
            "the sampler all, which moves every row in each step": (None, self.sampler == "all"),
            f"the sampler {self.sampler}": (None, SAMPLERS[self.sampler].has_generator),
            "several strata": (None, self.strata > 1),
            "tracing": (None, self.is_traced()),
        }
        for what, (remedy, wrong) in reasons.items():
            if wrong and not (remedy and self.recipe == "auto"):  # a recipe decides that later
                other = f"set optimizer to {remedy}" if remedy else "set table to float32"
                raise UserError(f"A table of bfloat16 does not go with {what}; {other}.")

    @classmethod
    def from_file(cls, path: Path) -> TrainConfig:
        """Read a YAML file of options."""
        return cls.from_mapping(read_yaml(path), str(path))


def plain_options(config: OptionsT | str | Path | None, kind: type[OptionsT]) -> dict[str, Any]:
    """Return the options of a configuration or its file; a bad file is named in the error."""
    if config is None:
        return {}
    if isinstance(config, kind):
        return config.as_dict()
    given = read_yaml(Path(str(config)))
    kind.from_mapping(given, str(config))
    return given


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds one mapping."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; name a YAML file of options.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as text: {error}.") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise UserError(f"{path}{place}: {problem}. Write one 'option: value' per line.") from error
    except Exception as error:  # PyYAML's constructors raise whatever a text makes them raise
        said = shown(error) if str(error) else type(error).__name__
        raise UserError(
            f"{path}{_bad_line(path)}: a value cannot be read ({said}). Write one 'option: value' "
            "per line."
        ) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected one 'option: value' per line.")
    return content


def _bad_line(path: Path) -> str:
    """Say which line of a YAML file cannot be read, where it shows in one line alone."""
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
        try:
            yaml.safe_load(line)
        except Exception:
            return f", line {number}"
    return ""


# Options that were asked for and do nothing: worth a remark, not an error -------------------------


def idle_options(config: TrainConfig, given: Collection[str]) -> list[str]:
    """Return a sentence for each reason why options that were given do nothing."""
    asked = [name for name in given if name in TrainConfig.names()]
    found, told = [], set[str]()
    for names, reason in _reasons(config):
        idle = [name for name in asked if name in names and name not in told]
        told.update(idle)
        if idle:
            no = {name: "no-" if getattr(config, name) is False else "" for name in idle}
            *flags, last = (f"--{no[name]}{name.replace('_', '-')}" for name in idle)
            listed = f"{', '.join(flags)} and {last} have" if flags else f"{last} has"
            found.append(f"{listed} no effect {reason}.")
    if "pretrain_epochs" in asked and config.pretrain_epochs >= config.epochs:
        found.append(
            f"All {config.epochs} epochs are pretraining with Bernoulli negatives: the sampler "
            f"{config.sampler} is never used."
        )
    return found


def _reasons(config: TrainConfig) -> Iterator[tuple[Collection[str], str]]:
    """Yield options that have no effect in this configuration, each with the reason."""
    scoring, sampler = SCORING[config.scoring], SAMPLERS[config.sampler]
    loss = config.loss_name(scoring.usual_loss)
    of_losses = {"margin": "margin", "offset": "logistic", "label_smoothing": "softmax"}
    for name, needed in of_losses.items():
        trains_generator = name == "margin" and config.warm_start(1) is not None
        if loss != needed and not trains_generator:
            yield [name], f"with the {loss} loss"
    function = scoring(config.dim, config.norm)
    match = function.match
    if not isinstance(match, Distance):
        yield ["norm"], f"with the scoring function {config.scoring}"
    if match.view_kind != UNIT and config.scoring != "quate":
        yield ["normalize"], f"with {config.scoring}: it is for transe and quate"
    of_others = {name for each in SAMPLERS.values() for name in each.own_options}
    yield of_others - sampler.own_options, f"with the sampler {config.sampler}"
    if config.valid_every == 0:
        options = ["patience", "select", "valid_facts"]
        yield options, "where --valid-every is 0 and nothing is validated"
    if not config.is_traced():
        yield ["trace_every", "trace_window"], "without --trace"
    cached, softmax = config.sampler == "nscaching", loss == "softmax"
    if config.sampler == "all":
        yield ["negatives", "known_positives"], "with the sampler all: every entity is a candidate"
    if cached and softmax:
        yield ["negatives", "alpha2"], "with the softmax loss, which takes a cache row as a whole"
        yield ["int8"], "with the softmax loss, whose own scores update the cache"
    if cached and not isinstance(match, Dot):
        yield ["int8"], f"with the scoring function {config.scoring}, a distance"
    if config.pool and cached:
        yield ["candidates"], "with --pool, which takes their place"
    if config.pool and not cached:
        yield ["negatives"], "with --pool, which takes their place"
    if softmax and not cached:
        yield ["known_positives"], "with the softmax loss: uniform entities stand for all others"
    if softmax:
        yield ["subsampling"], "with the softmax loss"
    if config.alpha1 == 0:
        yield ["importance"], "where --alpha1 is 0 and positives are shuffled"
        if config.alpha3 == 0 and (config.alpha2 == 0 or softmax):
            yield ["rescale"], "where all temperatures are 0"
