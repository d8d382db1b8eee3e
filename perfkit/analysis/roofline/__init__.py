"""Rows against their roofs: how fast the machine could run them, and which cannot be judged."""
