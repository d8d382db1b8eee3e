"""Arms a program of somebody else: finds its steps, modules and passes, and records a few of its steps.

What runs inside the program needs the standard library and torch only: the program's Python may have nothing else.
"""
