"""What is given: domain, equation, fields, conditions, and the fingerprint of all."""
