"""Chat templates rendered as transformers renders them, in jinja's sandbox, without importing it.

A template comes with a model from anywhere, so it runs in the immutable sandbox, and sees only
the plain messages and the special tokens.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import Extension
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from outdraft.errors import ModelError, RequestError


class _RefusedError(TemplateError):
    """The template's own `raise_exception`: these messages are not for this model."""


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's text for training; here it is only its body."""

    tags = {"generation"}  # noqa: RUF012  jinja declares it so

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Any) -> str:
        return str(caller())


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool,
    special_tokens: Mapping[str, str],
) -> str:
    """The prompt text of a conversation. special_tokens: bos_token, eos_token, … by name."""
    try:
        return _compile(template).render(
            messages=[dict(message) for message in messages],
            tools=None,
            documents=None,
            add_generation_prompt=add_generation_prompt,
            **special_tokens,
        )
    except _RefusedError as error:
        raise RequestError(f"the model's chat template refuses these messages: {error}") from error
    except TemplateError as error:
        raise ModelError(f"the model's chat template cannot be rendered: {error}") from error
    except TypeError as error:  # a message without content, content that is not text
        raise RequestError(
            f"these messages do not fit the model's chat template: {error}"
        ) from error


@lru_cache(maxsize=8)
def _compile(template: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return environment.from_string(template)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: jinja's own filter escapes HTML characters."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise _RefusedError(message)
