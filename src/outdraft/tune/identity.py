"""What a run measures and with what: options, prompts, files, versions, the machine.

A journal begins with it. Blocks of another model, version or machine say nothing about these.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from outdraft.backends.backend import Backend, Serving
from outdraft.catalog import model_digest
from outdraft.errors import OutdraftError
from outdraft.measure.machine import describe_machine
from outdraft.speculation import OFF, Speculation
from outdraft.tune.settings import RunSettings
from outdraft.version import __version__
from outdraft.workload.prompt import Prompt

# What `describe_machine` says, in the words of a message
_MACHINE = {
    "machine": "kind of machine",
    "cpu": "CPU",
    "cores": "number of cores",
    "memory_gib": "memory in GiB",
    "gpus": "list of GPUs",
}


def identify(
    settings: RunSettings,
    backend: Backend,
    prompts: Sequence[Prompt],
    arms: Iterable[Speculation],
    servers: Mapping[str, str] | None = None,  # of others, by their arms: what they say of it
) -> dict[str, Any]:
    """Everything under the words that a message has for it."""
    machine = describe_machine()
    # A file may change and keep its name.
    text = json.dumps([asdict(each) for each in prompts], sort_keys=True)
    return {
        **settings.measuring_options,
        "digest of the prompts": hashlib.sha256(text.encode()).hexdigest()[:16],
        **(_engine(backend, settings.serving, arms) if servers is None else _served(servers)),
        "version of outdraft": f"{__version__}, sources {source_digest()}",
        **{words: machine[key] for key, words in _MACHINE.items()},
    }


def source_digest(package: Path = Path(__file__).parents[1]) -> str:
    """Of the Python files of this package: a clone that was pulled keeps its version."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name, text = path.relative_to(package).as_posix(), path.read_bytes()
        digest.update(f"{name} {len(text)}\n".encode() + text)
    return digest.hexdigest()[:12]


def _served(servers: Mapping[str, str]) -> dict[str, str]:
    """Files that others loaded cannot be seen from here."""
    return {f"server of {name}": identity for name, identity in servers.items()}


def _engine(backend: Backend, serving: Serving, arms: Iterable[Speculation]) -> dict[str, str]:
    """Digests of the files that it will load, which need not be those that our engine would, and
    its version."""
    target, *_ = backend.launch(serving, OFF, port=0).models
    known = {"digest of the target's files": model_digest(target)}
    for arm in {arm.draft: arm for arm in arms if arm.draft is not None}.values():
        with suppress(OutdraftError):  # an arm that cannot be started says so when it is its turn
            draft = backend.launch(serving, arm, port=0).models[-1]
            known[f"digest of the files of draft {arm.draft}"] = model_digest(draft)
    version = f"{backend.title} {backend.installation.full_version}"
    return known | {"version of the engine": version}
