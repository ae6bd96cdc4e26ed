"""What a model or a draft head is, read from its files' headers: no weights are loaded, no torch.

    spec = read_modelspec(Path("SmolLM2-135M-Instruct.Q4_1.gguf"))
    spec.num_layers, spec.num_parameters, spec.kv_bytes_per_token(2)

`read_spec` reads everything that can be planned. `read_modelspec` and `read_head` read what the
engine runs and refuse the rest.
"""

from outdraft.modelspec.head import HeadSpec
from outdraft.modelspec.medusa import MedusaSpec
from outdraft.modelspec.mtp import MtpSpec
from outdraft.modelspec.read import AnySpec, check_runnable, read_head, read_modelspec, read_spec
from outdraft.modelspec.rope import inverse_frequencies
from outdraft.modelspec.spec import ModelSpec, RopeScaling
from outdraft.modelspec.tensors import weight_files

__all__ = [
    "AnySpec",
    "HeadSpec",
    "MedusaSpec",
    "ModelSpec",
    "MtpSpec",
    "RopeScaling",
    "check_runnable",
    "inverse_frequencies",
    "read_head",
    "read_modelspec",
    "read_spec",
    "weight_files",
]
