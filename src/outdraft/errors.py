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


class RequestError(OutdraftError):
    """A request the engine refuses: too long, impossible."""


def unknown_choice(what: str, value: object, valid: Iterable[str]) -> OptionError:
    """The one form of "unknown X" message: the value, the valid ones, the nearest."""
    names = list(valid)
    near = get_close_matches(str(value), names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return OptionError(f"unknown {what} {value!r}{hint}; valid: {', '.join(names)}")
