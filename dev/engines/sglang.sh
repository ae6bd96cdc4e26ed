#!/bin/sh
# SGLang's argument parser in an environment of its own, from the package index. It serves nothing
# there: SGLang wants a GPU and 10 GB of packages, its parser only those below.
#
#   dev/engines/sglang.sh [FOLDER]        default: .engines/sglang
#
# Then: OUTDRAFT_SGLANG=FOLDER/bin/sglang
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$root/.engines/sglang}
python=${PYTHON:-python3}
version=${SGLANG_VERSION:-0.5.23}
stamp="$folder/.installed-$version"

if [ -e "$stamp" ]; then
    echo "sglang: $folder is there"
    exit 0
fi
echo "sglang: $folder (minutes: torch, and the parser of sglang $version)"
test -x "$folder/bin/python" || "$python" -m venv "$folder"
pip="$folder/bin/python -m pip --quiet --disable-pip-version-check"
$pip install "torch==2.13.0" "transformers==5.19.0" triton aiohttp fastapi huggingface_hub ipython \
    msgspec numpy orjson pillow psutil pybase64 pydantic pyzmq requests setproctitle tqdm
$pip install --no-deps "sglang==$version"

"$folder/bin/python" -c 'import sglang.srt.server_args as s; print("sglang:", s.__name__)'
touch "$stamp"
