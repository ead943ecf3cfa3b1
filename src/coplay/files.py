"""Writing a file so that whoever is killed, or runs out of disk, leaves the old one or the new one; and
locks, so that two processes do not write to one folder."""

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from coplay.errors import BadInput

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

TEMPORARY = ".writing-"  # how the name of a file in the making begins


class InUse(BadInput):
    """Another process is writing there."""


class SaveFailed(RuntimeError):
    """The disk did not take what we wanted to keep; what was there before is untouched."""


def replace_file(path: Path, content: bytes) -> None:
    """Write beside `path`, force it to the disk, then rename: readers see all of it or none."""
    replace_files({path: content})


def replace_files(contents: dict[Path, bytes]) -> None:
    """The same for files of one folder that belong together, renamed in the order given.

    A full disk shows before the first rename; the last file may vouch for the others.
    """
    temporaries = {path: path.parent / f"{TEMPORARY}{path.name}" for path in contents}
    try:
        for path, temporary in temporaries.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_to_disk(temporary, contents[path])
        for path, temporary in temporaries.items():
            os.replace(temporary, path)
            _sync_folder(path.parent)
    except OSError as error:
        for temporary in temporaries.values():
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise SaveFailed(
            f"{path} was not written ({error.strerror or error}); earlier files are untouched. "
            "Free some space or make the folder writable, then go on"
        ) from error


def sweep(folder: Path) -> None:
    """Remove what a killed writer left half made; for whoever holds the folder's lock."""
    for leftover in folder.glob(f"{TEMPORARY}*"):
        leftover.unlink(missing_ok=True)


def can_lock() -> bool:
    """Whether this system has file locks at all."""
    return fcntl is not None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Whoever else asks for the same lock meanwhile is told `InUse`. The system drops it when the process
    ends, however it ends."""
    with _lock_file(folder) as file:
        _take_lock(folder, file)
        yield


def _lock_file(folder: Path):
    try:
        return open(folder / ".lock", "a+", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{folder} cannot be locked for writing ({error.strerror})") from error


def _take_lock(folder: Path, file) -> None:
    if fcntl is None:  # as can_lock says; asked so that types are known
        warnings.warn(f"this system has no file locks: let no other process write to {folder}", stacklevel=5)
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InUse(f"{folder} is in use by another process; wait until it ends, or stop it") from None
    except OSError as error:  # some network file systems
        warnings.warn(
            f"{folder} cannot be locked ({error.strerror}): let no other process write", stacklevel=5
        )


def _write_to_disk(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable; Windows cannot open a folder and does not need it."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """Where coplay keeps what it can make again: $COPLAY_CACHE, or a folder in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "coplay"
    return Path(os.environ.get("COPLAY_CACHE", default))
