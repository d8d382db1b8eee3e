"""Renderers: results in, text out. A result is shown as a `Page`, and written by way of an `Output`; none of them
computes anything but a scale or a colour."""
