"""Ctrl-C in tests."""

import signal


def hear_interrupts() -> None:
    """Before a child starts: what a shell starts in the background, a whole test run for instance, is deaf to Ctrl-C,
    as are its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
