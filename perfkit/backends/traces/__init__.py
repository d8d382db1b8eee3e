"""What the Thunder backends add to traces: where each symbol comes from, and marks that show it in a profile."""
