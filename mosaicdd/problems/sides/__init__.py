"""What holds on sides and outlines: conditions, their parts and values."""
