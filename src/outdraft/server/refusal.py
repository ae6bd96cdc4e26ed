"""Errors as OpenAI's clients expect them: a status, and a body that names the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Refusal(Exception):
    """An answer that is an error. `param` is the field that is wrong, if one is."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after  # seconds

    @property
    def body(self) -> dict[str, Any]:
        return error_body(self.status, self.message, param=self.param, code=self.code)

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


def shutting_down() -> Refusal:
    return Refusal(503, "the server is shutting down", code="shutting_down", retry_after=5)


_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def error_body(
    status: int, message: str, *, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def from_validation(errors: Sequence[Mapping[str, Any]]) -> Refusal:
    """One refusal for what pydantic found, told by the error that is most to the point."""
    # A union reports what is wrong with each of its members. One that was not of the wrong type
    # altogether was meant, and of these the deepest got furthest.
    error = max(errors, key=lambda each: (not each["type"].endswith("_type"), len(each["loc"])))
    path = [str(part) for part in error["loc"] if part != "body"]
    field = path[0] if path else "body"
    if error["type"] == "json_invalid":
        reason = error.get("ctx", {}).get("error", "")
        return Refusal(400, f"the body is not JSON: {reason}", param="body", code="invalid_json")
    if error["type"] == "extra_forbidden":
        name = ".".join(path)
        return Refusal(400, f"unknown field {name}", param=name, code="unknown_field")
    if not path and isinstance(error.get("input"), bytes):
        words = "the body is not taken as JSON without the header Content-Type: application/json"
        return Refusal(400, words, param="body", code="not_json")
    seen = _shown(error.get("input"))
    return Refusal(400, f"{field}: {error['msg']}, got {seen}", param=field, code=error["type"])


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
