"""`perfkit.integrations.lightning` and `.transformers`: an earlier name of the callbacks in `perfkit.profiling`."""

from perfkit import profiling

__path__ = profiling.__path__
