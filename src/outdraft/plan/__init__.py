"""Memory before anything starts: what a target and a draft take, what is left, and whether they
can work together. No torch, no GPU.

    plan = plan_memory(find_model("llama-3.1-70b"), find_model("llama-3.1-8b"), parse_gpu("h100:2"),
                       PlanSettings(max_model_len=8192), target_quantization="int8")
    plan.headline.serves, plan.room.kv_tokens, plan.shares, plan.pairing
"""

from outdraft.plan.budget import PlanSettings
from outdraft.plan.devices import Devices, parse_gpu, parse_memory
from outdraft.plan.models import Model, find_model
from outdraft.plan.pairing import pair
from outdraft.plan.plan import Plan, plan_memory

__all__ = [
    "Devices",
    "Model",
    "Plan",
    "PlanSettings",
    "find_model",
    "pair",
    "parse_gpu",
    "parse_memory",
    "plan_memory",
]
