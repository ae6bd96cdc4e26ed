"""How many tokens a prompt has for a server, before it is sent."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from outdraft.errors import BackendError
from outdraft.loadgen.endpoint import Endpoint, make_requests
from outdraft.loadgen.fleet import run_load
from outdraft.workload.lengths import Count
from outdraft.workload.plan import salted
from outdraft.workload.prompt import Message, Planned

_NUM_PROBES = 3
ESTIMATED = (
    "the server has no /tokenize: lengths of prompts are estimated from the letters of a token in "
    "{} of them"
)


@dataclass(frozen=True, slots=True)
class TokenCounts:
    count: Count  # with all that the server adds: a template, a first token
    note: str = ""  # where they are estimated


def token_counts(endpoint: Endpoint, plan: Sequence[Planned]) -> TokenCounts:
    """By the server's own page, else by what it counted in a few prompts. Those are sent, for one
    token each: what a server adds to a text is known from there."""
    probes = [_as_text(salted(each, "length")) for each in plan[:_NUM_PROBES]]
    is_exact = endpoint.server.count_tokens(probes[0].prompt.text, endpoint.model) is not None
    counted = _ask(endpoint, probes[:1] if is_exact else probes)
    if not is_exact:
        return TokenCounts(_by_letters(counted), ESTIMATED.format(len(counted)))
    text, num_tokens = counted[0]
    own = endpoint.server.count_tokens(text, endpoint.model)
    num_added = num_tokens - (own or 0)

    @lru_cache(maxsize=1 << 16)
    def count(text: str) -> int:
        if not text:
            return num_added
        found = endpoint.server.count_tokens(text, endpoint.model)
        if found is None:
            raise BackendError(f"{endpoint.url}/tokenize does not answer any more")
        return found + num_added

    return TokenCounts(count)


def _ask(endpoint: Endpoint, probes: Sequence[Planned]) -> list[tuple[str, int]]:
    """Each text with its tokens, as the server counts them."""
    run = run_load(endpoint, make_requests(probes, is_warmup=True), concurrency=1)
    failed = [each.error for each in run.records if each.prompt_tokens is None]
    if failed or not run.records:
        raise BackendError(
            f"{endpoint.url}: the tokens of a prompt are not known ({(failed or ['stopped'])[0]}); "
            "leave --input-len out"
        )
    return [
        (probe.prompt.text, record.prompt_tokens or 0)
        for probe, record in zip(probes, run.records, strict=True)
    ]


def _by_letters(counted: Sequence[tuple[str, int]]) -> Count:
    """Tokens in proportion to letters, but for what a server adds, which is left out: it is small,
    and texts of about the same length do not tell it apart."""
    share = sum(num for _, num in counted) / sum(len(text) for text, _ in counted)
    return lambda text: round(share * len(text))


def _as_text(planned: Planned) -> Planned:
    prompt = replace(planned.prompt, messages=(Message("user", planned.prompt.text),))
    return replace(planned, prompt=prompt, max_tokens=1)
