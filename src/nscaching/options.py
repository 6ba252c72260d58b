"""Options as data: one declaration gives the default, the check, the help and the flag.

A package declares its options as a dataclass whose fields an :class:`OptionGroup` makes;
:class:`nscaching.training.TrainConfig` inherits them all. The configuration file, the keyword
arguments in Python and the flags of the command line are therefore the same thing.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import operator
from collections.abc import Collection, Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import yaml

from nscaching.errors import UserError, nearest_names, shown

#: Options that had another name in 0.1.0, whose configurations are still read.
_RENAMED = {"compact": "int8"}

#: How the bounds of an option read, and when a value breaks them.
_BOUNDS = {
    "low": ("at least", operator.lt),
    "above": ("above", operator.le),
    "high": ("at most", operator.gt),
    "below": ("below", operator.ge),
}

T = TypeVar("T")
OptionsT = TypeVar("OptionsT", bound="Options")


class OptionGroup:
    """Declares the fields of options that stand together in the help of a command."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(
        self,
        default: T,
        help: str,
        *,
        choices: Collection[str] = (),
        low: float | None = None,
        above: float | None = None,
        high: float | None = None,
        below: float | None = None,
        infinite: bool = False,
    ) -> T:
        """Declare one option: its default, its sentence, and the values it may take.

        ``low`` and ``high`` are inclusive bounds, ``above`` and ``below`` exclusive ones;
        ``infinite`` lets a float be ``inf``. ``choices`` is read when a value is checked: a
        registry that fills later may be given.
        """
        bounds = {"low": low, "above": above, "high": high, "below": below, "infinite": infinite}
        metadata = {"help": help, "group": self.name, "choices": choices, **bounds}
        return dataclasses.field(default=default, metadata=metadata)


class Options:
    """Base of the option dataclasses: building from a mapping, and checking."""

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all options, in order of declaration."""
        return [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    @classmethod
    def from_mapping(cls: type[OptionsT], values: Mapping[str, Any], source: str) -> OptionsT:
        """Build from plain values; ``source`` says in errors where they came from."""
        known = cls.names()
        values = _as_named_now(values)
        for name in values:
            if name not in known:
                every = shown(", ".join(known), 400)
                hint = nearest_names(str(name), known) or f". The options are: {every}."
                raise UserError(f"{source}: unknown option '{shown(name)}'{hint}")
        built = cls(**values)
        built.check(source)
        return built

    def check(self, source: str = "options") -> None:
        """Raise :class:`UserError` for a value of the wrong type or out of range."""
        hints = get_type_hints(type(self))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = _checked(field, hints[field.name], getattr(self, field.name), source)
            object.__setattr__(self, field.name, value)

    def as_dict(self) -> dict[str, Any]:
        """Return the options as plain values, in order of declaration."""
        values = ((name, getattr(self, name)) for name in self.names())
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values}

    def as_yaml(self) -> str:
        """Return the options as YAML; :meth:`from_mapping` takes back what it says."""
        text: str = yaml.safe_dump(self.as_dict(), sort_keys=False, allow_unicode=True)
        return text


def _as_named_now(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of 0.1.0 under their names now; ``pool`` was yes or no, to N2 entities."""
    named = {_RENAMED.get(name, name): value for name, value in values.items()}
    if isinstance(named.get("pool"), bool):
        named["pool"] = named.get("candidates", 50) if named["pool"] else 0
    return named


def _checked(field: dataclasses.Field[Any], hint: Any, value: Any, source: str) -> Any:
    """Return the value in its declared type, or raise with a sentence about it."""
    if value is None and type(None) in get_args(hint):
        return None
    if get_origin(hint) is tuple:  # an option that may be given several times
        given = value if isinstance(value, list | tuple) else [value]
        kind = get_args(hint)[0]
        return tuple(_converted(field.name, kind, each, source) for each in given)
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
    value = _converted(field.name, kinds[0], value, source)
    rules = field.metadata
    if rules["choices"] and value not in rules["choices"]:
        hint_text = nearest_names(str(value), rules["choices"]) or "."
        raise UserError(
            f"{source}: {field.name} must be one of {', '.join(rules['choices'])}, "
            f"not {_told(value)}{hint_text}"
        )
    allowed_infinity = rules["infinite"] and value == math.inf
    if isinstance(value, float) and not math.isfinite(value) and not allowed_infinity:
        raise UserError(f"{source}: {field.name} must be a finite number, not {value}.")
    if isinstance(value, int | float) and not isinstance(value, bool):
        for rule, (words, breaks) in _BOUNDS.items():
            if (bound := rules[rule]) is not None and breaks(value, bound):
                raise UserError(
                    f"{source}: {field.name} must be {words} {bound:.10g}, not {_told(value)}."
                )
    return value


def _converted(name: str, kind: type, value: Any, source: str) -> Any:
    """Convert between the number types that YAML and Python mix up; refuse the rest."""
    if isinstance(value, numbers.Real) and not isinstance(value, int | float):  # numpy's numbers
        value = int(value) if isinstance(value, numbers.Integral) else float(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise UserError(f"{source}: {name} is too large a number.") from None
    if kind is float and isinstance(value, str):  # YAML 1.1 reads 1e-3 as a string
        try:
            return float(value)
        except ValueError:
            pass
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        what = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise UserError(f"{source}: {name} must be {what.get(kind, kind)}, not {_told(value)}.")
    if isinstance(value, int) and value.bit_length() > 4096:  # Python cannot write it down
        raise UserError(f"{source}: {name} is too large a number.")
    return value


def _told(value: Any) -> str:
    """Return a value as a message may show it, whatever it is: cut, and on one line."""
    try:
        return shown(repr(value))
    except (ValueError, RecursionError):  # Python writes no number of thousands of digits
        return f"a value of type {type(value).__name__} that is too large to show"
