"""Equations in time, ``du/dt + A u = f``, in implicit steps: each is a problem that a `Solver` solves.

`march` is what programs call, `Series` what it gives. A step's problem has one over the step (times a
weight of the method) more in its reaction, and the last values in its source; so it is planned once for
each length of a step.
"""
