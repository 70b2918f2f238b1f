# SPDX-License-Identifier: ISC
"""What a command says on a terminal."""

import array
import fcntl
import os
import pty
import re
import subprocess
import termios
import threading
import time

EVERY_S = 0.1  # between two drawings

# Of each kind one that no string of a file may bring to a terminal.
HOSTILE = (
    "\x01\a\b\t\n\v\r\x1b\x7f\x85\x9b\xad\u034f\u061c\u115f\u17b4\u180e"
    "\u200b\u200d\u200e\u2028\u202e\u2066\u2800\u3164\ufe0f\ufeff\uffa0\ufff0"
    "\ufff9\ufffe\uffff\U0001bca0\U0001d173\U000e0041")


def feed(pipe, pieces):
    """Each piece after the command has read those before it, and longer than
    EVERY_S: however fast it is, what follows has a drawing."""
    left = array.array("i", [0])
    try:
        for piece in pieces:
            pipe.write(piece)
            pipe.flush()
            fcntl.ioctl(pipe, termios.FIONREAD, left)
            while left[0]:
                time.sleep(0.01)
                fcntl.ioctl(pipe, termios.FIONREAD, left)
            time.sleep(1.5 * EVERY_S)
        pipe.close()
    except BrokenPipeError:  # it has seen enough
        pass


def run(command, pieces=None, stdout=False):
    """The exit status of the command, which gets the pieces, and all that its
    terminal got: standard error, and with 'stdout' standard output."""
    ours, its = pty.openpty()
    child = subprocess.Popen(
        command,
        stdin=None if pieces is None else subprocess.PIPE,
        stdout=its if stdout else None,
        stderr=its)
    os.close(its)
    if pieces is not None:
        threading.Thread(target=feed, args=(child.stdin, pieces), daemon=True).start()
    said = b""
    try:
        while True:
            said += os.read(ours, 4096)
    except OSError:  # the other end is closed
        os.close(ours)
    return child.wait(), said


def raw(said):
    """What of HOSTILE is in it, but lines and their tabs, and how our own
    progress is drawn (HOSTILE has no ESC [ K)."""
    said = re.sub(rb"\r([^\r\n\x1b]*)\x1b\[K", rb"\1", said)
    text = said.replace(b"\r\n", b"\n").decode("utf-8", "surrogateescape")
    return {c for c in text
            if c in HOSTILE.translate({9: None, 10: None}) or "\ud800" <= c <= "\udfff"}
