"""One request to its end: submit, then one answer or a stream of events."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from outdraft.engine.outputs import Generation
from outdraft.server.answers import Answer, usage
from outdraft.server.loop import EngineLoop, Prompt, Reply
from outdraft.server.refusal import Refusal
from outdraft.server.request_metrics import request_metrics

_SLOW_READER_S = 120.0  # a single write that takes longer is given up
_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


@dataclass(frozen=True, slots=True)
class Form:
    """How the answer is wanted."""

    model: str
    stream: bool
    writes: bool  # False: max_tokens is 0
    with_usage: bool  # at a stream's end
    with_running_usage: bool  # in every chunk
    with_metrics: bool
    default_k: int  # the server's draft length


class Job:
    """A request that has been understood."""

    def __init__(
        self, loop: EngineLoop, prompts: Sequence[Prompt], answer: Answer, form: Form
    ) -> None:
        self._loop = loop
        self._prompts = prompts
        self._answer = answer
        self._form = form
        self._num_choices = sum(prompt.params.n for prompt in prompts)
        self._num_prompt_tokens = sum(len(prompt.tokens) for prompt in prompts)
        self._head = {
            "id": f"{answer.id_prefix}-{uuid.uuid4().hex}",
            "object": answer.object,
            "created": int(time.time()),
            "model": form.model,
        }

    async def respond(self, request: Request) -> Response:
        reply = self._loop.submit(self._prompts)
        if self._form.stream:
            return EventStream(self._loop, reply, self._events(reply))
        try:
            return await self._whole(request, reply)
        finally:
            self._loop.close(reply)

    # ------------------------------------------------------------ in one piece

    async def _whole(self, request: Request, reply: Reply) -> Response:
        collecting = asyncio.ensure_future(self._collect(reply))
        leaving = asyncio.ensure_future(_left(request.receive))
        try:
            await asyncio.wait((collecting, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not collecting.done():
                return Response(status_code=499)  # nobody is there to read it
            done = collecting.result()
        finally:
            collecting.cancel()
            leaving.cancel()
        choices = [self._answer.choice(index, each) for index, each in sorted(done.items())]
        body = {**self._head, "choices": choices, "usage": self._usage(done)}
        return JSONResponse(body | self._metrics(done))

    async def _collect(self, reply: Reply) -> dict[int, Generation]:
        done: dict[int, Generation] = {}
        async for batch in reply.updates():
            for index, update in batch:
                if update.generation is not None:
                    done[index] = update.generation
        return done

    # ------------------------------------------------------------ as it comes

    async def _events(self, reply: Reply) -> AsyncIterator[bytes]:
        head = {**self._head, "object": self._answer.chunk_object}
        form = self._form
        done: dict[int, Generation] = {}
        opened: set[int] = set()
        num_written = 0
        try:
            async for batch in reply.updates():
                events = []
                for index, update in batch:
                    opening = None if index in opened else self._answer.opening(index)
                    opened.add(index)
                    if opening is not None:
                        beginning = {**head, "choices": [opening]}
                        events.append(_event(beginning | self._usage_so_far(num_written)))
                    num_written += len(update.tokens) if form.writes else 0
                    chunk: dict[str, Any] = {
                        **head,
                        "choices": [self._answer.chunk(index, update)],
                        **self._usage_so_far(num_written),
                    }
                    if update.generation is not None:
                        done[index] = update.generation
                        if len(done) == self._num_choices and not form.with_usage:
                            chunk |= self._metrics(done)
                    events.append(_event(chunk))
                yield b"".join(events)
            if form.with_usage:
                closing = {**head, "choices": [], "usage": self._usage(done)}
                yield _event(closing | self._metrics(done))
        except Refusal as refusal:  # the headers are gone: an event has to say it
            yield _event(refusal.body)
        yield b"data: [DONE]\n\n"

    def _usage_so_far(self, num_written: int) -> dict[str, Any]:
        if not self._form.with_usage:
            return {}
        running = usage(self._num_prompt_tokens, 0, num_written)
        return {"usage": running if self._form.with_running_usage else None}

    # ------------------------------------------------------------ both

    def _metrics(self, done: dict[int, Generation]) -> dict[str, Any]:
        if not self._form.with_metrics:
            return {}
        asked = self._prompts[0].k
        k = self._form.default_k if asked is None else asked
        return {"metrics": request_metrics([*done.values()], k)}

    def _usage(self, done: dict[int, Generation]) -> dict[str, Any]:
        n = self._prompts[0].params.n
        cached = sum(done[index].num_cached_tokens for index in range(0, len(done), n))
        written = sum(len(each.tokens) for each in done.values()) if self._form.writes else 0
        return usage(self._num_prompt_tokens, cached, written)


class EventStream(Response):
    """Server-sent events. Whichever way it ends, even before it began, the reply is closed."""

    media_type = "text/event-stream"

    def __init__(self, loop: EngineLoop, reply: Reply, events: AsyncIterator[bytes]) -> None:
        super().__init__(headers=_STREAM_HEADERS)
        del self.headers["content-length"]
        self._loop = loop
        self._reply = reply
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        except (OSError, TimeoutError):
            pass  # it left, or has stopped reading
        finally:
            sending.cancel()
            leaving.cancel()
            self._loop.close(self._reply)

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async for event in self._events:
            async with asyncio.timeout(_SLOW_READER_S):
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _event(body: dict[str, Any]) -> bytes:
    return (
        b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
    )


async def _left(receive: Receive) -> None:
    """Returns when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
