# SPDX-License-Identifier: ISC
"""server.py SOCKET: forks for each call of test/warm/python.c.

The fork takes that process's descriptors, directory, umask, limits, environment
and arguments, and runs its script as Python would.  It is killed if that process
ends first.  The server ends after its parent.

torch takes longest to import.  For a script that names it the fork is a client of
SOCKET.torch, which the server starts for the first of these.
"""
import argparse  # noqa: F401  for the forks, as what follows
import atexit
import gc
import hashlib  # noqa: F401
import importlib
import io
import itertools  # noqa: F401
import json  # noqa: F401
import math  # noqa: F401
import os
import re  # noqa: F401
import resource
import select
import shutil  # noqa: F401
import signal
import socket
import struct
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
import threading
import time
import traceback
import types

import numpy  # noqa: F401

PATH = sys.path[1:]
OPEN = io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom


def streams(descriptors):
    for to, fd in enumerate(descriptors):
        os.dup2(fd, to, inheritable=True)
        os.close(fd)
    errors = sys.stdout.errors
    sys.stdin = sys.__stdin__ = open(0, "r", errors=errors, closefd=False)
    raw = io.FileIO(1, "w", closefd=False)
    direct = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(
        raw if direct else io.BufferedWriter(raw), "utf-8", errors,
        line_buffering=raw.isatty(), write_through=direct)
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, closefd=False,
                                       errors="backslashreplace")


def become(request):
    """The state of the other process; returns its arguments."""
    cwd, mask, limits, n, *rest = request.split(b"\0")[:-1]
    n = int(n)
    os.chdir(cwd)
    os.umask(int(mask))
    for i, soft in enumerate(map(int, limits.split())):
        own = resource.getrlimit(i)
        if soft != own[0]:
            resource.setrlimit(i, (soft, own[1]))
    os.environb.clear()
    for line in rest[n:]:
        name, _, value = line.partition(b"=")
        os.environb[name] = value
    return [os.fsdecode(a) for a in rest[:n]]


def run(argv):
    """The script, as __main__."""
    argv = argv[1:]
    if argv[0] == "-B":
        sys.dont_write_bytecode = True
        argv = argv[1:]
    main = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    first, name = "", "<string>"
    if argv[0] == "-c":
        code = argv[1]
        argv = ["-c"] + argv[2:]
    elif argv[0] == "-":
        code, name = sys.stdin.buffer.read(), "<stdin>"
    else:
        name = main.__file__ = os.path.abspath(argv[0])
        first = os.path.dirname(os.path.realpath(name))
        try:
            with open(name, "rb") as f:
                code = f.read()
        except OSError as e:
            print("python: %s" % e, file=sys.stderr)
            return 2
    extra = os.environ.get("PYTHONPATH", "").split(":")
    sys.path[:] = [first] + [p for p in extra if p] + PATH
    sys.argv = argv
    try:
        try:
            exec(compile(code, name, "exec"), main.__dict__)
        finally:
            if argv[0] != "-c":  # Python does this before it reports an error
                sys.stdout.flush()
        return 0
    except SystemExit as e:
        if e.code is None or isinstance(e.code, int):
            return (e.code or 0) & 255
        print(e.code, file=sys.stderr)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as e:
        trace = e.__traceback__.tb_next  # without this function
        traceback.print_exception(type(e), e, trace)
    return 1


def ended(status):
    """What is left to do when a script has: as Python does it."""
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        for o in gc.get_objects():  # files that the script left open, too
            if type(o) in OPEN and not o.closed and o.writable():
                o.flush()
    except BaseException:
        status = 120
    os._exit(status)


def asks_torch(request):
    """Does the text of the script import torch?"""
    cwd, _, _, n, *rest = request.split(b"\0")
    argv = [a for a in rest[1:int(n)] if a != b"-B"]
    if argv[0] == b"-c":
        text = argv[1]
    else:
        try:
            with open(os.path.join(cwd, argv[0]), "rb") as f:
                text = f.read()
        except OSError:
            return False
    return re.search(rb"import\b.*\btorch\b", text) is not None


def relayed(descriptors, request, path):
    """Ends as the fork of the server at path does."""
    status = -signal.SIGKILL
    with socket.socket(socket.AF_UNIX) as to:
        for _ in range(3000):  # it may be importing torch
            if to.connect_ex(path) == 0:
                break
            time.sleep(0.02)
        socket.send_fds(to, [b"\0"], descriptors)
        to.sendall(request)
        to.shutdown(socket.SHUT_WR)
        for fd in descriptors:
            os.close(fd)
        status, = struct.unpack("i", to.recv(4) or struct.pack("i", status))
    if status < 0:
        if status != -signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def forked(descriptors, request):
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    argv = become(request)
    streams(descriptors)
    ended(run(argv))


def received(conn):
    """Descriptors and state from a process that has connected."""
    _, descriptors, _, _ = socket.recv_fds(conn, 1, 3)
    request = b"".join(iter(lambda: conn.recv(1 << 16), b""))
    return descriptors, request


def answer(running):
    """To each process whose fork has ended: its status, less than 0 a signal."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            break
        conn = running.pop(pid, None)
        if conn is None:  # the server with torch
            continue
        try:
            conn.send(struct.pack("i", os.waitstatus_to_exitcode(status)))
        except OSError:
            pass  # it ended first
        conn.close()


def imported(name):
    try:
        importlib.import_module(name)
    except ImportError:
        pass  # as its scripts will say


def serve(path, parent, torch=None):
    """torch: where scripts that import it are served, by a fork of this."""
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    own = os.getpid()
    running = {}  # fork: its connection
    began = False
    while os.getppid() == parent:
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        poll.register(woken, select.POLLIN)
        forks = {conn.fileno(): pid for pid, conn in running.items()}
        for fd in forks:
            poll.register(fd, 0)  # hangs up where that process has ended
        ready = {fd for fd, _ in poll.poll(1000)}
        for fd in ready & forks.keys():
            os.kill(forks[fd], signal.SIGKILL)
        if woken in ready:
            os.read(woken, 1 << 16)
            answer(running)
        if listener.fileno() not in ready:
            continue
        conn, _ = listener.accept()
        descriptors, request = received(conn)
        elsewhere = torch and asks_torch(request)
        pid = os.fork()
        if pid == 0:
            for other in (listener, conn, *running.values()):
                other.close()
            if elsewhere:
                relayed(descriptors, request, torch)
            forked(descriptors, request)
        running[pid] = conn
        for fd in descriptors:
            os.close(fd)
        if elsewhere and not began:
            began = True
            if os.fork() == 0:
                for other in (listener, conn, *running.values()):
                    other.close()
                imported("torch")
                return serve(torch, own)


serve(sys.argv[1], os.getppid(), sys.argv[1] + ".torch")
