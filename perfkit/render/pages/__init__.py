"""Pages of other results than a report: comparisons, benchmarks, sweeps, histories, trainings, programs."""
