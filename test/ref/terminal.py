"""What a command says on standard error when that is a terminal."""

import os
import pty
import subprocess


def run(command):
    """The exit status of the command, and all that its terminal got."""
    ours, its = pty.openpty()
    child = subprocess.Popen(command, stderr=its)
    os.close(its)
    said = b""
    try:
        while True:
            said += os.read(ours, 4096)
    except OSError:  # the other end is closed
        os.close(ours)
    return child.wait(), said
