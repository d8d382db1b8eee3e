"""Thunder's two backends and their parts: the import, the executor, where each symbol of a trace comes from."""

from perfkit.backends.thunder.backend import Thunder
from perfkit.backends.thunder.llmc import ThunderLlmc

__all__ = ["Thunder", "ThunderLlmc"]
