"""From events to their places: step, pass, module, range and logical operator, each with its evidence.

steps, passes, modules, autograd, places    of events on the host
launches                                    of activities on a GPU: what launched them
lines, call_sites                           what generated code says of its own kernels
columns                                     all of it: `place`, and the place columns of rows
"""
