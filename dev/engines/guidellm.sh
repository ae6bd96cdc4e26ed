#!/bin/sh
# GuideLLM in an environment of its own, from the package index: for benchmarks/bench_peers.py.
#
#   dev/engines/guidellm.sh [FOLDER]        default: .engines/guidellm
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$root/.engines/guidellm}
python=${PYTHON:-python3}
version=${GUIDELLM_VERSION:-0.8.1}
stamp="$folder/.installed-$version"

if [ -e "$stamp" ]; then
    echo "guidellm: $folder is there"
    exit 0
fi
echo "guidellm: $folder (minutes, 6 GB, most of it torch: guidellm $version)"
test -x "$folder/bin/python" || "$python" -m venv "$folder"
"$folder/bin/python" -m pip --quiet --disable-pip-version-check install "guidellm==$version"
"$folder/bin/guidellm" --version
touch "$stamp"
