"""What a solve leaves: outcomes, fields in files, reports, checkpoints."""
