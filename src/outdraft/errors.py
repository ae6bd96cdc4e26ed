"""Every error outdraft raises on purpose.

A message is one line: what is wrong, the value seen, what to do about it.
The command line prints it as it is and exits with code 2.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class OutdraftError(Exception):
    """The root: anything a user can cause and can fix."""


class OptionError(OutdraftError):
    """A flag, key or value that cannot be used."""


class CatalogError(OutdraftError):
    """A model that cannot be found or fetched."""


class ModelError(OutdraftError):
    """Model files that are there but cannot be used."""


class CorruptFileError(ModelError):
    """A file that is cut short or does not hold what it should."""


class UnsupportedArchitectureError(ModelError):
    """A model family this engine does not implement."""


class PairingError(OutdraftError):
    """A draft that does not fit its target."""


class BackendError(OutdraftError):
    """An engine that is not installed, does not start, or has died."""


class CrowdedGpuError(BackendError):
    """An engine that does not start because others hold the memory of its GPU."""


class RequestError(OutdraftError):
    """A request the engine refuses: too long, impossible."""


def nearest_name(value: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The one name that begins so, else the one spelled most alike; None where none is near."""
    valid = list(names)
    longer = [name for name in valid if len(value) > 1 and name.startswith(value)]
    near = longer if len(longer) == 1 else get_close_matches(value, valid, 1, cutoff)
    return near[0] if near else None


def unknown_choice(what: str, value: object, valid: Iterable[str]) -> OptionError:
    """The one form of "unknown X" message: the value, the valid ones, the nearest."""
    names = list(valid)
    near = nearest_name(str(value), names)
    hint = f" (did you mean {near!r}?)" if near else ""
    return OptionError(f"unknown {what} {value!r}{hint}; valid: {', '.join(names)}")
