"""Pages of results beside a run's report: comparisons, benchmarks, sweeps, histories, trainings, generated programs."""
