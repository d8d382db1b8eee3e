"""llm.c's files, read and written: checkpoint, debug state, tokenizer, token data, evaluation data (docs/formats.md).

All are little endian and start with a header of 256 int32. The older version 1 of each is read as well.
"""

from perfkit.workloads.llmc.checkpoint import layout, open_checkpoint, padded, write_checkpoint
from perfkit.workloads.llmc.evaluation import Example, read_evaluation, write_evaluation
from perfkit.workloads.llmc.header import EVALUATION, KINDS, kind_of
from perfkit.workloads.llmc.state import DebugState, read_debug_state, write_debug_state
from perfkit.workloads.llmc.tokenizer import Tokenizer, read_tokenizer, write_tokenizer
from perfkit.workloads.llmc.tokens import read_tokens, write_tokens

EVALUATION_DATA = KINDS[EVALUATION]

__all__ = [
    "EVALUATION_DATA",
    "DebugState", "Example", "Tokenizer",
    "kind_of", "layout", "open_checkpoint", "padded", "read_debug_state", "read_evaluation", "read_tokenizer",
    "read_tokens", "write_checkpoint", "write_debug_state", "write_evaluation", "write_tokenizer", "write_tokens",
]  # fmt: skip
