# Run by `sh -s` on the other machine. Answers are lines that begin with "perfkit: "; all else is chatter of a shell.
# perfkit puts before this: given= (a Python, or ""), bootstrap= (the file name of bootstrap.py), and bootstrap_text().
say() { printf 'perfkit: %s\n' "$*"; }

base=${PERFKIT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/perfkit}/remote
if failed=$( (mkdir -p "$base" && cd "$base" && { [ -s "$bootstrap" ] || bootstrap_text >"$bootstrap.$$"; }) 2>&1 ); then
    [ -s "$base/$bootstrap" ] || mv "$base/$bootstrap.$$" "$base/$bootstrap"
    say "folder $base"
else
    say "failed $failed"
fi

tell='import sys
from importlib.util import find_spec
print("%d.%d" % sys.version_info[:2], int(find_spec("torch") is not None))'

try() {
    path=$(command -v "$1") || return 0
    case $path in /*) ;; *) path=$PWD/$path ;; esac
    told=$("$path" -c "$tell" 2>/dev/null </dev/null) && say "python $told $path"
    case $told in 2.* | 3.?" "* | "3.10 "*) ;; *" 1") found=1 ;; esac
    return 0
}

if [ -n "$given" ]; then
    case $given in "~/"*) given=$HOME/${given#"~/"} ;; esac
    [ -d "$given" ] && given=$given/bin/python
    try "$given"
else
    found=
    for name in python3 python python3.13 python3.12 python3.11 python3.14; do [ -n "$found" ] || try "$name"; done
fi
say end
