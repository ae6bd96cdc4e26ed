"""Public architectures: the fields their config.json files hold, so that a plan answers offline.

Only facts are here. Parameters and bytes are computed from them by `sizes.py`, and the tests
hold the results against the published sizes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from outdraft.plan.architecture import Architecture, Experts, Latent


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    hub_id: str
    tokenizer: str  # models with the same name here map the same tokens to the same ids
    architecture: Architecture
    published: str = "bf16"  # the quantization its own weights come in


def _llama(
    layers: int, hidden: int, inner: int, heads: int, head_dim: int, *, tied: bool = False
) -> Architecture:
    return Architecture(
        "llama", layers, hidden, inner, heads, 8, head_dim, 128_256, 131_072, tie_embeddings=tied
    )


def _smollm2(layers: int, hidden: int, inner: int, heads: int, kv_heads: int) -> Architecture:
    return Architecture(
        "llama", layers, hidden, inner, heads, kv_heads, 64, 49_152, 8192, tie_embeddings=True
    )


def _qwen2(
    layers: int, hidden: int, inner: int, heads: int, kv_heads: int, *, tied: bool = False
) -> Architecture:
    return Architecture(
        "qwen2", layers, hidden, inner, heads, kv_heads, hidden // heads,
        151_936 if tied else 152_064, 32_768, tie_embeddings=tied, qkv_bias=True,
    )  # fmt: skip


def _qwen3(
    layers: int,
    hidden: int,
    inner: int,
    heads: int,
    kv_heads: int = 8,
    *,
    tied: bool = False,
    experts: Experts | None = None,
) -> Architecture:
    return Architecture(
        "qwen3" if experts is None else "qwen3_moe", layers, hidden, inner, heads, kv_heads, 128,
        151_936, 40_960, tie_embeddings=tied, qk_norm=True, experts=experts,
    )  # fmt: skip


def _mistral(layers: int, hidden: int, inner: int, vocab: int, context: int) -> Architecture:
    return Architecture("mistral", layers, hidden, inner, 32, 8, 128, vocab, context)


def _gpt_oss(layers: int, experts: int) -> Architecture:
    """Even layers see 128 tokens back, odd ones everything."""
    return Architecture(
        "gpt_oss", layers, 2880, 2880, 64, 8, 64, 201_088, 131_072,
        qkv_bias=True, o_bias=True, has_sinks=True,
        experts=Experts(experts, 4, 2880, has_bias=True, has_router_bias=True),
        windows=(128, None) * (layers // 2),
    )  # fmt: skip


_MIXTRAL = Architecture(
    "mixtral", 32, 4096, 14_336, 32, 8, 128, 32_000, 32_768, experts=Experts(8, 2, 14_336)
)
# Without its multi-token-prediction layer, which the 671 billion do not count either.
_DEEPSEEK_V3 = Architecture(
    "deepseek_v3", 61, 7168, 18_432, 128, 128, 192, 129_280, 163_840,
    experts=Experts(256, 8, 2048, shared=1, dense_layers=3, has_router_bias=True),
    latent=Latent(1536, 512, 128, 64, 128),
)  # fmt: skip

_LLAMA, _QWEN, _SMOL = "meta-llama/Llama", "Qwen/Qwen", "HuggingFaceTB/SmolLM2"

_ENTRIES = (
    Entry("llama-3.1-8b", f"{_LLAMA}-3.1-8B", "llama3", _llama(32, 4096, 14_336, 32, 128)),
    Entry("llama-3.1-70b", f"{_LLAMA}-3.1-70B", "llama3", _llama(80, 8192, 28_672, 64, 128)),
    Entry("llama-3.1-405b", f"{_LLAMA}-3.1-405B", "llama3", _llama(126, 16_384, 53_248, 128, 128)),
    Entry("llama-3.2-1b", f"{_LLAMA}-3.2-1B", "llama3", _llama(16, 2048, 8192, 32, 64, tied=True)),
    Entry("llama-3.2-3b", f"{_LLAMA}-3.2-3B", "llama3", _llama(28, 3072, 8192, 24, 128, tied=True)),
    Entry("llama-3.3-70b", f"{_LLAMA}-3.3-70B", "llama3", _llama(80, 8192, 28_672, 64, 128)),
    Entry("qwen2.5-0.5b", f"{_QWEN}2.5-0.5B", "qwen2.5", _qwen2(24, 896, 4864, 14, 2, tied=True)),
    Entry("qwen2.5-1.5b", f"{_QWEN}2.5-1.5B", "qwen2.5", _qwen2(28, 1536, 8960, 12, 2, tied=True)),
    Entry("qwen2.5-3b", f"{_QWEN}2.5-3B", "qwen2.5", _qwen2(36, 2048, 11_008, 16, 2, tied=True)),
    Entry("qwen2.5-7b", f"{_QWEN}2.5-7B", "qwen2.5", _qwen2(28, 3584, 18_944, 28, 4)),
    Entry("qwen2.5-14b", f"{_QWEN}2.5-14B", "qwen2.5", _qwen2(48, 5120, 13_824, 40, 8)),
    Entry("qwen2.5-32b", f"{_QWEN}2.5-32B", "qwen2.5", _qwen2(64, 5120, 27_648, 40, 8)),
    Entry("qwen2.5-72b", f"{_QWEN}2.5-72B", "qwen2.5", _qwen2(80, 8192, 29_568, 64, 8)),
    Entry("qwen3-0.6b", f"{_QWEN}3-0.6B", "qwen3", _qwen3(28, 1024, 3072, 16, tied=True)),
    Entry("qwen3-1.7b", f"{_QWEN}3-1.7B", "qwen3", _qwen3(28, 2048, 6144, 16, tied=True)),
    Entry("qwen3-4b", f"{_QWEN}3-4B", "qwen3", _qwen3(36, 2560, 9728, 32, tied=True)),
    Entry("qwen3-8b", f"{_QWEN}3-8B", "qwen3", _qwen3(36, 4096, 12_288, 32)),
    Entry("qwen3-14b", f"{_QWEN}3-14B", "qwen3", _qwen3(40, 5120, 17_408, 40)),
    Entry("qwen3-32b", f"{_QWEN}3-32B", "qwen3", _qwen3(64, 5120, 25_600, 64)),
    Entry(
        "qwen3-30b-a3b", f"{_QWEN}3-30B-A3B", "qwen3",
        _qwen3(48, 2048, 6144, 32, 4, experts=Experts(128, 8, 768)),
    ),
    Entry(
        "qwen3-235b-a22b", f"{_QWEN}3-235B-A22B", "qwen3",
        _qwen3(94, 4096, 12_288, 64, 4, experts=Experts(128, 8, 1536)),
    ),
    Entry(
        "mistral-7b-v0.3", "mistralai/Mistral-7B-v0.3", "mistral-v3",
        _mistral(32, 4096, 14_336, 32_768, 32_768),
    ),
    Entry(
        "mistral-nemo", "mistralai/Mistral-Nemo-Base-2407", "tekken-v3",
        _mistral(40, 5120, 14_336, 131_072, 131_072),
    ),
    Entry(
        "mistral-small-24b", "mistralai/Mistral-Small-24B-Base-2501", "tekken-v7",
        _mistral(40, 5120, 32_768, 131_072, 32_768),
    ),
    Entry("mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1", "mistral-v1", _MIXTRAL),
    Entry("gpt-oss-20b", "openai/gpt-oss-20b", "o200k-harmony", _gpt_oss(24, 32), "mxfp4"),
    Entry("gpt-oss-120b", "openai/gpt-oss-120b", "o200k-harmony", _gpt_oss(36, 128), "mxfp4"),
    Entry("smollm2-135m", f"{_SMOL}-135M", "smollm2", _smollm2(30, 576, 1536, 9, 3)),
    Entry("smollm2-360m", f"{_SMOL}-360M", "smollm2", _smollm2(32, 960, 2560, 15, 5)),
    Entry("smollm2-1.7b", f"{_SMOL}-1.7B", "smollm2", _smollm2(24, 2048, 8192, 32, 32)),
    Entry("deepseek-v3", "deepseek-ai/DeepSeek-V3", "deepseek-v3", _DEEPSEEK_V3, "fp8"),
)  # fmt: skip

TABLE: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}

# A tuned model has the shape of its base: these words change nothing that is counted here.
_DECORATION = re.compile(r"^meta-|-(instruct|chat|base|it|2407|2501|0324)\b")


def find_architecture(name: str) -> Entry | None:
    """The entry of a name or hub id, in any case, tuned or not."""
    written = name.lower().rsplit("/", 1)[-1]
    plain = _DECORATION.sub("", written)
    return TABLE.get(written) or TABLE.get(plain) or TABLE.get(plain.removesuffix("-v0.1"))
