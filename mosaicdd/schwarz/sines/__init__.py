"""Constant coefficients on rectangles and boxes: the equations of all nodes, solved by transforms."""
