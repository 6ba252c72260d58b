"""Options that were asked for and do nothing in a run: worth a remark, not an error.

What contradicts the rest of the options is refused by ``TrainConfig.check_sampler``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from nscaching.models import SCORING
from nscaching.models.match import UNIT
from nscaching.models.matches import Distance, Dot
from nscaching.sampling import SAMPLERS
from nscaching.training.config import TrainConfig


def idle_options(config: TrainConfig, given: Collection[str]) -> list[str]:
    """Return a sentence for each reason why options that were given do nothing."""
    asked = [name for name in given if name in TrainConfig.names()]
    found, told = [], set[str]()
    for names, reason in _reasons(config):
        idle = [name for name in asked if name in names and name not in told]
        if idle:
            found.append(_sentence(config, idle, reason))
            told.update(idle)
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
    yield from _reasons_of_candidates(config, loss, isinstance(match, Dot))
    if config.valid_every == 0:
        yield (
            ["patience", "select", "valid_facts"],
            "where --valid-every is 0 and nothing is validated",
        )
    if not config.is_traced():
        yield ["trace_every", "trace_window"], "without --trace"


def _reasons_of_candidates(
    config: TrainConfig, loss: str, is_dot: bool
) -> Iterator[tuple[Collection[str], str]]:
    """Yield options of samplers that other options of theirs replace."""
    cached, softmax = config.sampler == "nscaching", loss == "softmax"
    if config.sampler == "all":
        yield ["negatives", "known_positives"], "with the sampler all: every entity is a candidate"
    if cached and softmax:
        yield ["negatives", "alpha2"], "with the softmax loss, which takes a cache row as a whole"
        yield ["int8"], "with the softmax loss, whose own scores update the cache"
    if cached and not is_dot:
        yield ["int8"], f"with the scoring function {config.scoring}, a distance"
    if config.pool and cached:
        yield ["candidates"], "with --pool, which takes their place"
    if config.pool and not cached:
        yield ["negatives"], "with --pool, which takes their place"
    if softmax and not cached:
        yield ["known_positives"], "with the softmax loss: uniform entities stand for all others"
    if config.alpha1 == 0:
        yield ["importance"], "where --alpha1 is 0 and positives are shuffled"
        if config.alpha3 == 0 and (config.alpha2 == 0 or softmax):
            yield ["rescale"], "where all temperatures are 0"


def _sentence(config: TrainConfig, names: list[str], reason: str) -> str:
    flags = [_flag(name, getattr(config, name)) for name in names]
    listed = flags[0] if len(flags) == 1 else f"{', '.join(flags[:-1])} and {flags[-1]}"
    return f"{listed} {'has' if len(flags) == 1 else 'have'} no effect {reason}."


def _flag(name: str, value: object) -> str:
    return f"--{'no-' if value is False else ''}{name.replace('_', '-')}"
