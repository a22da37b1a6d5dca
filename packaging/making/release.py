"""What goes with the packages of a release: a bill of materials (CycloneDX) and SHA256SUMS."""
from __future__ import annotations

import datetime
import json
import tomllib
import uuid
from pathlib import Path

from . import archive
from .source import ROOT, Failed, epoch, files, version


def components() -> list[dict[str, object]]:
    """The crates that the tool is built from, by its lock file. The library has none."""
    lock = tomllib.loads((ROOT / "tool/Cargo.lock").read_text())
    found: list[dict[str, object]] = []
    for package in lock["package"]:
        if "checksum" in package:
            reference = f"pkg:cargo/{package['name']}@{package['version']}"
            found.append({"type": "library", "name": package["name"], "version": package["version"],
                          "purl": reference,
                          "bom-ref": reference,
                          "hashes": [{"alg": "SHA-256", "content": package["checksum"]}]})
    return found


def bill() -> bytes:
    made = datetime.datetime.fromtimestamp(epoch(),
                                           datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    subject = {"type": "application", "name": "loam", "version": version(),
               "bom-ref": f"pkg:generic/loam@{version()}",
               "licenses": [{"license": {"id": "MIT"}}]}
    parts = components()
    vendored = {"type": "library", "name": "echarts", "bom-ref": "pkg:npm/echarts",
                "purl": "pkg:npm/echarts",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "description": "in the tool, for its pages; tool/loam-report/vendor/echarts"}
    document = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'loam {version()} {epoch()}')}",
        "metadata": {"timestamp": made, "component": subject}, "components": [*parts, vendored],
        "dependencies": [{"ref": subject["bom-ref"],
                          "dependsOn": [part["bom-ref"] for part in [*parts, vendored]]}]}
    return (json.dumps(document, indent=1) + "\n").encode()


def sources() -> bytes:
    top = f"loam-{version()}"
    return archive.compressed(archive.tar({
        f"{top}/{name}": archive.of_file(ROOT / name, (ROOT / name).stat().st_mode & 0o100 != 0)
        for name in files(".") if not (ROOT / name).is_symlink()}))


def make(_: Path, out: Path, __: list[str]) -> list[Path]:
    """pre: the packages lie in `out`"""
    # One file for the image, as others are.
    for layout in out.glob("loam-*-image"):
        entries = {str(path.relative_to(layout)): archive.of_file(path)
                   for path in layout.rglob("*") if path.is_file()}
        (out / f"{layout.name}.tar").write_bytes(archive.tar(entries, folders=True))
    (out / f"loam-{version()}.cdx.json").write_bytes(bill())
    (out / f"loam-{version()}.tar.gz").write_bytes(sources())
    packed = sorted(path for path in out.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    if not any(path.suffix == ".crate" for path in packed):
        raise Failed(f"{out} has no packages; run `make packages`")
    sums = out / "SHA256SUMS"
    sums.write_text("".join(f"{archive.sha256(path.read_bytes())}  {path.name}\n"
                            for path in packed))
    return [sums]
