#!/bin/sh
# SGLang in an environment of its own, from the package index.
#
#   dev/engines/sglang.sh [FOLDER]                       default: .engines/sglang
#   SGL_KERNEL=dev/engines/plain_kernels dev/engines/sglang.sh [FOLDER]
#
# The first makes its argument parser work: SGLang as published wants a GPU and 10 GB of packages,
# the parser only those below. It serves nothing; tests that need a server are skipped.
# The second makes it serve on a CPU (with NGRAM, not with draft models: its plain attention has
# none). Its kernels for CPUs are in no package: SGL_KERNEL is a folder with a Python package
# `sgl_kernel`, built from SGLang's sources or, as the one here, written in plain torch.
#
# Then: OUTDRAFT_SGLANG=FOLDER/bin/sglang
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$root/.engines/sglang}
python=${PYTHON:-python3}
version=${SGLANG_VERSION:-0.5.23}
kernels=${SGL_KERNEL:+$(cd "$SGL_KERNEL" && pwd)}
stamp="$folder/.installed-$version${kernels:+-serving}"

if [ -e "$stamp" ]; then
    echo "sglang: $folder is there"
    exit 0
fi
echo "sglang: $folder (minutes: torch, and ${kernels:+a serving }sglang $version)"
test -x "$folder/bin/python" || "$python" -m venv "$folder"
pip="$folder/bin/python -m pip --quiet --disable-pip-version-check"
$pip install "torch==2.13.0" "transformers==5.19.0" triton aiohttp fastapi huggingface_hub ipython \
    msgspec numpy orjson pillow psutil pybase64 pydantic pyzmq requests setproctitle tqdm
$pip install --no-deps "sglang==$version"

"$folder/bin/python" -c 'import sglang.srt.server_args as s; print("sglang:", s.__name__)'

if [ -n "$kernels" ]; then
    test -e "$kernels/sgl_kernel" || { echo "sglang: no sgl_kernel in $kernels" >&2; exit 1; }
    $pip install "apache-tvm-ffi==0.1.11" "compressed-tensors==0.18.0" "openai==2.8.0" \
        "openai-harmony==0.0.4" "numba==0.65.1" "sentencepiece==0.2.1" "llguidance<2" cloudpickle \
        datasets dill einops gguf interegular jsonschema modelscope partial_json_parser \
        prometheus-client python-multipart scipy soundfile tiktoken uvicorn uvloop watchfiles \
        xxhash zstandard
    $pip install --no-deps "outlines==0.1.11" "torchvision==0.28.0" "xgrammar==0.2.7"
    site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    printf '%s\n' "$kernels" > "$site/sgl_kernel.pth"
    # Beside a torch for CPUs, torchvision's own operators do not load, and it ends for want of
    # them. SGLang imports it, and for texts uses none.
    if ! "$folder/bin/python" -c 'import torchvision' 2> /dev/null; then
        place="$site/torchvision/__init__.py"
        {
            echo 'import torch as _torch'
            echo '_ops = _torch.library.Library("torchvision", "FRAGMENT")'
            for name in nms qnms; do
                echo "_ops.define('$name(Tensor dets, Tensor scores, float limit) -> Tensor')"
            done
            cat "$place"
        } > "$place.new"
        mv "$place.new" "$place"
    fi
    SGLANG_USE_CPU_ENGINE=1 "$folder/bin/python" -c '
import sglang.srt.entrypoints.http_server as s; print("sglang:", s.__name__)' | tail -1
fi
touch "$stamp"
