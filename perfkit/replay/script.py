"""A stand-alone Python file of a rebuilt call, for a bug report: it needs torch, and nothing of perfkit."""

from __future__ import annotations

import inspect
import pprint
from pathlib import Path

from perfkit.errors import UsageError
from perfkit.kernels import checking
from perfkit.replay import rebuilt, replay, standalone
from perfkit.replay.recorded import FoundOperator
from perfkit.run_folder import write_whole


def text_of(found: FoundOperator, chosen: replay.Chosen, seed: int) -> str:
    """The text of the script. Raises `UsageError` for an operator that is not PyTorch's."""
    if not chosen.recipe["operator"].startswith("aten::") and "source" not in chosen.recipe:
        raise UsageError(
            f"{chosen.recipe['operator']} is not an operator of PyTorch alone.", "Run it without --script."
        )
    said = replay.recorded(found, chosen, "cpu")
    facts = {
        "operator": said.operator,
        "trace": said.trace,
        "device": found.device,
        "median ns": said.ns.value if said.ns else None,
        "calls": len(chosen.calls.ns),
        "kernels": said.kernels,
        "arguments": [
            f"{argument.name}: {argument.text}{f' ({argument.filled})' if argument.filled else ''}"
            for argument in said.arguments
        ],
        "not recorded": said.stated,
    }
    recipe = {"seed": seed, "random": replay.is_random(chosen.recipe), **chosen.recipe}
    parts = [
        f'"""{said.operator} as a trace recorded it, checked against fp64 and timed: python {{file}} [--device cuda]'
        '\n\nWritten by `perfkit bench --script`; needs torch alone.\n"""\n',
        "from __future__ import annotations\n\nimport argparse\nimport contextlib\nimport math\nimport statistics\n"
        "import sys\nimport time\nfrom collections.abc import Callable, Iterator\nfrom typing import Any\n\n"
        "import torch\nfrom torch import Tensor\n",
        f"RECIPE = {pprint.pformat(recipe, width=110, sort_dicts=False)}",
        f"TRACE = {pprint.pformat(facts, width=110, sort_dicts=False)}\n",
        _body(inspect.getsource(rebuilt)),
        inspect.getsource(checking.root_mean_square),
        inspect.getsource(checking.largest_error),
        _body(inspect.getsource(standalone)),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _body(source: str) -> str:
    """A module's text after its imports."""
    lines = [line for line in source.splitlines() if not line.startswith(("RECIPE:", "TRACE:"))]
    last = max(i for i, line in enumerate(lines) if line.startswith(("import ", "from ")))
    ends = next((i for i in range(last, len(lines)) if lines[i].rstrip() == ")" or "(" not in lines[last]), last)
    return "\n".join(lines[ends + 1 :])


def write(path: Path, found: FoundOperator, chosen: replay.Chosen, seed: int) -> None:
    """Write the script. Raises `UsageError` where it cannot be written."""
    text = text_of(found, chosen, seed).replace("{file}", path.name)
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.", "Choose another --script.") from error
