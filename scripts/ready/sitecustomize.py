"""What Python runs first where this folder is in its path: memory is touched, for what is measured later.

A virtual machine that lends its free memory to others gets it back page by page, for up to 2.5 s per GB. With
`environment` the C library keeps what was freed, so every process of a table pays for that before it begins.
"""

import os

_SIZE = "READY_BYTES"


def environment(size: float) -> dict[str, str]:
    """Return what processes find so many bytes by, as variables of the environment."""
    keep = "mmap_max=0", f"trim_threshold={2**40}", f"top_pad={2**26}"
    return {
        _SIZE: str(int(size)),
        "PYTHONPATH": os.pathsep.join(
            [os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")]
        ),
        "GLIBC_TUNABLES": ":".join(f"glibc.malloc.{one}" for one in keep),
    }


if _SIZE in os.environ:
    b"1" * int(os.environ[_SIZE])
