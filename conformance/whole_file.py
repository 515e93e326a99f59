"""Files that appear whole or not at all: readers see the old content or the new, never half of either."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, *, suffix: str = "") -> Iterator[BinaryIO]:
    """A stream whose content takes the place of `path`, forced to the disk, once the context ends without an error.

    It is written beside `path`, under a name of its own that ends in `suffix`; after an error nothing of it is left
    and `path` is untouched. The folder must be there. Raises OSError.
    """
    import tempfile  # not for those who only read

    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=suffix)
    written = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp's 0600 would hide the file from those whom the umask lets read.
        written.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
