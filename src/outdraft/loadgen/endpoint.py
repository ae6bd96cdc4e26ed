"""Requests, the server they go to, and the body that is sent."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any
from urllib.parse import urlsplit

from outdraft.errors import OptionError
from outdraft.observe import RemoteServer
from outdraft.records import Record
from outdraft.workload.prompt import Message, Planned, Prompt

CHAT, COMPLETIONS = "chat", "completions"
# Each asks for the acceptance of an answer: our and vLLM's name, then SGLang's. One is enough.
ACCEPTANCE_FIELDS = ("include_metrics", "return_spec_tokens_details")
OURS = frozenset({"messages", "prompt", "stream", "stream_options", "model", "n"})


def optional_fields(*, stop_at_eos: bool) -> dict[str, Any]:
    """Body fields that improve a measurement if the server knows them: texts of equal length, and
    the acceptance of each. `stop_at_eos`: an answer ends where the model ends it."""
    equal_lengths = {} if stop_at_eos else {"ignore_eos": True}
    return {**equal_lengths, **dict.fromkeys(ACCEPTANCE_FIELDS, True)}


@dataclass(frozen=True, slots=True)
class Request:
    planned: Planned
    arm: str = ""
    block: int = 0
    index: int = 0  # within its block; negative: it leads to those that count
    is_warmup: bool = False
    is_filler: bool = False  # keeps a slot busy while others run; it is abandoned and not recorded
    turn: int = 0  # of its session

    @property
    def turns(self) -> list["Request"]:
        """This request and the later ones of its session, without what will be said until then."""
        later = enumerate(self.planned.then, 1)
        return [self, *(replace(self, planned=each, index=self.index + at, turn=self.turn + at)
                        for at, each in later)]  # fmt: skip

    def following(self, answer: str) -> "Request | None":
        """The next turn of its session, with all that was said before; None after the last."""
        if not self.planned.then:
            return None
        planned, *later = self.planned.then
        said = (*self.planned.prompt.messages, Message("assistant", answer))
        prompt = replace(planned.prompt, messages=(*said, *planned.prompt.messages))
        planned = replace(planned, prompt=prompt, then=tuple(later))
        return replace(self, planned=planned, index=self.index + 1, turn=self.turn + 1)

    def record(self, scheduled_ns: int, **fields: Any) -> Record:
        return Record(
            prompt_id=self.planned.prompt.id,
            category=self.planned.prompt.category,
            temperature=self.planned.temperature,
            arm=self.arm,
            block=self.block,
            index=self.index,
            scheduled_ns=scheduled_ns,
            is_warmup=self.is_warmup,
            turn=self.turn,
            **fields,
        )


def make_requests(
    plan: Sequence[Planned], *, arm: str = "", block: int = 0, is_warmup: bool = False
) -> list[Request]:
    places = accumulate((1 + len(each.then) for each in plan), initial=0)
    return [
        Request(each, arm, block, index, is_warmup)
        for index, each in zip(places, plan, strict=False)
    ]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server with OpenAI's API. Plain values: it is sent to client processes."""

    url: str  # with or without /v1
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict)  # body fields, always sent
    form: str = CHAT  # of requests
    extra_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    # Body fields that are no longer sent once the server has refused them by name.
    optional: Mapping[str, Any] = field(default_factory=lambda: optional_fields(stop_at_eos=False))

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OptionError(
                f"{self.url!r} is no URL of a server; write e.g. http://localhost:8000"
            )
        if self.api_key is not None and not self.api_key.isprintable():
            raise OptionError("the API key holds a line end or another control character; trim it")
        if fixed := OURS.intersection(self.extra):
            raise OptionError(
                f"{', '.join(sorted(fixed))} cannot be an extra field: it is set here already"
            )

    @property
    def answer_url(self) -> str:
        return f"{self.server.url}/v1/{'chat/' if self.form == CHAT else ''}completions"

    @property
    def server(self) -> RemoteServer:
        """To ask what it is and what it counts."""
        return RemoteServer(self.url, self.api_key, self.extra_headers)

    @property
    def headers(self) -> dict[str, str]:
        return {
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",  # a compressed stream arrives in lumps
            **self.server.headers,
        }

    def body(self, request: Request, optional: Collection[str]) -> bytes:
        """The JSON of `request`, with those optional fields that are named."""
        planned = request.planned
        fields: dict[str, Any] = {
            **self._prompt(planned.prompt),
            "max_tokens": planned.max_tokens,
            "temperature": planned.temperature,
            "seed": planned.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.extra,
        }
        if self.model is not None:
            fields["model"] = self.model
        wanted = set(optional) - set(self.extra)
        fields |= {name: value for name, value in self.optional.items() if name in wanted}
        return json.dumps(fields).encode()

    def _prompt(self, prompt: Prompt) -> dict[str, Any]:
        if self.form == COMPLETIONS:  # no template, no roles: one text
            return {"prompt": prompt.text}
        return {"messages": [{"role": each.role, "content": each.content}
                             for each in prompt.messages]}  # fmt: skip


def refused_fields(answer: bytes, fields: Collection[str]) -> set[str]:
    """Those of `fields` that a 400 or 422 answer names, in OpenAI's form or FastAPI's.

    The whole answer is searched only if it has neither form: some servers echo the request.
    """
    try:
        payload = json.loads(answer)
    except (ValueError, RecursionError):
        return _named(answer.decode("utf-8", "replace"), fields)
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    if not isinstance(error, dict):
        return _named(str(error), fields)
    if named := _named(str(error.get("param")), fields):
        return named
    details = error.get("detail")
    if isinstance(details, list):
        where = [each.get("loc") for each in details if isinstance(each, dict)]
        return _named(json.dumps(where), fields)
    return _named(str(error.get("message") or details or ""), fields)


def _named(text: str, fields: Collection[str]) -> set[str]:
    words = set(re.findall(r"\w+", text))
    return {name for name in fields if name in words}
