#!/bin/sh
# llama.cpp's server in an environment of its own, from the package index: 20 seconds, 150 MB.
#
#   dev/engines/llamacpp.sh [FOLDER]        default: .engines/llamacpp
#
# FOLDER/bin/llama-server then takes every flag of llama-server: llama.cpp's own parser and server
# out of the package xllamacpp. For a binary of your own set OUTDRAFT_LLAMA_SERVER instead.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$root/.engines/llamacpp}
python=${PYTHON:-python3}
version=${XLLAMACPP_VERSION:-2026.10.11549}
stamp="$folder/.installed-$version"

if [ ! -e "$stamp" ]; then
    echo "llamacpp: $folder (xllamacpp $version)"
    test -x "$folder/bin/python" || "$python" -m venv "$folder"
    # A wheel or nothing: building it takes a compiler and a quarter of an hour.
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
        --only-binary :all: "xllamacpp==$version"
fi
cat > "$folder/bin/llama-server" <<END
#!/bin/sh
exec "$folder/bin/python" "$root/src/outdraft/backends/llamacpp/runner.py" "\$@"
END
chmod +x "$folder/bin/llama-server"
"$folder/bin/llama-server" --version > /dev/null 2>&1 || {
    rm -f "$folder/bin/llama-server"
    echo "llamacpp: xllamacpp $version is here but does not run on this machine" >&2
    exit 1
}
touch "$stamp"
