"""Sections of a backend that are files of their own; `perfkit.render.report` finds them by looking into this folder.

A module has `AFTER`, the name of the section in `perfkit.render.report.OF_BACKEND` that it follows, and
`sections(about)`, which yields `Section`s. One with the name of a field of `BackendReport` is imported and asked only
where that field holds something.
"""
