"""The same weights as a GGUF file of another type, for a fair comparison with llama.cpp.

    python dev/engines/gguf_as.py SOURCE.gguf OUT.gguf F32|Q8_0

Matrices are dequantized and written in the given type; norms stay float32.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter
from gguf.constants import GGMLQuantizationType, GGUFValueType
from gguf.quants import dequantize, quantize

_TYPES = {"F32": 0, "Q8_0": 7}  # as general.file_type says


def write_as(source: Path, out: Path, kind: str) -> None:
    reader = GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    part = out.with_suffix(".part")
    writer = GGUFWriter(part, architecture)
    for field in reader.fields.values():
        if field.name == "general.architecture" or field.name.startswith("GGUF."):
            continue
        value = _TYPES[kind] if field.name == "general.file_type" else field.contents()
        subtype = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, field.types[0], subtype)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        wanted = GGMLQuantizationType[kind] if values.ndim > 1 else GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, quantize(values, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(out)


if __name__ == "__main__":
    write_as(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
