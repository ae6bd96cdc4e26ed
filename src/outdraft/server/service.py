"""What all paths of the application share."""

from dataclasses import dataclass

from outdraft.engine.engine import Engine
from outdraft.server.loop import EngineLoop
from outdraft.server.metrics import Metrics
from outdraft.server.refusal import Refusal, shutting_down


@dataclass(slots=True)
class Service:
    engine: Engine
    loop: EngineLoop
    metrics: Metrics
    model_names: tuple[str, ...]  # the first one is in answers that name none
    always_metrics: bool  # with every answer, not only on request
    can_forget: bool  # when asked: anybody who may ask can make the server slower
    is_draining: bool = False

    def check_open(self) -> None:
        if self.is_draining:
            raise shutting_down()

    def check_model(self, name: str | None) -> str:
        if name is None or name in self.model_names:
            return name or self.model_names[0]
        words = f"model {name!r} is not served here; this server has {', '.join(self.model_names)}"
        raise Refusal(404, words, param="model", code="model_not_found")
