#!/usr/bin/env python3
"""Writes the SBOM (SPDX 2.3, JSON) of an installed folder, and the copyright notices of the libraries in it.

usage: sbom.py FOLDER VERSION SBOM_FILE NOTICES_FILE [LIBRARY ...]
Libraries are those in FOLDER/lib and the LIBRARY paths of this machine, each with the Debian package that dpkg names;
to these come the packages whose headers are compiled in. SOURCE_DATE_EPOCH is the time in the SBOM."""
import datetime
import hashlib
import json
import os
import pathlib
import subprocess
import sys

HEADERS = ("libboost1.81-dev", "libboost-dev", "libcli11-dev", "libtomlplusplus-dev", "libxxhash-dev", "libspdlog-dev", "libfmt-dev", "libabsl-dev")
OWN = ("libtritonserver.so", "libnereid_cuda.so")


def dpkg(*words):
    return subprocess.run(["dpkg-query", *words], capture_output=True, text=True).stdout


def package_of(library):
    """The package that has the library in a folder of the loader; "" without one."""
    for line in dpkg("-S", f"*/{library}").splitlines():
        owner, path = line.split(": ", 1)
        if pathlib.Path(path).parent.name in ("x86_64-linux-gnu", "lib64", "lib") and "," not in owner:
            return owner.split(":")[0]
    return ""


def entry(name, version, source, libraries):
    upstream = version.split(":")[-1].rsplit("-", 1)[0]
    out = {
        "SPDXID": "SPDXRef-" + name.replace("_", "-").replace("+", "-plus"),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": f"pkg:deb/debian/{name}@{version}?arch=amd64"}],
        "sourceInfo": f"built from the Debian source package {source}, upstream version {upstream}",
    }
    if libraries:
        out["comment"] = "files: " + ", ".join(sorted(libraries))
    return out


def main(folder, version, sbom_file, notices_file, *more):
    folder = pathlib.Path(folder)
    libraries = {}
    for name in sorted({path.name for path in folder.glob("lib/*.so*")} | {pathlib.Path(path).name for path in more}):
        if name in OWN or name.startswith("libcublasLt"):
            continue
        package = package_of(name)
        if not package:
            sys.exit(f"sbom: no package of this machine has {name}")
        libraries.setdefault(package, []).append(name)
    for package in HEADERS:
        if dpkg("-W", "-f=${Status}", package).startswith("install ok installed"):
            libraries.setdefault(package, [])

    created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    own = {"SPDXID": "SPDXRef-nereid", "name": "nereid", "versionInfo": version, "downloadLocation": "NOASSERTION",
           "filesAnalyzed": False, "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0",
           "copyrightText": "NOASSERTION", "primaryPackagePurpose": "APPLICATION"}
    packages, relations, notices = [own], [], []
    relations.append({"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": own["SPDXID"]})
    for package in sorted(libraries):
        found, source = dpkg("-W", "-f=${Version} ${source:Package}\n", package).splitlines()[0].split(" ")
        packages.append(entry(package, found, source, libraries[package]))
        kind = "CONTAINS" if libraries[package] else "STATIC_LINK"
        relations.append({"spdxElementId": own["SPDXID"], "relationshipType": kind,
                          "relatedSpdxElement": packages[-1]["SPDXID"]})
        text = pathlib.Path(f"/usr/share/doc/{package}/copyright").read_text(errors="replace")
        if text not in [other for _, other in notices]:
            notices.append((package, text))
    seed = hashlib.sha256("\n".join(f"{p['name']} {p['versionInfo']}" for p in packages).encode()).hexdigest()[:32]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"nereid-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/nereid-{version}-{seed}",
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: tools/packages/sbom.py"]},
        "packages": packages,
        "relationships": relations,
    }
    pathlib.Path(sbom_file).write_text(json.dumps(document, indent=1) + "\n")
    with open(notices_file, "w") as out:
        out.write("nereid has these libraries with it, each under its own terms.\n")
        for package, text in notices:
            out.write(f"\n{'=' * 20} {package}\n\n{text.rstrip()}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
