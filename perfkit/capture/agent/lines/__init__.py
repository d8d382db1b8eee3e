"""The source lines that a program runs, recorded in a step of their own."""
