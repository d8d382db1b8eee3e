"""What the machine is and what it can do: identity, datasheet peaks, measured ceilings.

Importing this package loads neither torch nor pandas; measuring runs torch in a process of its own.
"""
