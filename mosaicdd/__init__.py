"""Solve PDEs on large domains by inference with pretrained subdomain networks.

The folders, in the order in which they may import one another, are described in the README:
``cli``, ``report``, ``storage``, ``training``, ``schwarz``, ``parallel``, ``local_solvers``,
``problems``, ``lattice``.
"""

__version__ = "0.1.0"
