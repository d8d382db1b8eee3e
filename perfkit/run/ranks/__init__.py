"""A backend in several processes, one a rank: started, given the same commands, and on several hosts."""
