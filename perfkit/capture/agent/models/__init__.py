"""The models of a program: which they are, what is in them, how they were built and compiled."""
