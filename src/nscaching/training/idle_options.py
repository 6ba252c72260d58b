"""Options that were asked for and do nothing in a run: worth a remark, not an error."""

from __future__ import annotations

from collections.abc import Collection

from nscaching.models import SCORING
from nscaching.models.matches import Distance
from nscaching.sampling import SAMPLERS
from nscaching.training.config import TrainConfig
from nscaching.training.warm_start import warm_start_config


def idle_options(config: TrainConfig, given: Collection[str]) -> list[str]:
    """Return a sentence for each reason why options that were given do nothing."""
    found = []
    scoring = SCORING[config.scoring]
    loss = config.loss_name(scoring.usual_loss)
    of_losses = {"margin": "margin", "offset": "logistic", "label_smoothing": "softmax"}
    for name, needed in of_losses.items():
        trains_generator = name == "margin" and warm_start_config(config, 1) is not None
        if name in given and loss != needed and not trains_generator:
            found.append(_sentence([name], f"the {loss} loss"))
    if "norm" in given and not isinstance(config.build_scoring().match, Distance):
        found.append(_sentence(["norm"], f"the scoring function {config.scoring}"))
    of_others = {name for sampler in SAMPLERS.values() for name in sampler.own_options}
    idle = of_others - SAMPLERS[config.sampler].own_options
    names = [name for name in given if name in idle]
    if names:
        found.append(_sentence(names, f"the sampler {config.sampler}"))
    return found


def _sentence(names: list[str], reason: str) -> str:
    flags = [f"--{name.replace('_', '-')}" for name in names]
    listed = flags[0] if len(flags) == 1 else f"{', '.join(flags[:-1])} and {flags[-1]}"
    return f"{listed} {'has' if len(flags) == 1 else 'have'} no effect with {reason}."
