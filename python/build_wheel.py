# SPDX-License-Identifier: ISC
"""The wheel of tensorutils.py, with libtensorutils inside where it is found: what
pip builds it with, and make wheel: build_wheel.py DIRECTORY."""
import base64
import hashlib
import os
import re
import sys
import sysconfig
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
METADATA = """Metadata-Version: 2.1
Name: tensorutils
Version: %s
Summary: What the tools of tensorutils read and write, for numpy and torch
License: ISC
Requires-Python: >=3.8
Requires-Dist: numpy
"""
WHEEL = """Wheel-Version: 1.0
Generator: tensorutils
Root-Is-Purelib: false
Tag: %s
"""


def _read(*path):
    with open(os.path.join(HERE, *path), "rb") as f:
        return f.read()


def build_wheel(directory, config_settings=None, metadata_directory=None):
    """PEP 517: makes it in 'directory', and gives its name."""
    module = _read("tensorutils.py")
    version = re.search(b'^__version__ = "(.*)"', module, re.M)[1].decode()
    files = {"tensorutils.py": module}
    # where the module looks for it, but for the system's
    named = os.environ.get("TENSORUTILS_LIB")
    for path in (named and os.path.abspath(named),
                 os.path.join("..", "build", "libtensorutils.so." + version),
                 os.path.join("..", "..", "..", "lib", "libtensorutils.so.0")):
        if path and os.path.exists(os.path.join(HERE, path)):
            files["libtensorutils.so.0"] = _read(path)
            break
    tag = "py3-none-" + (re.sub("[-.]", "_", sysconfig.get_platform())
                         if len(files) > 1 else "any")
    info = "tensorutils-%s.dist-info/" % version
    files[info + "METADATA"] = (METADATA % version).encode()
    files[info + "WHEEL"] = (WHEEL % tag).encode()
    record = "".join("%s,sha256=%s,%d\n" % (
        name, base64.urlsafe_b64encode(hashlib.sha256(data).digest())
        .decode().rstrip("="), len(data)) for name, data in files.items())
    files[info + "RECORD"] = (record + info + "RECORD,,\n").encode()
    wheel = "tensorutils-%s-%s.whl" % (version, tag)
    with zipfile.ZipFile(os.path.join(directory, wheel), "w",
                         zipfile.ZIP_DEFLATED) as z:
        for name, data in files.items():  # the same files, the same bytes
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o644 << 16
            z.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return wheel


if __name__ == "__main__":
    print(os.path.join(sys.argv[1], build_wheel(sys.argv[1])))
