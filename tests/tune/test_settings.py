"""What the options of `tune` become."""

from __future__ import annotations

import pytest

from outdraft.cli.main import find_command
from outdraft.tune.settings import RunSettings


@pytest.mark.parametrize(
    ("flags", "tried"),
    [
        ([], ("none", "int8")),
        (["--engine", "vllm"], ("none",)),
        (["--engine", "sglang"], ("none",)),
        (["--engine", "vllm", "--draft-quantization", "none,int8"], ("none", "int8")),
        (["--draft-quantization", "int8"], ("int8",)),
    ],
)
def test_a_second_form_of_a_draft_is_tried_where_it_needs_no_process_for_each_k(
    flags: list[str], tried: tuple[str, ...]
) -> None:
    settings = RunSettings.from_options(find_command("tune").parse(flags))
    assert settings.space.quantizations == tried
    assert settings.options["draft_quantization"] == ",".join(tried), "a run goes on with it"


def test_servers_of_others_are_told_nothing_of_drafts() -> None:
    words = ["--off", "http://a:1", "--on", "ngram:k=4@http://a:2"]
    settings = RunSettings.from_options(find_command("tune").parse(words))
    assert "draft_quantization" not in settings.options
