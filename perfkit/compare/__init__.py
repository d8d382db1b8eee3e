"""Recording the sides of a comparison, judging, aligning and explaining them, baselines and the gate."""
