"""What a trace observes, and how often."""

from __future__ import annotations

from dataclasses import dataclass

from nscaching.options import Options, option


@dataclass(kw_only=True)
class TraceOptions(Options):
    """What is observed while a run trains; nothing of it changes what is learnt."""

    trace: bool = option(
        False,
        "Count what the negatives are worth in each epoch, into trace.jsonl; costs little.",
        group="Trace",
    )
    trace_row: tuple[str, ...] = option(
        (),
        "Show this cache row by name, 'HEAD|RELATION|?' or '?|RELATION|TAIL'; repeatable. "
        "By default a row of each of the three most frequent relations.",
        group="Trace",
    )
    trace_triple: tuple[str, ...] = option(
        (),
        "Also take the gradient norms over all negatives of 'HEAD|RELATION|TAIL'; repeatable.",
        group="Trace",
    )
    trace_every: int | None = option(
        None,
        "Epochs between snapshots of those rows and triples; by default those between validations.",
        group="Trace",
        low=1,
    )
    trace_window: int = option(
        20,
        "A negative is repeated if its triple had it within so many epochs before.",
        group="Trace",
        low=1,
    )

    def is_traced(self) -> bool:
        """Tell whether anything is to be observed: a row or a triple asks for it too."""
        return self.trace or bool(self.trace_row) or bool(self.trace_triple)
