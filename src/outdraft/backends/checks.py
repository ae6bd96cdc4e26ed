"""Whether an engine can do what is asked of it, and known ways in which it would disappoint."""

import tomllib
from pathlib import Path

from outdraft.backends.backend import Backend, Serving, Traffic
from outdraft.catalog import engine_model_name, local_path
from outdraft.errors import OptionError
from outdraft.modelspec.head import check_draft_kind, is_packed
from outdraft.speculation import METHODS, RULES, WITH_DRAFT, Speculation

MTP_NOTE = (
    "the target's own layers for multi-token prediction propose: its checkpoint must have them "
    "(num_nextn_predict_layers or mtp_num_hidden_layers in config.json)"
)
_HINTS = tomllib.loads(Path(__file__).with_name("hints.toml").read_text(encoding="utf-8"))


def check_supported(backend: Backend, serving: Serving, speculation: Speculation) -> None:
    """OptionError for a setting that the engine lacks, with those that it has."""
    supported, method = backend.capabilities(), speculation.method
    if serving.hosts > 1 and not supported.has_clusters:
        raise OptionError(
            f"{backend.title} runs on one host, got {serving.hosts}; use vllm or sglang for more"
        )
    if speculation.is_off:
        return
    rules = supported.rules_of(method)
    checks = [
        ("method", method, [each for each in METHODS if each in supported.methods], ""),
        ("rule", speculation.rule, [each for each in RULES if each in rules], f" for {method}"),
    ]
    if method in WITH_DRAFT:
        quantizations = sorted(supported.draft_quantizations)
        checks.append(("draft quantization", speculation.quantization, quantizations, ""))
    for what, value, valid, where in checks:
        if value not in valid:
            hint = hint_for(backend, value) or hint_for(backend, what)
            raise OptionError(
                f"{backend.title} has no {what} {value!r}{where}; valid: {', '.join(valid)}"
                f"{hint and f'; {hint}'}"
            )
    if method in WITH_DRAFT and speculation.draft is not None:
        check_draft_kind(method, local_path(speculation.draft), speculation.draft)
    if speculation.schedule and method not in supported.schedule_methods:
        hint = hint_for(backend, "schedule")
        raise OptionError(
            f"{backend.title} {backend.installation.version} has no draft length by load for "
            f"{method}; leave the schedule out{hint and f' ({hint})'}"
        )


def hint_for(backend: Backend, lacking: str) -> str:
    """What to do about what this engine lacks; empty where there is no advice."""
    return str(_HINTS.get(backend.name, {}).get(lacking, ""))


def preflight(
    backend: Backend, serving: Serving, speculation: Speculation, traffic: Traffic
) -> tuple[str, ...]:
    """Warnings before the start: what is known to fail or to disappoint."""
    warnings = []
    limit = serving.max_model_len
    if limit is not None and traffic.longest > limit:
        warnings.append(
            f"the longest request has {traffic.longest} tokens, max_model_len is {limit}: such "
            "requests are refused"
        )
    slots = serving.max_num_seqs or backend.capabilities().default_num_seqs
    if slots is not None and traffic.concurrency > slots:
        warnings.append(
            f"{traffic.concurrency} requests at a time, but {backend.title} runs {slots}: the "
            "others wait; raise max_num_seqs"
        )
    return (*warnings, *backend.warnings(serving, speculation, traffic))


def folder_name(name: str, notes: list[str]) -> str:
    """A model's name for engines that read ordinary folders. `notes` says where a name of the
    catalog became another one."""
    if is_packed(local_path(name)):
        raise OptionError(
            f"the head {name} is stored in blocks, which only outdraft reads; run "
            f"`outdraft export {name} --out DIR` and name that folder"
        )
    return engine_model_name(name, notes)
