"""Errors as OpenAI's clients expect them: a status, and a body that names the field."""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse

from outdraft.errors import nearest_name

# Fields that other servers have and this one lacks, and what to do instead
UNSERVED: Mapping[str, str] = tomllib.loads(
    Path(__file__).with_name("unserved.toml").read_text(encoding="utf-8")
)
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


def from_validation(errors: Sequence[Mapping[str, Any]], known: Collection[str] = ()) -> Refusal:
    """One refusal for pydantic's errors, with the message of the most relevant one. `known`:
    fields that a misspelled one may have been."""
    # A union reports an error for each of its members. Members of the wrong type were not meant;
    # of the others, the one with the deepest error matched best.
    error = max(errors, key=lambda each: (not each["type"].endswith("_type"), len(each["loc"])))
    path = [str(part) for part in error["loc"] if part != "body"]
    name = path[0] if path else "body"
    if error["type"] == "json_invalid":
        reason = error.get("ctx", {}).get("error", "")
        return Refusal(400, f"the body is not JSON: {reason}", param="body", code="invalid_json")
    is_unknown, full = error["type"] == "extra_forbidden", ".".join(path)
    in_message = name == "messages" and len(path) > 2
    field_name = path[2] if in_message else name
    if advice := UNSERVED.get(field_name):
        place = "messages: " if in_message else ""
        words = f"{place}{field_name} is not served here: {advice}"
        return Refusal(400, words, param=full if is_unknown else name, code="unsupported_field")
    if is_unknown:
        near = nearest_name(path[-1], known) if len(path) == 1 else None
        hint = f" (did you mean {near}?)" if near else ""
        return Refusal(400, f"unknown field {full}{hint}", param=full, code="unknown_field")
    if in_message and field_name == "content" and path[-1] == "type":
        words = f"messages: parts of type {error.get('input')!r} are not served; send text alone"
        return Refusal(400, words[:200], param=name, code="unsupported_field")
    if not path and isinstance(error.get("input"), bytes):
        words = "the body is not taken as JSON without the header Content-Type: application/json"
        return Refusal(400, words, param="body", code="not_json")
    seen = repr(error.get("input"))
    seen = seen if len(seen) <= 80 else f"{seen[:77]}..."
    return Refusal(400, f"{name}: {error['msg']}, got {seen}", param=name, code=error["type"])
