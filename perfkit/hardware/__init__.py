"""The machine and its limits: identity, datasheet peaks, measured ceilings.

Reading ceilings and identity loads neither torch nor pandas; measuring runs torch in a process of its own.
"""
