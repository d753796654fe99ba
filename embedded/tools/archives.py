"""One file out of a tar archive: no other name in it is used as a path, so none can lead anywhere."""

import shutil
import tarfile
from pathlib import Path

from .download import DownloadError

MAX_BYTES = 2 * 10**9
"""More than any tool has."""


def extract(archive: Path, member: str, target: Path) -> bool:
    """Writes the regular file that is called `member` in an archive. False if nothing in it is called so.

    Raises `DownloadError` if that is a link, a device or too large, or if this is no archive.
    """
    try:
        with tarfile.open(archive, "r|*") as tar:
            for entry in tar:
                if entry.name.removeprefix("./") != member:
                    continue
                source = tar.extractfile(entry) if entry.isreg() and entry.size <= MAX_BYTES else None
                if source is None:
                    raise DownloadError(f"{archive.name}: {member} is no regular file of a usual size")
                with target.open("wb") as written:
                    shutil.copyfileobj(source, written, 1 << 20)
                return True
    except (tarfile.TarError, EOFError, OSError) as error:
        target.unlink(missing_ok=True)
        raise DownloadError(f"{archive.name} cannot be unpacked: {error}") from None
    return False
