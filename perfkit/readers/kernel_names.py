"""Short names of kernels: what a person calls them.

`void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(…)::{lambda…}, …>(…)` is a Gelu to
everyone but the compiler. A function that libraries use for many purposes is therefore named by the template argument
that says its purpose; any other by itself, without namespace, template arguments and parameters.
"""

from __future__ import annotations

import re
from functools import lru_cache

# NVIDIA's libraries name operands and accumulator: f32f32_tf32f32; CUTLASS the instruction: s1688 of fp32 is TF32's.
TF32 = re.compile(r"tf32|^(?!.*fp?16).*s1688", re.IGNORECASE)

# CUTLASS, Composable Kernel, and what libraries put around theirs: the first template argument that is a type is the
# kernel.
_WRAPPED = re.compile(r"Kernel2?|device_kernel|kernel_wrapper|kentry|enable_\w+")
_NUMBER = re.compile(r"(\([\w: ]+\))?-?\d+\w*|true|false")
# Words that many kernels go by, and namespaces that hold the same names as others: both together identify the kernel.
_BARE = re.compile(r"([kK]|GemmK|AttentionK)ernel|dispatch|combine|forward|backward|fwd|bwd|run|main|impl")
_SPACES = re.compile(r"int(er|ra)node(_ll)?")
# CuTe DSL: kernel_cutlass_kernel_MODULE CLASS_object_at__ and the layouts of its arguments.
_CUTE = re.compile(r"kernel_cutlass_(?:kernel_)?(?:__main__)?(\w+?)_object_at_")
_ELEMENTWISE = re.compile(r"(\w+_)?elementwise_kernel(_\w+)?")
_MANY_TENSORS = "multi_tensor_apply_kernel"
_TELLING = re.compile(r"\w*?(?:[kK]ernel|Functor)\w*|launch_\w+")
_WRAPPERS = re.compile(
    r"gpu_kernel_impl\w*|gpu_kernel|opmath_gpu_kernel\w*|opmath_symmetric_gpu_kernel\w*|[AB]?(Unary|Binary)Functor"
)
_ANONYMOUS = re.compile(r"\((anonymous namespace|unnamed)\)|<unnamed>|\{anonymous\}")
_NESTED = re.compile(r"N(?:S[0-9A-Z]*_|St)?")  # a name in namespaces, the first of them perhaps one met before
_DIGITS = re.compile(r"\d{1,4}")
_LITERAL = re.compile(r"L[a-z]n?\d+E")  # a template argument that is a number
_MARKS = re.compile(r"[<>(){}\[\],\s]")
_LONGEST = 20_000  # characters that are looked at; a damaged file may hold more


@lru_cache(maxsize=8192)
def short_name(name: str) -> str:
    """The short name of a kernel or operator; `name` itself where there is nothing to shorten."""
    if name.startswith(("Memcpy", "Memset")):
        return name.partition(" (")[0] or name
    if name.startswith("_Z"):  # PyTorch's profiler writes the longest names as the compiler made them
        return _mangled(name[:_LONGEST]) or name
    if cute := _CUTE.match(name):
        return cute[1]
    if "<" not in name and "(" not in name:
        return _distinct(name.removeprefix("void ").strip().split("::")) or name
    function, arguments = _parted(_ANONYMOUS.sub("anonymous", name[:_LONGEST]))
    parts = [part for part in function.split("::") if part]
    if not parts:
        return name
    last = parts[-1]
    if _WRAPPED.fullmatch(last) and arguments:
        kernel = next((a.strip() for a in arguments if not _NUMBER.fullmatch(a.strip())), "")
        return short_name(kernel) or last
    if last == _MANY_TENSORS:
        return " ".join(["multi_tensor_apply", *_functors(arguments)]) if _functors(arguments) else last
    if _ELEMENTWISE.fullmatch(last):
        return next(filter(None, map(_telling, arguments)), last)
    function = next((a.strip()[1:].strip("()") for a in arguments if a.strip().startswith("&")), "")
    return " ".join(filter(None, [_distinct(parts), short_name(function)]))


def short_name_by_tool(name: str, short: str) -> str:
    """Return the short name of a kernel whose tool gives one too, which counts where the name is not a declaration."""
    return short_name(name) if "(" in name or "<" in name else short or short_name(name)


def _distinct(parts: list[str]) -> str:
    """The function's own name, with its namespace where many have that name."""
    *outer, own = parts
    return f"{outer[-1]}::{own}" if outer and (_BARE.fullmatch(own) or _SPACES.fullmatch(outer[-1])) else own


def _mangled(name: str) -> str:
    """The function's own name in a name of the Itanium ABI; "" without one.

    Identifiers follow their lengths, those of namespaces first: _ZN7cutlass13device_kernelI….
    """
    words, at = [""], 2
    while True:
        nested = _NESTED.match(name, at)
        at = start = nested.end() if nested else at
        found = []
        while digits := _DIGITS.match(name, at):
            at = digits.end() + int(digits[0])
            found.append(name[digits.end() : at])
        words = found or words
        if at == start or not _WRAPPED.fullmatch(words[-1]) or name[at : at + 1] != "I":
            return _distinct(words)
        at += 1
        while literal := _LITERAL.match(name, at):
            at = literal.end()


def _parted(name: str) -> tuple[str, list[str]]:
    """The function with its namespaces but without return type and parameters, and its own template arguments."""
    plain: list[str] = []
    arguments: list[str] = []
    depth = start = end = 0  # `end`: of the last mark outside all brackets
    for mark in _MARKS.finditer(name):
        at, letter = mark.start(), mark[0]
        if depth == 0:
            plain.append(name[end:at])
            end = mark.end()
            if letter == "(":
                break
            if letter == "<":
                depth, arguments, start = 1, [], end
            elif letter.isspace():
                plain, arguments = [], []
            else:
                plain.append(letter)
        elif letter in "<({[":
            depth += 1
        elif letter == ">" or (letter in ")}]" and depth > 1):
            depth -= 1
            if depth == 0:
                arguments.append(name[start:at])
                end = at + 1
        elif letter == "," and depth == 1:
            arguments.append(name[start:at])
            start = at + 1
    else:
        plain.append(name[end:] if depth == 0 else "")
    return "".join(plain), arguments


def _telling(argument: str) -> str:
    """The first identifier in a template argument that says what is done; "" where none does."""
    found = (m[0] for m in _TELLING.finditer(argument))
    return next((word for word in found if not _WRAPPERS.fullmatch(word)), "")


def _functors(arguments: list[str]) -> list[str]:
    """Return what is done to the tensors, such as [BinaryOpScalarFunctor, divides]."""
    names = [_parted(argument.strip())[0].rpartition("::")[2] for argument in arguments]
    at = next((i for i, name in enumerate(names) if name.endswith("Functor")), None)
    if at is None:
        return []
    inner = [n for n in names[at + 1 : at + 2] if n and "::" in arguments[at + 1] and n not in ("BFloat16", "Half")]
    return [names[at], *inner]
