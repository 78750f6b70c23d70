"""What is solved: equations, boundary data and reference solutions."""
