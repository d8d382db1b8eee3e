"""Places of kernels: one tree (step / pass / layer / module / operator) for every backend's kernels.

`placement` holds the sources of places and their order. `names` are those of logical operators, `shares` what a fused
kernel serves, `places` the lines of a table's rows in the tree, `nodes` the tree over these lines for one side or
several. `aligned` places rows without marks by a run that has them, over `sequences` of which only certain pairs count.
"""
