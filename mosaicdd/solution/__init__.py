"""From a problem to its solution: plans, batches, results, files, checkpoints."""
