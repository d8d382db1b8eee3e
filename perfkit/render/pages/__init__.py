"""Pages of results other than a run's report: comparisons, benchmarks, sweeps, histories, trainings, generated programs."""
