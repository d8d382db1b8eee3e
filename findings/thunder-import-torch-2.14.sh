#!/bin/sh
# lightning-thunder 0.2.6 declares torch>=2.7.1, so pip installs it next to torch 2.14.1 without a word; it cannot be imported.
# Two attributes that it looks up are gone: five methods of Tensor for named tensors (since torch 2.13), and the Python function
# behind torch.autograd.Function.apply (`__func__`; since 2.14 `apply` is a built-in method). A second import in the same
# process fails at another place, which looks like a cause and is none: what the first import registered.
# The file fails when any of this changes. It downloads the CUDA build of torch where the index has no other (5.4 GB).
#
# Seen with Python 3.11.7, torch 2.14.1, lightning-thunder 0.2.6:
#   align_as is there: False
#   apply is a builtin_function_or_method, with __func__: False
#   import: AttributeError: type object 'Tensor' has no attribute 'align_as'
#   with the five methods: AttributeError: 'builtin_function_or_method' object has no attribute '__func__'
#   once more: AttributeError: ProxyTag.STATIC_MEMORY_LOCATION is already registered
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/env"
"$work/env/bin/pip" install --quiet --no-cache-dir torch==2.14.1 lightning-thunder==0.2.6
cat >"$work/seen.py" <<'PYTHON'
import sys
import torch

def said() -> str:
    try:
        import thunder
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "works"

if "methods" in sys.argv:
    for name in ("align_as", "align_to", "has_names", "refine_names", "rename"):
        method = lambda self: None
        method.__name__ = name
        setattr(torch.Tensor, name, method)
    print("with the five methods:", said())
    print("once more:", said())
else:
    apply = torch.autograd.Function.apply
    print("align_as is there:", hasattr(torch.Tensor, "align_as"))
    print(f"apply is a {type(apply).__name__}, with __func__:", hasattr(apply, "__func__"))
    print("import:", said())
PYTHON
"$work/env/bin/python" -W ignore "$work/seen.py" >"$work/seen"
"$work/env/bin/python" -W ignore "$work/seen.py" methods >>"$work/seen"
cat "$work/seen"
sed -n 's/^#   //p' "$0" | diff - "$work/seen"
