"""The pictures of a search: the incumbent's curve, and what mattered. Needs matplotlib."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nscaching.experiments.tune.curves import CurvePoint
from nscaching.experiments.tune.importance import Importance
from nscaching.experiments.tune.progress import SearchProgress
from nscaching.report.drawing import COLOURS, figure, save

if TYPE_CHECKING:
    from nscaching.experiments.tune.result import SearchResult


def draw(result: SearchResult, progress: SearchProgress) -> list[str]:
    """Draw what there is to see; without matplotlib say how to get it, and draw nothing."""
    if importlib.util.find_spec("matplotlib") is None:
        progress.say("No pictures: they need matplotlib (pip install 'nscaching[plot]').")
        return []
    folder, measure = result.folder.path, result.measure.name
    curves = {result.method: result.curve}
    drawn = [curves_picture(curves, folder / "curve.png", measure=measure)]
    if result.importance is not None:
        path = folder / "importance.png"
        drawn.append(importance_picture(result.importance, path, measure=measure))
    return [str(path) for path in drawn]


def curves_picture(
    curves: Mapping[str, Sequence[CurvePoint]],
    path: Path,
    *,
    over: str = "trials",
    measure: str = "MRR",
    reference: tuple[str, float] | None = None,
) -> Path:
    """Draw top1 (solid) and top3 (dashed) of some searches over trials, epochs or seconds."""
    with figure(6.4, 4.0) as drawn:
        axes = drawn.subplots()
        for colour, (name, curve) in zip(COLOURS * len(curves), curves.items(), strict=False):
            for top, line in (("top1", "-"), ("top3", "--")):
                points = [point for point in curve if getattr(point, top) is not None]
                x = [getattr(point, over) for point in points]
                y = [getattr(point, top) for point in points]
                axes.step(x, y, where="post", color=colour, linestyle=line, label=f"{name}, {top}")
        if reference is not None:
            axes.axhline(reference[1], color="black", linestyle=":", label=reference[0])
        names = {"epochs": "training epochs, all trials", "seconds": "training seconds, all trials"}
        axes.set_xlabel(names.get(over, over))
        axes.set_ylabel(f"validation {measure}")
        axes.legend(loc="lower right")
        save(drawn, path)
    return path


def importance_picture(importance: Importance, path: Path, *, measure: str = "MRR") -> Path:
    """Draw the share of each option, and beside it what it does to the score."""
    effects = importance.effects
    with figure(9.0, 0.9 + 0.45 * max(6, len(effects))) as drawn:
        left, right = drawn.subplots(1, 2)
        names = [effect.name for effect in reversed(effects)]
        left.barh(
            names, [effect.total for effect in reversed(effects)], color="#c9d8de", label="total"
        )
        left.barh(
            names,
            [effect.alone for effect in reversed(effects)],
            height=0.45,
            color=COLOURS[0],
            label="alone",
        )
        left.set_xlabel("share of the surrogate's variance")
        left.legend(loc="lower right")
        for colour, effect in zip(COLOURS, effects, strict=False):
            places = [place / max(1, len(effect.score) - 1) for place in range(len(effect.score))]
            ends = f"{_short(effect.values[0])} to {_short(effect.values[-1])}"
            right.plot(places, effect.score, color=colour, label=f"{effect.name}: {ends}")
        right.set_xlabel("position in its range")
        right.set_ylabel(f"predicted validation {measure}")
        right.legend(fontsize="small")
        drawn.suptitle(
            f"{importance.trials} trials; fit on trials held out: r = {importance.fit:.2f}",
            fontsize="medium",
        )
        save(drawn, path)
    return path


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
