"""A planned request with its place in an experiment, and the record it begins as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outdraft.records import Record
from outdraft.workload.prompt import Planned


@dataclass(frozen=True, slots=True)
class Request:
    planned: Planned
    arm: str = ""
    block: int = 0
    index: int = 0  # place in its block
    is_warmup: bool = False

    def record(self, scheduled_ns: int, **fields: Any) -> Record:
        return Record(
            prompt_id=self.planned.prompt.id,
            category=self.planned.prompt.category,
            temperature=self.planned.temperature,
            arm=self.arm,
            block=self.block,
            index=self.index,
            scheduled_ns=scheduled_ns,
            is_warmup=self.is_warmup,
            **fields,
        )


def requests_of(
    plan: Sequence[Planned], *, arm: str = "", block: int = 0, is_warmup: bool = False
) -> list[Request]:
    return [Request(each, arm, block, index, is_warmup) for index, each in enumerate(plan)]
