"""Training with products of fp8: what `--dtype fp8` does to a model, and how its products are checked.

The linear layers of a model's repeated layers multiply numbers of fp8, everything else is in bf16.
"""

from perfkit.fp8.checks import check_layers
from perfkit.fp8.model import chosen, convert, described

__all__ = ["check_layers", "chosen", "convert", "described"]
