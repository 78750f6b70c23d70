"""Independent reference solutions."""
