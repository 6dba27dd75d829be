#!/usr/bin/env python3
"""Writes a platform wheel of data files: no module of Python is in it. The same files give the same bytes.

usage: wheel.py FOLDER NAME VERSION PLATFORM_TAG OUT_FOLDER [REQUIREMENT ...]
FOLDER/scripts/* go to the environment's bin, FOLDER/data/* below its prefix. Symbolic links are refused: wheels have
none. SOURCE_DATE_EPOCH is the time of every file."""
import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile

SUMMARY = {"nereid": "Server of large language models on CPUs and NVIDIA GPUs: Triton's and OpenAI's APIs",
           "nereid-cuda": "NVIDIA GPU library of nereid"}


def metadata(name, version, requirements):
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", f"Summary: {SUMMARY[name]}",
             "License: Apache-2.0", "Classifier: Environment :: Console",
             "Classifier: License :: OSI Approved :: Apache Software License",
             "Classifier: Operating System :: POSIX :: Linux"]
    return "\n".join(lines + [f"Requires-Dist: {r}" for r in requirements]) + "\n"


def main(folder, name, version, tag, out_folder, *requirements):
    folder = pathlib.Path(folder)
    package = name.replace("-", "_")
    when = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    record = []
    out = pathlib.Path(out_folder) / f"{package}-{version}-py3-none-{tag}.whl"
    info = f"{package}-{version}.dist-info"
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as wheel:
        def add(path, content, mode):
            entry = zipfile.ZipInfo(path, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix: the upper half of external_attr is st_mode
            entry.external_attr = (0o100000 | mode) << 16
            wheel.writestr(entry, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(content)}\n")

        for path in sorted(folder.rglob("*")):
            if path.is_symlink():
                sys.exit(f"wheel: {path} is a symbolic link")
            if path.is_file():
                mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
                add(f"{package}-{version}.data/{path.relative_to(folder)}", path.read_bytes(), mode)
        add(f"{info}/METADATA", metadata(name, version, requirements).encode(), 0o644)
        add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: nereid\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n".encode(), 0o644)
        record.append(f"{info}/RECORD,,\n")
        entry = zipfile.ZipInfo(f"{info}/RECORD", when)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.create_system = 3
        entry.external_attr = 0o100644 << 16
        wheel.writestr(entry, "".join(record))
    print(f"wheel: {out}")


if __name__ == "__main__":
    main(*sys.argv[1:])
