"""Saved runs, read again."""

from __future__ import annotations

import json
from pathlib import Path

from outdraft.errors import OptionError
from outdraft.records import Trial, trial_from_json


def read_trial(path: Path) -> Trial:
    try:
        return trial_from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise OptionError(f"{path} is no saved run ({error}); make one with bench --out") from None
