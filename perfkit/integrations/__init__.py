"""Callbacks that record a few steps of other packages' trainers; each imports its package, which need not be there."""
