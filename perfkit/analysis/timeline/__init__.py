"""A kernel table laid out in time: lanes of slices, and the facts of each."""
