"""Errors as OpenAI's clients expect them: a status, and a body that names the field."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from starlette.responses import JSONResponse

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


@dataclass(eq=False)
class Refusal(Exception):
    """An answer that is an error."""

    status: int
    message: str
    _: KW_ONLY
    param: str | None = None  # the field that is wrong, if one is
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> dict[str, Any]:
        other = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = _TYPES.get(self.status, other)
        values = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": values}

    @property
    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status, self.headers)

    def __str__(self) -> str:
        return self.message


def shutting_down() -> Refusal:
    words = "the server is shutting down"
    return Refusal(503, words, code="shutting_down", headers={"Retry-After": "5"})


def from_validation(errors: Sequence[Mapping[str, Any]]) -> Refusal:
    """One refusal for pydantic's errors, with the message of the most relevant one."""
    # A union reports an error for each of its members. Members of the wrong type were not meant;
    # of the others, the one with the deepest error matched best.
    error = max(errors, key=lambda each: (not each["type"].endswith("_type"), len(each["loc"])))
    path = [str(part) for part in error["loc"] if part != "body"]
    name = path[0] if path else "body"
    if error["type"] == "json_invalid":
        reason = error.get("ctx", {}).get("error", "")
        return Refusal(400, f"the body is not JSON: {reason}", param="body", code="invalid_json")
    if error["type"] == "extra_forbidden":
        full = ".".join(path)
        return Refusal(400, f"unknown field {full}", param=full, code="unknown_field")
    if not path and isinstance(error.get("input"), bytes):
        words = "the body is not taken as JSON without the header Content-Type: application/json"
        return Refusal(400, words, param="body", code="not_json")
    seen = repr(error.get("input"))
    seen = seen if len(seen) <= 80 else f"{seen[:77]}..."
    return Refusal(400, f"{name}: {error['msg']}, got {seen}", param=name, code=error["type"])
