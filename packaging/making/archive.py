"""Archives whose bytes depend on their content alone: sorted names, one date, no owner, no
umask."""
from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from .source import epoch


@dataclass(frozen=True)
class Entry:
    """A file of an archive: its bytes, or where it links to."""
    data: bytes = b""
    executable: bool = False
    link: str = ""

    @property
    def mode(self) -> int:
        return 0o755 if self.executable else 0o644


def of_file(path: Path, executable: bool = False) -> Entry:
    return Entry(path.read_bytes(), executable)


def tar(entries: dict[str, Entry], folders: bool = False) -> bytes:
    """`folders`: with an entry for each folder, as an image's layer or a package has it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        seen: set[str] = set()
        for name, entry in sorted(entries.items()):
            parents = [str(parent) for parent in reversed(Path(name).parents) if str(parent) != "."]
            for parent in parents if folders else []:
                if parent not in seen:
                    seen.add(parent)
                    archive.addfile(header(parent + "/", 0o755, tarfile.DIRTYPE))
            if entry.link:
                info = header(name, 0o777, tarfile.SYMTYPE)
                info.linkname = entry.link
                archive.addfile(info)
            else:
                info = header(name, entry.mode, tarfile.REGTYPE)
                info.size = len(entry.data)
                archive.addfile(info, io.BytesIO(entry.data))
    return out.getvalue()


def header(name: str, mode: int, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode, info.type, info.mtime = mode, kind, epoch()
    return info


def compressed(data: bytes) -> bytes:
    return gzip.compress(data, 9, mtime=0)


def zip_of(entries: dict[str, Entry], behind: bytes = b"") -> bytes:
    """Sorted but for RECORD of a wheel, which comes last. `behind`: what comes first; offsets count
    from its begin."""
    date = time.gmtime(max(epoch(), 315532800))[:6]  # a zip knows no time before 1980
    out = io.BytesIO(behind)
    with zipfile.ZipFile(out, "a" if behind else "w", zipfile.ZIP_DEFLATED,
                         compresslevel=9) as archive:
        for name in sorted(entries, key=lambda name: (name.endswith("/RECORD"), name)):
            info = zipfile.ZipInfo(name, date)
            info.create_system = 3  # Unix, so that the mode below counts
            info.external_attr = (0o100000 | entries[name].mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, entries[name].data)
    return out.getvalue()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
