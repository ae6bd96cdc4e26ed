"""Options that several rooms use, each declared once.

A room that needs another default, help or type takes `dataclasses.replace` of the one here.
"""

from outdraft.options import Option
from outdraft.speculation import METHODS, OFF, OWN_METHODS, QUANTIZATIONS, RULES

# The model and the engine that serves it
TARGET = Option("--target", "the target model: a catalog name, a hub id, a folder of safetensors "
                "or a .gguf file", default="smollm2-135m", metavar="MODEL")  # fmt: skip
DTYPE = Option("--dtype", "data type of the target", metavar="TYPE")
QUANTIZATION = Option("--quantization", "of the target's weights", metavar="FORMAT")
DEVICE = Option("--device", "cpu, cuda, cuda:1 …", default="cpu")
THREADS = Option("--threads", "CPU threads", int, minimum=1)
MAX_MODEL_LEN = Option("--max-model-len", "tokens of a prompt with its answer", int, minimum=1)
MAX_NUM_SEQS = Option("--max-num-seqs", "texts written at once at most", int, minimum=1)
MAX_NUM_BATCHED_TOKENS = Option("--max-num-batched-tokens", "tokens of one step at most", int,
                                minimum=1)  # fmt: skip
KV_CACHE_BYTES = Option("--kv-cache-memory-bytes", "memory for the KV cache", metavar="BYTES")
GPU = Option("--gpu", "name and number of the GPUs: h100, h200:2, 2xrtx4090 …", metavar="NAME[:N]")
PORT = Option("--port", "port to serve at", default=8000, minimum=1, maximum=65535)
SERVED_MODEL_NAME = Option("--served-model-name", "what requests call the model", metavar="NAME")
API_KEY = Option("--api-key", "sent as a bearer token", metavar="KEY")
ADMIN_KEY = Option("--admin-key", "of our server's admin endpoint (default: $OUTDRAFT_ADMIN_KEY, "
                   "else it is off)", metavar="KEY")  # fmt: skip

# Speculation
METHOD = Option("--method", f"how tokens are proposed: {', '.join(OWN_METHODS)} (default: that of "
                "the --draft; else auto on a CPU, off on a GPU)", choices=METHODS)  # fmt: skip
DRAFT = Option("--draft", "draft model, named like a target; or folder of a head", metavar="MODEL")
K = Option("--k", "draft length: tokens proposed in one round at most", default=OFF.k)
RULE = Option("--rule", f"verification rule: {', '.join(RULES)} (typical is lossy)",
              default="coupled", also=("--acceptance",))  # fmt: skip
DRAFT_QUANTIZATION = Option("--draft-quantization", "of the draft: "
                            + ", ".join(QUANTIZATIONS), default="none",
                            metavar="FORMAT")  # fmt: skip

# Requests
PROMPTS = Option("--prompts", "built-in, or a file: JSONL with a prompt each, ShareGPT, OpenAI "
                 "logs, MT-Bench, Spec-Bench, HumanEval, GSM8K", metavar="SOURCE")  # fmt: skip
TEMPERATURE = Option("--temperature", "0 always takes the likeliest token", default=0.0)
MAX_TOKENS = Option("--max-tokens", "tokens of an answer at most", int, minimum=1)
SEED = Option("--seed", "the same seed gives the same text", int)

# The run and its files
BUDGET = Option("--budget", "time to spend: 90s, 10m, 1.5h", metavar="TIME")
OUT = Option("--out", "write to this file", metavar="FILE")
JSON = Option("--json", "print one JSON object, nothing else", bool)
CONFIG = Option("--config", "read the same options from a TOML file; flags win", metavar="FILE")
