"""Answers one request: submits its prompts, then sends one body or a stream of events."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from outdraft.engine.outputs import Generation
from outdraft.server.answers import Answer, usage
from outdraft.server.loop import EncodedPrompt, EngineLoop, Reply
from outdraft.server.protocol import ChatRequest, CompletionRequest
from outdraft.server.refusal import Refusal
from outdraft.server.request_metrics import request_metrics
from outdraft.server.service import Service

_SLOW_READER_S = 120.0  # a single write that takes longer ends the connection
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_T = TypeVar("_T")


@dataclass(eq=False)
class Responder:
    service: Service
    prompts: Sequence[EncodedPrompt]
    answer: Answer
    body: CompletionRequest | ChatRequest

    def __post_init__(self) -> None:
        self._num_prompt_tokens = sum(len(prompt.tokens) for prompt in self.prompts)
        self._head = {
            "id": f"{self.answer.id_prefix}-{uuid.uuid4().hex}",
            "object": self.answer.chunk_object if self.body.stream else self.answer.object,
            "created": int(time.time()),
            "model": self.service.check_model(self.body.model),
        }

    async def respond(self, request: Request) -> Response:
        loop = self.service.loop
        reply = loop.submit(self.prompts)
        if self.body.stream:
            return EventStream(loop, reply, self._events(reply))
        try:
            done = await _unless_gone(self._collect(reply), request.receive)
        finally:
            loop.close(reply)
        if done is None:
            return Response(status_code=499)  # the client has left: this is for the log
        choices = [self.answer.choice(index, each) for index, each in sorted(done.items())]
        body = {**self._head, "choices": choices, "usage": self._usage(done)}
        return JSONResponse(body | self._metrics(done))

    async def _collect(self, reply: Reply) -> dict[int, Generation]:
        return {
            index: update.generation
            async for batch in reply.updates()
            for index, update in batch
            if update.generation is not None
        }

    async def _events(self, reply: Reply) -> AsyncIterator[bytes]:
        num_choices = sum(prompt.params.n for prompt in self.prompts)
        done: dict[int, Generation] = {}
        opened: set[int] = set()
        num_written = 0
        try:
            async for batch in reply.updates():
                events = []
                for index, update in batch:
                    opening = None if index in opened else self.answer.opening(index)
                    opened.add(index)
                    if opening is not None:
                        events.append(self._event([opening], self._running_usage(num_written)))
                    num_written += len(update.tokens) if self.body.writes else 0
                    more = self._running_usage(num_written)
                    if update.generation is not None:
                        done[index] = update.generation
                        if len(done) == num_choices and not self.body.with_usage:
                            more |= self._metrics(done)
                    events.append(self._event([self.answer.chunk(index, update)], more))
                yield b"".join(events)
            if self.body.with_usage:
                yield self._event([], {"usage": self._usage(done)} | self._metrics(done))
        except Refusal as refusal:  # the headers are sent: the error has to be an event
            yield _encode(refusal.body)
        yield b"data: [DONE]\n\n"

    def _event(self, choices: list[dict[str, Any]], more: dict[str, Any]) -> bytes:
        return _encode({**self._head, "choices": choices, **more})

    def _running_usage(self, num_written: int) -> dict[str, Any]:
        if not self.body.with_usage:
            return {}
        if not self.body.with_running_usage:
            return {"usage": None}
        return {"usage": usage(self._num_prompt_tokens, 0, num_written)}

    def _usage(self, done: dict[int, Generation]) -> dict[str, Any]:
        n = self.prompts[0].params.n
        cached = sum(done[index].num_cached_tokens for index in range(0, len(done), n))
        written = sum(len(each.tokens) for each in done.values()) if self.body.writes else 0
        return usage(self._num_prompt_tokens, cached, written)

    def _metrics(self, done: dict[int, Generation]) -> dict[str, Any]:
        if not (self.body.include_metrics or self.service.always_metrics):
            return {}
        speculation, k = self.service.engine.speculation, self.prompts[0].k
        if k is None:  # the request names none
            k = 0 if speculation.is_off else speculation.k
        return {"metrics": request_metrics([*done.values()], k)}


class EventStream(Response):
    """Server-sent events. However it ends, even before it began, the reply is closed."""

    media_type = "text/event-stream"

    def __init__(self, loop: EngineLoop, reply: Reply, events: AsyncIterator[bytes]) -> None:
        super().__init__(headers=_STREAM_HEADERS)
        del self.headers["content-length"]
        self._loop = loop
        self._reply = reply
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await _unless_gone(self._send(send), receive)
        except (OSError, TimeoutError):
            pass  # the client has left, or has stopped reading
        finally:
            self._loop.close(self._reply)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for event in self._events:
            async with asyncio.timeout(_SLOW_READER_S):
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _encode(event: dict[str, Any]) -> bytes:
    text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode() + b"\n\n"


async def _unless_gone(work: Coroutine[Any, Any, _T], receive: Receive) -> _T | None:
    """The result of `work`; None, and no more work, when the client leaves first."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        leaving.cancel()


async def _left(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
