"""Cell problems: the effective conductivity of a medium."""
