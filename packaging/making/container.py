"""An image of the library alone, as an OCI layout: a folder that every registry client copies
(skopeo, crane, oras).

    index.json --> 0.1.0        linux/amd64, linux/arm64     for images with the GNU C library
               --> 0.1.0-musl   linux/amd64, linux/arm64     for images with musl (Alpine)

Both have /usr/lib/libloam.so, whatever the processor.
"""
from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path

from . import archive, native
from .source import ROOT, epoch, version

PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}
LIBRARY = "usr/lib/libloam.so"


class Layout:
    def __init__(self, folder: Path) -> None:
        self.blobs = folder / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)

    def put(self, data: bytes, kind: str, **more: object) -> dict[str, object]:
        """The blob's descriptor."""
        name = archive.sha256(data)
        (self.blobs / name).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{name}",
                "size": len(data), **more}


def text(value: object) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def image(layout: Layout, variant: native.Variant, work: Path) -> dict[str, object]:
    built = native.build(variant, work)
    files = {LIBRARY: archive.Entry(native.stripped(built / "libloam.so", variant), True),
             "usr/share/doc/loam/LICENSE": archive.of_file(ROOT / "LICENSE")}
    layer = archive.tar(files, folders=True)
    made = datetime.datetime.fromtimestamp(epoch(),
                                           datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    platform = {"os": "linux", "architecture": PROCESSORS[variant.processor]}
    config = layout.put(text({
        **platform, "created": made,
        "config": {"Labels": {"org.opencontainers.image.version": version()}},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{archive.sha256(layer)}"]},
        "history": [{"created": made, "created_by": "packaging/build container"}]}),
                        "config.v1+json")
    manifest = layout.put(text({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layout.put(archive.compressed(layer), "layer.v1.tar+gzip")]}),
                          "manifest.v1+json")
    return {**manifest, "platform": platform}


def make(work: Path, out: Path, variants: list[str]) -> list[Path]:
    folder = out / f"loam-{version()}-image"
    shutil.rmtree(folder, ignore_errors=True)
    layout = Layout(folder)
    tags: dict[str, list[dict[str, object]]] = {}
    for name in variants:
        variant = native.VARIANTS[name]
        tag = version() + ("-musl" if variant.libc == "musl" else "")
        tags.setdefault(tag, []).append(image(layout, variant, work))
    index = [layout.put(text({"schemaVersion": 2,
                              "mediaType": "application/vnd.oci.image.index.v1+json",
                              "manifests": manifests}), "index.v1+json",
                        annotations={"org.opencontainers.image.ref.name": tag}) for tag,
             manifests in tags.items()]
    (folder / "oci-layout").write_bytes(text({"imageLayoutVersion": "1.0.0"}))
    (folder / "index.json").write_bytes(text({"schemaVersion": 2, "manifests": index}))
    return [folder]
