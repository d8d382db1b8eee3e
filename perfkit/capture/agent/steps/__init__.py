"""The steps of a program: which moments end them, in which threads, and their passes."""
