"""How long does a model of 1.5 B parameters take to load, and how much memory does it need?

    python benchmarks/loading.py [--layers 28] [--quantizations none,int8,int4] [--json]

Writes a GGUF of Qwen2.5-1.5B's shape with the types of Q4_K_M (Q4_K, some Q6_K) and random codes:
the time depends on shapes and types, not on what the weights say. Each load is a process of its
own; `peak` is the most memory it held, `weights` what the packed weights are by their format.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

from arms import machine_line

HIDDEN, WIDTH, HEADS, KV_HEADS, VOCAB = 1536, 8960, 12, 2, 151936
Q4, Q6 = GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q6_K
BLOCK_BYTES = {Q4: 144, Q6: 210}  # of 256 weights
DRAW = np.random.default_rng(0)


def random_blocks(rows: int, inputs: int, kind: GGMLQuantizationType) -> np.ndarray:
    """Random codes under scales that make weights of about 0.02."""
    blocks = rows * inputs // 256
    data = DRAW.integers(0, 256, (blocks, BLOCK_BYTES[kind]), dtype=np.uint8)
    scale = np.frombuffer(np.float16(2e-5).tobytes(), dtype=np.uint8)
    where = (0, 2) if kind == Q4 else (208,)
    for at in where:
        data[:, at : at + 2] = scale
    return data.reshape(rows, -1)


def write_model(path: Path, layers: int) -> None:
    writer = GGUFWriter(path, "qwen2")
    writer.add_block_count(layers)
    writer.add_context_length(32768)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_vocab_size(VOCAB)
    kv = KV_HEADS * HIDDEN // HEADS

    def matrix(name: str, rows: int, inputs: int, kind: GGMLQuantizationType = Q4) -> None:
        data = random_blocks(rows, inputs, kind)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=kind)

    def vector(name: str, size: int) -> None:
        writer.add_tensor(name, np.ones(size, dtype=np.float32))

    matrix("token_embd", VOCAB, HIDDEN, Q6)
    vector("output_norm.weight", HIDDEN)
    for index in range(layers):
        block = f"blk.{index}"
        finer = Q6 if index % 2 else Q4
        for name, rows in (("q", HIDDEN), ("k", kv), ("v", kv)):
            matrix(f"{block}.attn_{name}", rows, HIDDEN, finer if name == "v" else Q4)
            vector(f"{block}.attn_{name}.bias", rows)
        matrix(f"{block}.attn_output", HIDDEN, HIDDEN)
        matrix(f"{block}.ffn_gate", WIDTH, HIDDEN)
        matrix(f"{block}.ffn_up", WIDTH, HIDDEN)
        matrix(f"{block}.ffn_down", HIDDEN, WIDTH, finer)
        vector(f"{block}.attn_norm.weight", HIDDEN)
        vector(f"{block}.ffn_norm.weight", HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load(path: Path, quantization: str) -> dict[str, float]:
    from outdraft.catalog import ModelFiles
    from outdraft.engine.loading import load_model

    started = time.perf_counter()
    model = load_model(
        ModelFiles("large", path),
        dtype="auto",
        device="cpu",
        quantization=quantization,
        kv_cache_bytes=1 << 26,
        reuse_prefixes=False,
    )
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    now = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**30
    del model
    return {"seconds": seconds, "peak_gib": peak, "held_gib": now}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--quantizations", default="none,int8,int4")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--load", nargs=2, metavar=("FILE", "QUANTIZATION"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load:
        print(json.dumps(load(Path(args.load[0]), args.load[1])))
        return
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.gguf"
        write_model(path, args.layers)
        size = path.stat().st_size / 2**30
        for quantization in args.quantizations.split(","):
            command = [sys.executable, __file__, "--load", str(path), quantization]
            results[quantization] = json.loads(subprocess.check_output(command))
    if args.json:
        print(json.dumps({"file_gib": size, "loads": results}))
        return
    print(machine_line())
    print(f"GGUF of {size:.2f} GiB")
    for quantization, each in results.items():
        print(
            f"{quantization:6} {each['seconds']:6.1f} s, peak {each['peak_gib']:.2f} GiB, "
            f"held after loading {each['held_gib']:.2f} GiB"
        )


if __name__ == "__main__":
    main()
