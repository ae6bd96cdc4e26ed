"""The HTTP application: its paths, and what each of them does."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.responses import Response

from outdraft.server import admin, protocol
from outdraft.server.answers import ChatAnswer, CompletionAnswer
from outdraft.server.body import StrictRoute
from outdraft.server.gate import Gate
from outdraft.server.prompts import chat_prompt, completion_prompts, tokens_of
from outdraft.server.protocol import FIELDS, ChatRequest, CompletionRequest
from outdraft.server.refusal import Refusal, from_validation
from outdraft.server.responder import Responder
from outdraft.server.service import Service
from outdraft.version import __version__

MAX_BODY_BYTES = 4 << 20
_SMALL_BODY_BYTES = 16 << 10
_T = TypeVar("_T")


def create_app(service: Service, *, api_key: str | None, admin_key: str | None = None) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.loop.start(asyncio.get_running_loop())
        yield
        service.loop.stop()

    app = FastAPI(title="outdraft", version=__version__, lifespan=lifespan)
    app.router.route_class = StrictRoute
    app.add_middleware(Gate, api_key=api_key, admin_key=admin_key, max_body_bytes=MAX_BODY_BYTES)
    started = int(time.time())
    engine = service.engine

    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        return error.response

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return from_validation(error.errors(), FIELDS).response

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path}: {error.detail}"
        return Refusal(error.status_code, message, headers=dict(error.headers or {})).response

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        # A bug of ours: the traceback is on stderr. uvicorn closes the connection afterwards
        # without saying so.
        words = f"internal error: {type(error).__name__}"
        return Refusal(500, words, headers={"Connection": "close"}).response

    @app.get("/health")
    async def health() -> Response:
        if service.loop.failure is not None:
            raise Refusal(503, f"the engine stopped: {service.loop.failure}")
        service.check_open()
        return Response(status_code=200)

    @app.get("/version")
    async def version() -> dict[str, str]:
        return {"version": __version__, "method": engine.speculation.method}

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
        service.check_model(body.model)
        prompts = await offload(request, completion_prompts, body, engine)
        answer = CompletionAnswer(engine.tokenizer, body, [prompt.tokens for prompt in prompts])
        return await Responder(service, prompts, answer, body).respond(request)

    @app.post("/v1/chat/completions")
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        service.check_open()
        service.check_model(body.model)
        prompt = await offload(request, chat_prompt, body, engine)
        answer = ChatAnswer(engine.tokenizer, body)
        return await Responder(service, [prompt], answer, body).respond(request)

    @app.post("/tokenize")
    async def tokenize(body: protocol.TokenizeRequest, request: Request) -> dict[str, Any]:
        service.check_model(body.model)
        tokens = await offload(request, tokens_of, body, engine)
        spelled = map(engine.tokenizer.token_text, tokens) if body.return_token_strs else None
        return {
            "count": len(tokens),
            "max_model_len": engine.max_context,
            "tokens": tokens,
            "token_strs": None if spelled is None else await offload(request, list, spelled),
        }

    @app.get("/tokenizer_info")
    async def tokenizer_info() -> dict[str, Any]:
        return engine.tokenizer.config()

    @app.post("/detokenize")
    async def detokenize(body: protocol.DetokenizeRequest) -> dict[str, str]:
        service.check_model(body.model)
        wrong = next((token for token in body.tokens if token >= engine.vocab_size), None)
        if wrong is not None:
            words = f"tokens: {wrong} is outside the vocabulary of {engine.vocab_size}"
            raise Refusal(400, words, param="tokens")
        return {"prompt": engine.tokenizer.decode(body.tokens, skip_special=False)}

    if service.can_forget:

        @app.post("/forget")
        async def forget() -> Response:
            service.check_open()
            await service.loop.forget()
            return Response(status_code=200)

    if admin_key is not None:

        @app.get("/admin/speculation")
        async def shown_limits() -> dict[str, Any]:
            return admin.shown(engine, service.loop.canary_share)

        @app.post("/admin/speculation")
        async def set_limits(body: protocol.DraftLimits) -> dict[str, Any]:
            service.check_open()
            engine.limits = admin.with_limits(body, engine.speculation, engine.limits)
            service.loop.renew_canary(body.canary_share)
            return admin.shown(engine, service.loop.canary_share)

    return app


async def offload(request: Request, work: Callable[..., _T], *args: Any) -> _T:
    """Runs `work`, in another thread if the request is so large that others would wait for it."""
    length = request.headers.get("content-length", "")  # unknown for a chunked request
    if length.isdecimal() and int(length) <= _SMALL_BODY_BYTES:
        return work(*args)
    return await asyncio.to_thread(work, *args)
