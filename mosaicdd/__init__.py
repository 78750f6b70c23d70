"""Solve PDEs on large domains by inference with pretrained subdomain networks.

The folders, in the order in which they may import one another, are described in the README:
``cli``, ``report``, ``storage``, ``training``, ``schwarz``, ``parallel``, ``local_solvers``,
``problems``, ``lattice``.
"""

import os

# Ask Linux for pages of 2 MB where a tensor is large, as numpy does for arrays: of a solve of
# thousands of nodes a side, a fifth of the time goes into pages of 4 kB. Torch reads it once, when it
# first allocates.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

__version__ = "0.1.0"
