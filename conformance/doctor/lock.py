"""Does another run of this user own the device?"""

from __future__ import annotations

from pathlib import Path

from conformance.doctor.finding import Finding, ok, warning
from conformance.execution.deadline import Deadline
from conformance.execution.errors import DeadlineExceeded
from conformance.execution.lock import device_lock


def check(device: str, folder: Path | None = None) -> Finding:
    """Take the device's lock and give it back at once. `folder` is the user's runtime folder unless given."""
    try:
        with device_lock(device, Deadline.after(0.0), lambda holder: None, folder=folder):
            return ok("other runs", f"no other run of this user holds {device}")
    except DeadlineExceeded as error:
        return warning("other runs", str(error).partition(" after ")[0], "wait for it: a run started now would wait")
    except OSError as error:
        found = f"the lock of {device} cannot be taken: {error}"
        return warning("other runs", found, "give XDG_RUNTIME_DIR a folder of this user that can be written")
