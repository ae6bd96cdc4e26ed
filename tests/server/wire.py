"""What the server's tests say over the wire, and what they hear."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPT = " the model of the draft and the model of the target and the model of"
MESSAGES = [{"role": "user", "content": PROMPT}]
FEW = {str(token): 20.0 for token in range(40, 48)}  # the letters F … M: a text that repeats itself

Body = dict[str, Any]


class Wire:
    """One client of one server."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self.client = httpx.Client(base_url=url, timeout=60, **options)

    def ask(self, path: str, **body: Any) -> Body:
        """The answer; with no prompt and no messages in the body, the usual ones."""
        answer = self.client.post(path, json=asked(path, body))
        assert answer.status_code == 200, answer.text
        heard: Body = answer.json()
        return heard

    def complete(self, prompt: Any = PROMPT, **body: Any) -> Body:
        return self.ask(COMPLETIONS, prompt=prompt, **body)

    def chat(self, messages: Any = MESSAGES, **body: Any) -> Body:
        return self.ask(CHAT, messages=messages, **body)

    def events(self, path: str, **body: Any) -> list[Body]:
        """A stream's events up to its [DONE], which has to be there."""
        answer = self.client.post(path, json=asked(path, {**body, "stream": True}))
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        return events_of(answer.text)

    def refused(self, path: str, status: int = 400, **body: Any) -> Body:
        return error_of(self.client.post(path, json=asked(path, body)), status)

    def metrics(self) -> Metrics:
        return Metrics(self.client.get("/metrics").text)


def asked(path: str, body: Body) -> Body:
    if path == COMPLETIONS:
        return {"prompt": PROMPT, **body}
    return {"messages": MESSAGES, **body} if path == CHAT else body


def events_of(text: str) -> list[Body]:
    events = [each.removeprefix("data: ") for each in text.split("\n\n") if each]
    assert events[-1] == "[DONE]"
    return [json.loads(each) for each in events[:-1]]


def error_of(answer: httpx.Response, status: int) -> Body:
    """The error of an answer, which has OpenAI's form whatever the status."""
    assert answer.status_code == status, answer.text
    [(name, error)] = answer.json().items()
    assert name == "error"
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    found: Body = error
    return found


def text_of(choice: Body) -> str:
    """Of a completion or of a chat, whole or a chunk."""
    if "text" in choice:
        return str(choice["text"])
    return str(choice.get("message", choice.get("delta", {})).get("content", ""))


def joined(events: Iterable[Body]) -> list[Body]:
    """The choices that a stream's chunks make together, in the form of the whole answer's."""
    choices: dict[int, Body] = {}
    for event in events:
        for chunk in event["choices"]:
            new = {"text": "", "token_ids": [], "logprobs": None, "finish_reason": None}
            choice = choices.setdefault(chunk["index"], new)
            assert choice["finish_reason"] is None, "nothing comes after a choice's end"
            choice["text"] += text_of(chunk)
            choice["token_ids"] += chunk.get("token_ids", [])
            choice["finish_reason"] = chunk["finish_reason"]
            if chunk["logprobs"] is not None:
                choice["logprobs"] = choice["logprobs"] or {name: [] for name in chunk["logprobs"]}
                for name, values in chunk["logprobs"].items():
                    choice["logprobs"][name] += values
    return [choices[index] for index in sorted(choices)]


def summary(choice: Body) -> Body:
    """What of a whole answer's choice a stream has to say as well."""
    kept = {name: choice[name] for name in ("logprobs", "finish_reason")}
    return {"text": text_of(choice), "token_ids": choice["token_ids"], **kept}


class Metrics:
    """One scrape."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        samples = [sample for family in self.families.values() for sample in family.samples]
        self.names = {sample.name for sample in samples}
        self._samples = samples

    def value(self, name: str, **labels: str) -> float:
        """The only sample of that name with these labels (and whatever others it has)."""
        [found] = [
            sample.value
            for sample in self._samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return found

    def by(self, name: str, label: str) -> dict[str, float]:
        return {s.labels[label]: s.value for s in self._samples if s.name == name}

    @property
    def is_idle(self) -> bool:
        """Nobody runs or waits, and no block is owned."""
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        return not any(self.value(f"vllm:{name}") for name in names)


def until(is_so: Callable[[], object], what: str) -> None:
    """Waits for what has to happen sooner or later; how long it takes is not the question."""
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.005)
