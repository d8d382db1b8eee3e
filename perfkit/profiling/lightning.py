"""A callback for Lightning's Trainer: `Trainer(…, callbacks=[PerfkitCallback("runs/mine")])`."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback

from perfkit.profiling import Profile


class PerfkitCallback(Callback):
    """Records a few steps of the training, a batch each; arguments as of `perfkit.profile`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.profile = Profile(*args, **kwargs)

    def on_train_start(self, *_: Any, **__: Any) -> None:
        """Begin to record."""
        self.profile.__enter__()

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """Mark the end of a step."""
        self.profile.step()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """End the recording and show the report."""
        self.profile.__exit__(None, None, None)
