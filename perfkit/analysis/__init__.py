"""Kernel tables to results: what takes the time, how far it is from the roof, and what to do about it.

`roofline` judges rows, `report` sums them up by place, kind and cause, `rules` finds what to do next, `fusion` predicts
what compilers save, `timeline` lays rows out in time. `results` has the records that renderers show.
"""
