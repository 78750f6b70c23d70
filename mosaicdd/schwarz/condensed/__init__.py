"""Media, sides and shapes: Krylov iterations on the interface of condensed elements."""
