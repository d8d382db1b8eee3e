"""Captures of Nsight Systems as kernel tables: from the sqlite export (`capture.read_export`), or through nsys."""
