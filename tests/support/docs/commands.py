"""Reading commands and example files out of Markdown, and saying how the test runs each command."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

RULES = Path(__file__).parents[2] / "docs" / "substitutions.toml"

# Runs of built-in workloads on made-up data or on docs/, and captures of the tests' own program: nothing else of the
# page goes into them.
OWN_RUN = re.compile(
    r"perfkit run (gpt2|mlp|dlrm)\b(?!.* --data (?!docs\b))[^&|;]*"
    r"|cp \S+/plain\.py.? train\.py && perfkit capture [^&|;]* -- python3 train\.py"
)
FENCE = re.compile(r"^\s*```\s*(\w*)")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the number of its first line in the file, and its lines."""

    language: str
    line: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Command:
    """A command as the reader would type it, and the line where it stands."""

    line: int
    text: str


@dataclass(frozen=True)
class Plan:
    """How the test runs a command: `text` in a shell (None: not at all), expecting `exit_code`."""

    text: str | None
    exit_code: int = 0

    @property
    def shared(self) -> tuple[str, str] | None:
        """The command with the folder `run`, and its folder, where nothing else of the page goes into the run."""
        text = self.text or ""
        out = re.search(r" --out (\S+)", text)
        if out is None or self.exit_code or not OWN_RUN.fullmatch(text):
            return None
        before, dashes, program = text.replace(out[0], "").partition(" -- ")
        return f"{before} --out run{dashes}{program}", out[1]


def blocks(markdown: str) -> list[Block]:
    """All fenced blocks of a document."""
    found: list[Block] = []
    lines: list[str] = []
    inside, language, start = False, "", 0
    for number, line in enumerate(markdown.splitlines(), 1):
        fence = FENCE.match(line)
        if fence and not inside:
            inside, language, start, lines = True, fence[1], number + 1, []
        elif fence:
            inside = False
            found.append(Block(language, start, tuple(lines)))
        elif inside:
            lines.append(line)
    return found


def commands(markdown: str) -> list[Command]:
    """The lines after `$ ` in console blocks and all lines in bash and sh blocks, continued lines joined."""
    found = []
    for block in blocks(markdown):
        if block.language not in ("console", "bash", "sh"):
            continue
        lines = iter(enumerate((line.strip() for line in block.lines), block.line))
        for number, line in lines:
            prompted = line.startswith("$ ")
            if not prompted and (block.language == "console" or not line or line.startswith("#")):
                continue
            text = line.removeprefix("$ ")
            while text.endswith("\\"):
                text = text[:-1].rstrip() + " " + next(lines)[1].removeprefix("> ")
            found.append(Command(number, text))
    return found


def example_files(markdown: str) -> dict[str, str]:
    """Example files: python blocks whose first line is a comment with the file's name, such as `# my_model.py`."""
    files = {}
    for block in blocks(markdown):
        name = re.fullmatch(r"# (\w[\w./-]*\.py)", block.lines[0].strip()) if block.lines else None
        if block.language == "python" and name:
            files[name[1]] = "\n".join(block.lines) + "\n"
    return files


def plan(command: str, rules: dict, full: bool = True) -> Plan | None:
    """How `command` is run, by the rules of substitutions.toml; None when no rule knows it.

    Unless in `full`, the commands of `[[full]]` are not run, and `[[quick]]` is replaced too.
    """
    if any(re.search(rule["pattern"], command) for rule in rules["not_run"]):
        return Plan(None)
    text, exit_code = command, 0
    known = any(re.search(pattern, command) for pattern in rules["as_written"]["patterns"])
    for rule in rules["substitute"]:
        text, count = re.subn(rule["pattern"], rule["by"], text)
        known = known or count > 0
        exit_code = rule.get("exit_code", exit_code) if count else exit_code
    if not known:
        return None
    return Plan(text, exit_code) if full else _quick(text, exit_code, rules)


def _quick(text: str, exit_code: int, rules: dict) -> Plan:
    """How `make test` runs what `make test-full` runs as `text`."""
    if any(re.search(rule["pattern"], text) for rule in rules["full"]):
        return Plan(None)
    for rule in rules["quick"]:
        text = re.sub(rule["pattern"], rule["by"], text)
    return Plan(text, exit_code)


def read_rules() -> dict:
    """The rules of substitutions.toml."""
    return tomllib.loads(RULES.read_text(encoding="utf-8"))
