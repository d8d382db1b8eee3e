#!/bin/sh
# Install perfkit from this checkout into a virtual environment, with the pinned versions of constraints.txt.
# Usage: install.sh VENV EXTRAS   e.g. install.sh .venv run,data
# PYTHON chooses the interpreter of a new environment, TORCH the torch build (any arguments of `pip install`).
# A stamp inside the environment names what was installed from what; when it still holds, nothing is done.
set -eu

venv=$1
extras=$2
torch=${TORCH:-torch}
cd "$(dirname "$0")/.."

key() { { cat pyproject.toml setup.py constraints.txt; echo "$torch" "$PWD"; } | cksum; }
stamp=$venv/.perfkit-installed

installed=
if [ -x "$venv/bin/python" ] && [ -f "$stamp" ] && [ "$(head -n 1 "$stamp")" = "$(key)" ]; then
    installed=$(tail -n 1 "$stamp")
    missing=
    for extra in $(echo "$extras" | tr , ' '); do
        case ",$installed," in *",$extra,"*) ;; *) missing=$extra ;; esac
    done
    [ -n "$missing" ] || exit 0
    extras=$(echo "$installed,$extras" | tr , '\n' | sort -u | paste -s -d , -)
fi

# A half-made environment of ours is made anew; one that somebody else made is never touched.
ours=$venv/.made-by-perfkit
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    if [ -e "$venv" ] && [ ! -f "$ours" ]; then
        echo "$venv is there already, but it has no pip that runs. Remove it, or name another place: make VENV=..." >&2
        exit 1
    fi
    python=$(sh tools/find-python.sh "${PYTHON:-}")
    echo "Making the virtual environment $venv with $python ($("$python" -V))"
    rm -rf "$venv"
    mkdir -p "$venv"
    touch "$ours"
    "$python" -m venv "$venv"
fi

# Torch first and by itself, so that TORCH may name another version or index; then everything else beside it.
pip="$venv/bin/python -m pip --disable-pip-version-check"
echo "Installing torch ($torch) and perfkit[$extras]; the first time this downloads what the README says"
case "$torch" in
    torch) $pip install --progress-bar on torch -c constraints.txt ;;
    *) $pip install --progress-bar on $torch ;;
esac
# A torch for CUDA brings the one triton and the one NVRTC that fit it.
version() { "$venv/bin/python" -c "from importlib.metadata import version; print(version('$1'))" 2>/dev/null; }
pins=$(for name in torch triton nvidia-cuda-nvrtc; do
    if found=$(version $name); then echo "s/^$name==.*/$name==$found/"; fi
done)
# Some versions of torch set an upper end to setuptools, below our pin.
limits=$("$venv/bin/python" -c "from importlib.metadata import requires; print(*requires('torch') or ())")
case "$limits" in *setuptools\<*) pins="$pins
/^setuptools==/d" ;; esac
sed -e "$pins" constraints.txt >"$venv/constraints.txt"
$pip install --progress-bar on -c "$venv/constraints.txt" -e ".[$extras]"

{ key; echo "$extras"; } >"$stamp"
