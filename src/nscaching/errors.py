"""The errors a person can do something about.

Everything a user may get wrong raises :class:`UserError` with one or two sentences that name the
place and the remedy. The command line prints the sentence and exits with code 2.
"""

from __future__ import annotations

import difflib
import shlex
import signal
from collections.abc import Iterable


class NSCachingError(Exception):
    """Base class of every error this package raises on purpose."""


class UserError(NSCachingError, ValueError):
    """Bad input: a file, a name or a setting that the user can correct."""


class CannotWrite(UserError):
    """A file cannot be written: the disk is full, say. Whatever comes next could not be either."""


class TrainingDiverged(NSCachingError, RuntimeError):
    """The loss stopped being a number; the last good checkpoint is kept."""


class LostPeers(NSCachingError, ConnectionError):
    """Another process of a run has ended; its agent starts all of them again."""

    exit_code = 75


class TrainingInterrupted(KeyboardInterrupt):
    """The run was asked to stop, by Ctrl-C or a signal; what was said is kept is kept.

    Not an :class:`Exception`: a script that catches those must not swallow a request to stop.
    ``number`` is that of the signal; the command line exits with 128 and that.
    """

    def __init__(self, message: str = "", number: int | None = None) -> None:
        super().__init__(message)
        self.number = int(signal.SIGINT if number is None else number)


def stop_signal(error: KeyboardInterrupt) -> int:
    """Return the signal that an interrupt stands for: SIGINT unless it says another."""
    return int(getattr(error, "number", signal.SIGINT))


#: What to do about a folder that is taken, on the command line and in Python.
CHOOSE_ANOTHER = "choose another folder (--out, out=...)."
RESUME_OR_REPLACE = (
    "Resume it (--resume, resume=True), replace it (--overwrite, overwrite=True), or "
    + CHOOSE_ANOTHER
)

#: What to do about a graph without valid or test facts.
HOLD_OUT = (
    "Train on a folder with valid.txt and test.txt, or on more facts: a split (--split; of a graph "
    "on disk that of ingest) holds out only facts whose entities and relations have others."
)


def resume_command(verb: str, out: object) -> str:
    """Return the command that resumes what is in a folder, as a shell takes it."""
    return shlex.join(["nscaching", verb, "--resume", "--out", str(out)])


#: With more names than this only those that begin alike and are about as long are compared.
_MANY_NAMES = 20_000


def shown(name: object, most: int = 80) -> str:
    """Return a name as a message may show it: control characters escaped, a long name cut."""
    text = str(name)
    if len(text) > most:
        text = f"{text[: most - 3]}..."
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def plural(number: int, noun: str, many: str | None = None, form: str = ",") -> str:
    """Return a number with its noun; ``many`` is the plural of one that takes more than an s."""
    return f"{number:{form}} {noun if abs(number) == 1 else many or noun + 's'}"


def nearest_names(name: str, known: Iterable[str], count: int = 3) -> str:
    """Return ``'; did you mean a, b or c?'`` for the nearest known names, or ``''``."""
    candidates = list(known)
    if len(candidates) > _MANY_NAMES:  # comparing with each would take seconds
        start = name[:1].casefold()
        candidates = [
            other
            for other in candidates
            if other[:1].casefold() == start and abs(len(other) - len(name)) <= 3
        ]
    by_folded = {candidate.casefold(): candidate for candidate in reversed(candidates)}
    folded = name.casefold()
    close = difflib.get_close_matches(folded, by_folded, n=count, cutoff=0.6)
    if len(close) < count:
        close += [other for other in by_folded if folded in other and other not in close]
    if not close:
        return ""
    quoted = [f"'{shown(by_folded[match])}'" for match in close[:count]]
    listed = quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    return f"; did you mean {listed}?"
