"""The HTTP application: which path does what."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from outdraft.engine.engine import Engine
from outdraft.server.answers import ChatAnswer, CompletionAnswer
from outdraft.server.body import StrictRoute
from outdraft.server.gate import Gate
from outdraft.server.generation import Form, Job
from outdraft.server.loop import EngineLoop
from outdraft.server.metrics import Metrics
from outdraft.server.prompts import chat_prompt, completion_prompts, tokens_of
from outdraft.server.protocol import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    StreamOptions,
    TokenizeRequest,
)
from outdraft.server.refusal import Refusal, error_body, from_validation, shutting_down
from outdraft.version import __version__

MAX_BODY_BYTES = 4 << 20
_SMALL_BODY_BYTES = 16 << 10
_T = TypeVar("_T")


@dataclass(slots=True)
class Service:
    """What the routes need."""

    engine: Engine
    loop: EngineLoop
    metrics: Metrics
    model_names: tuple[str, ...]  # the first one is what answers carry
    always_metrics: bool = False  # with every answer, not only where a request asks
    is_draining: bool = False

    def check_model(self, name: str | None) -> str:
        if name is None or name in self.model_names:
            return name or self.model_names[0]
        raise Refusal(
            404,
            f"model {name!r} is not served here; this server has {', '.join(self.model_names)}",
            param="model",
            code="model_not_found",
        )

    def check_open(self) -> None:
        if self.is_draining:
            raise shutting_down()


def create_app(service: Service, *, api_key: str | None = None) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.loop.start(asyncio.get_running_loop())
        yield
        service.loop.stop()

    app = FastAPI(title="outdraft", version=__version__, lifespan=lifespan)
    app.router.route_class = StrictRoute
    app.add_middleware(Gate, api_key=api_key, max_body_bytes=MAX_BODY_BYTES)
    started = int(time.time())
    engine = service.engine

    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        return JSONResponse(error.body, error.status, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        refusal = from_validation(error.errors())
        return JSONResponse(refusal.body, refusal.status)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path}: {error.detail}"
        return JSONResponse(
            error_body(error.status_code, message), error.status_code, error.headers
        )

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        # Our own mistake, on stderr in full; the client learns that it was not its own. uvicorn
        # ends the connection behind it and does not say so.
        body = error_body(500, f"internal error: {type(error).__name__}")
        return JSONResponse(body, 500, {"Connection": "close"})

    @app.get("/health")
    async def health() -> Response:
        if service.loop.failure is not None:
            raise Refusal(503, f"the engine stopped: {service.loop.failure}")
        service.check_open()
        return Response(status_code=200)

    @app.get("/version")
    async def version() -> dict[str, str]:
        return {"version": __version__}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(name) for name in service.model_names]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        return _model(service.check_model(name))

    def _model(name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": started,
            "owned_by": "outdraft",
            "root": service.model_names[0],
            "max_model_len": engine.max_context,
        }

    @app.post("/v1/completions")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        service.check_open()
        model = service.check_model(body.model)
        prompts = await aside(request, completion_prompts, body, engine)
        writes = body.max_tokens != 0
        answer = CompletionAnswer(
            engine.tokenizer,
            prompts=[prompt.tokens for prompt in prompts],
            n=body.n or 1,
            echo=bool(body.echo),
            writes=writes,
            with_token_ids=bool(body.return_token_ids),
        )
        job = Job(service.loop, prompts, answer, _form(body, model, writes=writes))
        return await job.respond(request)

    @app.post("/v1/chat/completions")
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        service.check_open()
        model = service.check_model(body.model)
        prompt = await aside(request, chat_prompt, body, engine)
        answer = ChatAnswer(engine.tokenizer, with_token_ids=bool(body.return_token_ids))
        job = Job(service.loop, [prompt], answer, _form(body, model))
        return await job.respond(request)

    def _form(body: CompletionRequest | ChatRequest, model: str, *, writes: bool = True) -> Form:
        options = body.stream_options or StreamOptions()
        with_usage = bool(options.include_usage)
        return Form(
            model=model,
            stream=bool(body.stream),
            writes=writes,
            with_usage=with_usage,
            with_running_usage=with_usage and bool(options.continuous_usage_stats),
            with_metrics=body.include_metrics or service.always_metrics,
            default_k=0 if engine.speculation.is_off else engine.speculation.k,
        )

    @app.post("/tokenize")
    async def tokenize(body: TokenizeRequest, request: Request) -> dict[str, Any]:
        service.check_model(body.model)
        tokens = await aside(request, tokens_of, body, engine)
        spelled = map(engine.tokenizer.token_text, tokens) if body.return_token_strs else None
        return {
            "count": len(tokens),
            "max_model_len": engine.max_context,
            "tokens": tokens,
            "token_strs": None if spelled is None else await aside(request, list, spelled),
        }

    @app.get("/tokenizer_info")
    async def tokenizer_info() -> dict[str, Any]:
        return engine.tokenizer.config()

    @app.post("/detokenize")
    async def detokenize(body: DetokenizeRequest) -> dict[str, str]:
        service.check_model(body.model)
        wrong = next((token for token in body.tokens if token >= engine.vocab_size), None)
        if wrong is not None:
            raise Refusal(
                400,
                f"tokens: {wrong} is outside the vocabulary of {engine.vocab_size}",
                param="tokens",
            )
        return {"prompt": engine.tokenizer.decode(body.tokens, skip_special=False)}

    return app


async def aside(request: Request, work: Callable[..., _T], *args: Any) -> _T:
    """Runs `work`, off the event loop where the request is so large that others would wait."""
    length = request.headers.get("content-length", "")  # nobody knows how long a chunked one is
    if length.isdecimal() and int(length) <= _SMALL_BODY_BYTES:
        return work(*args)
    return await asyncio.to_thread(work, *args)
