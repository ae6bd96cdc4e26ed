"""Memory before anything starts: what a target and a draft take, what is left, and whether they
can work together. No torch, no GPU.

    plan = make_plan(find_model("llama-3.1-70b"), find_model("llama-3.1-8b"), parse_gpu("h100:2"),
                     Settings(max_model_len=8192), target_quantization="int8")
    plan.headline.serves, plan.room.kv_tokens, plan.shares, plan.pairing
"""

from outdraft.plan.budget import Mix, Room, Settings
from outdraft.plan.devices import Devices, parse_gpu, parse_memory
from outdraft.plan.findings import Finding, Shares
from outdraft.plan.models import Model, find_model
from outdraft.plan.pairing import Pairing, pair
from outdraft.plan.plan import Plan, make_plan

__all__ = [
    "Devices",
    "Finding",
    "Mix",
    "Model",
    "Pairing",
    "Plan",
    "Room",
    "Settings",
    "Shares",
    "find_model",
    "make_plan",
    "pair",
    "parse_gpu",
    "parse_memory",
]
