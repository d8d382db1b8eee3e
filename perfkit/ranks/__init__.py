"""Several ranks of one job: what each waits for, who is late, by how much, and why.

    member → match collectives → align clocks → divide waiting from transfer → parts of each rank → lateness → cause

A collective can end on no rank before its last rank has arrived. So its own time is the shortest of its kernels; what
the kernel of another rank takes longer, that rank waits. This needs no common clock: clocks are aligned for drawing.
"""
