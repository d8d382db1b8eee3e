"""The batches that a program asks of its DataLoaders, seen from the program and from their workers."""
