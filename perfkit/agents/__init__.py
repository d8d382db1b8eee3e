"""perfkit for code agents: a server of the Model Context Protocol over stdio, with bounded answers.

Each tool runs one perfkit command in a process of its own, so that a damaged profile ends that process and a long one
can be cancelled. Names and texts of profiles are data: they come back as JSON strings without control characters.
"""
