"""Writes the report to disk, also again from `results.json`."""

import json
from pathlib import Path

from outdraft.errors import OptionError
from outdraft.report.page import page
from outdraft.report.sections.verdict import FILES
from outdraft.tune.results import Results, results_from_json
from outdraft.whole_file import write_text

RESULTS, REPORT = "results.json", "report.html"
_REMEDY = "run `outdraft tune --out DIR` first"


def write_report(results: Results, path: Path) -> None:
    """Links to the files that are beside it already: write those first."""
    beside = [name for name in FILES if (path.parent / name).is_file()]
    write_text(path, page(results, beside))


def rebuild_report(folder: Path, out: Path | None = None) -> tuple[Path, Results]:
    """From the folder's results; if they cannot be read, an old report stays as it was."""
    path = folder / RESULTS
    results = read_results(path)
    out = folder / REPORT if out is None else out
    try:
        write_report(results, out)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise _damaged(path, error) from error
    return out, results


def read_results(path: Path) -> Results:
    try:
        return results_from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}; {_REMEDY}") from error
    except OptionError as error:
        raise OptionError(f"{path} holds {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> OptionError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return OptionError(f"{path} is damaged ({reason}); {_REMEDY}")
