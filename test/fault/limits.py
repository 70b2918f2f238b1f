# SPDX-License-Identifier: ISC
"""limits.py DIR: runs the commands of cases.sh, whose lines are standard input,
where what surrounds them is not as it should be, and judges what they do.

DIR has in/, their inputs.  A run must end, with a documented status and, if it
failed, one line on standard error; outputs are then what they were before, or
what they are to be.  Prints a line for each run that broke a rule, a count of
each condition, and "limits: N runs, N bad"; status 1 if any was bad.
"""
import errno
import fnmatch
import os
import random
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time

LIMIT_S = 60
BUILD = os.environ["BUILD"]
SHIM = os.path.join(os.path.abspath(sys.argv[1]), "shim.so")
NETFS = os.path.join(os.path.abspath(sys.argv[1]), "netfs.so")
NOBODY = 65534
DEVICES = {"/dev/null": os.makedev(1, 3), "/dev/full": os.makedev(1, 7)}
HOPELESS = 32 << 20  # bytes in which not even ld.so can say what is wrong
LOADER_SAYS = (b"error while loading shared libraries",
               b"cannot allocate TLS data structures")
FAILED = {65, 66, 70, 73, 74, 75}
# fault.h's enum fault_class
CLASSES = {"map": 2, "open": 3, "read": 4, "copy": 6, "stat": 11, "close": 15}

counts, bad = {}, 0
told = 0  # runs that LACKING made fail


def read_tree(top):
    """{path: (mode, what is in it)} of all below."""
    found = {}
    for directory, directories, files in os.walk(top):
        for name in directories + files:
            path = os.path.join(directory, name)
            mode = os.lstat(path).st_mode
            if os.path.islink(path):
                what = os.readlink(path)
            elif os.path.isfile(path):
                with open(path, "rb") as f:
                    what = f.read()
            else:
                what = None
            found[os.path.relpath(path, top)] = (mode, what)
    return found


class Result:
    def __init__(self, status, out, says, tree):
        self.status, self.out, self.says, self.tree = status, out, says, tree


class Case:
    """A line of the table, in DIR/NAME."""

    def __init__(self, line):
        name, before, options, command = (s.strip() for s in line.split("|"))
        self.name = name
        self.argv = command.split()
        self.input = "/dev/null"
        self.keep = None
        self.many = self.others = self.tells = False
        words = iter(options.split())
        for word in words:
            if word == "-i":
                self.input = next(words)
            elif word == "-k":
                self.keep = next(words)
            elif word in ("-q", "-r", "-c"):
                next(words)
            elif word == "-m":
                self.many = True
            elif word == "-o":
                self.others = True
            elif word == "-w":
                self.tells = True
        os.makedirs(name + "/out")
        os.chdir(name)
        os.symlink("../in", "in")
        subprocess.run(["sh", "-c", before], check=True)
        shutil.copytree("out", "before", symlinks=True)
        os.chmod(".", 0o777)
        self.before = read_tree("out")
        self.whole = self.run()
        assert self.whole.status in (0, 1), (name, self.whole.says)

    def restore(self):
        if read_tree("out") != self.before:
            shutil.rmtree("out")
            shutil.copytree("before", "out", symlinks=True)

    def run(self, argv=None, prepare=None, env=None, stdin=None, out=None,
            says=None, meanwhile=None, end_s=LIMIT_S):
        self.restore()
        ends = os.pipe()  # which no ulimit -f closes
        try:
            with open(stdin or self.input, "rb") as f, \
                    open("stdout", "w+b") as words:
                p = subprocess.Popen(argv or self.argv, stdin=f,
                                     stdout=out or words,
                                     stderr=says or ends[1],
                                     preexec_fn=prepare,
                                     env=dict(os.environ, **(env or {})))
                status = wait(p.pid, meanwhile, end_s)
                p.returncode = 0  # waited for
                words.seek(0)
                os.write(ends[1], b"\0")
                said = os.read(ends[0], 1 << 20)[:-1]
                return Result(status, words.read(), said, read_tree("out"))
        finally:
            os.close(ends[0])
            os.close(ends[1])


def wait(pid, meanwhile, end_s):
    """The status, 128 + N of a signal, -1 where it did not end.  Stopped, it
    continues after meanwhile()."""
    end = time.monotonic() + end_s
    while True:
        got, status = os.waitpid(pid, os.WUNTRACED | os.WNOHANG)
        if got and os.WIFSTOPPED(status):
            if meanwhile:
                meanwhile()
            os.kill(pid, signal.SIGCONT)
        elif got:
            return (128 + os.WTERMSIG(status) if os.WIFSIGNALED(status)
                    else os.WEXITSTATUS(status))
        elif time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return -1
        time.sleep(.0005)


def broken(case, how, r, what):
    global bad
    bad += 1
    says = r.says.decode(errors="replace").splitlines()
    print(f"# {case.name}: {how}: status {r.status}: {what}")
    if says:
        print("#   " + says[-1][:300])
    sys.stdout.flush()


def is_waste(case, path):
    return case.keep and fnmatch.fnmatch(path, case.keep)


def judge_tree(case, how, r):
    trees = case.before, case.whole.tree
    paths = sorted({p for t in (*trees, r.tree) for p in t})
    if how.startswith("ulimit -n"):  # it could not be opened: for the next run
        paths = [p for p in paths if not fnmatch.fnmatch(p, ".*.old*")]
    same = [all(t.get(p) == r.tree.get(p) for p in paths) for t in trees]
    for path in paths:
        entry = r.tree.get(path)
        if all(t.get(path) != entry for t in trees) and not (
                entry and is_waste(case, path)) and not case.others:
            broken(case, how, r, f"{path} is neither the old nor the new")
            return
    if r.status == case.whole.status and not same[1] and not case.others:
        broken(case, how, r, "success, but not the output")
    elif r.status != case.whole.status and not (
            any(same) or case.many or case.keep):
        broken(case, how, r, "some of the output")


def judge(case, kind, how, r, allowed=FAILED, same=False, words=True,
          says=True, changed=False):
    """'same': it must not notice; 'words', 'says': streams that can be read;
    'changed': what it read was another's."""
    counts[kind] = counts.get(kind, 0) + 1
    how = f"{kind} {how}"
    done = r.status == case.whole.status
    lines = [s for s in r.says.splitlines(True)
             if s not in case.whole.says.splitlines(True)]
    tool = os.path.basename(case.argv[0]).encode() + b": "
    if r.status == -1:
        broken(case, how, r, f"did not end in {LIMIT_S} s")
    elif done and words and not changed and not case.others and (
            r.out != case.whole.out):
        broken(case, how, r, "success, but other words")
    elif not done and same:
        broken(case, how, r, "should not have been noticed")
    elif not done and r.status not in allowed:
        broken(case, how, r, "not a status for that")
    elif not done and says and r.status > 2 and not (
            case.tells and not lines) and (
            len(lines) != 1 or not lines[0].startswith(tool)
            or not lines[0].endswith(b"\n")):
        broken(case, how, r, f"{len(lines)} lines, not one \"tool: what\"")
    elif not changed:
        judge_tree(case, how, r)
    elif any(".tmp." in p for p in r.tree):
        broken(case, how, r, "a temporary stays")


# ---- what there is too little of ----

def limit(what, value, most=None):
    return lambda: resource.setrlimit(what, (value, most or value))


def too_little(case):
    doublings = [1 << n for n in range(22, 30)]
    lists = (
        ("-v", resource.RLIMIT_AS,
         sorted(v * k // 8 for v in doublings for k in (8, 9, 10, 12, 14))),
        ("-d", resource.RLIMIT_DATA, [1 << n for n in range(16, 28)]),
        ("-s", resource.RLIMIT_STACK, [16 << 10, 64 << 10, 256 << 10, 1 << 20]),
        ("-n", resource.RLIMIT_NOFILE, [*range(3, 16), 20, 30, 50]),
        ("-f", resource.RLIMIT_FSIZE, [0, 1, 511, 4096, 10000, 65536, 262144]),
    )
    for name, what, values in lists:
        for value in values:
            try:
                r = case.run(prepare=limit(what, value))
            except (OSError, subprocess.SubprocessError):
                continue  # it cannot even be started
            if any(said in r.says for said in LOADER_SAYS):
                continue
            if r.status > 128 and not r.says and value < HOPELESS and (
                    name in ("-v", "-s", "-d")):
                continue
            judge(case, "ulimit " + name, value, r)


def one_task(case):
    """No thread more, as one who is not root: root has no such limit."""
    def prepare():
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))

    if os.geteuid() == 0:
        case.restore()
        for directory, directories, files in os.walk("out"):
            for name in ["."] + directories + files:
                os.chown(os.path.join(directory, name), NOBODY, NOBODY,
                         follow_symlinks=False)
    try:
        r = case.run(prepare=prepare)
    except (OSError, subprocess.SubprocessError):
        return
    judge(case, "ulimit -u", 1, r)
    shutil.rmtree("out")
    shutil.copytree("before", "out", symlinks=True)


# ---- streams ----

def streams(case):
    for fds in (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2):
        r = case.run(prepare=lambda f=fds: [os.close(fd) for fd in f])
        judge(case, "closed", fds, r, words=1 not in fds, says=2 not in fds)
    with open("/dev/full", "wb") as full:
        judge(case, "full", "out", case.run(out=full), words=False)
        judge(case, "full", "err", case.run(says=full), says=False)
        judge(case, "full", "both", case.run(out=full, says=full),
              words=False, says=False)


# ---- time ----

def clocks(case):
    for seconds in 10 ** 9, -10 ** 9, 1:
        r = case.run(env={"LD_PRELOAD": SHIM, "FAULT_CLOCK": str(seconds)})
        judge(case, "clock", seconds, r, same=True)


def points():
    a, b = 1, 2
    while True:
        yield a
        a, b = b, a + b


def stops(case, kind, act=None, **how):
    """Stops it after some calls of each class, that act() may be done."""
    for name, number in CLASSES.items():
        for n in points():
            was_there = []

            def meanwhile():
                was_there.append(1)
                if act:
                    act()
            r = case.run(env={"LD_PRELOAD": SHIM,
                              "FAULT_STOP": f"{number} {n}"},
                         meanwhile=meanwhile)
            if not was_there:
                break
            judge(case, kind, f"{name} {n}", r, **how)
            if act:
                act.undo()


# ---- inputs ----

def named(words):
    """Files and directories of in/ in words; "a,b" names two, "a@1" one."""
    paths = (re.sub(r"@\d+$", "", path) for word in words
             for path in word.split(","))
    return sorted({path for path in paths if path.startswith("in/")})


def inputs_of(case):
    found = []
    for path in named([case.input] + case.argv):
        if os.path.isfile(path):
            found.append(path)
        else:
            found += [os.path.join(top, n) for top, _, names in os.walk(path)
                      for n in names]
    return sorted(set(found))


class Change:
    """Does something else to a file each time."""

    def __init__(self, path, rng):
        self.path, self.rng = path, rng
        with open(path, "rb") as f:
            self.was = f.read()

    def __call__(self):
        n = len(self.was)
        how = self.rng.randrange(6)
        if how < 3:
            os.truncate(self.path, (0, n // 2, max(n - 1, 0))[how])
        elif how == 3:
            with open(self.path, "ab") as f:
                f.write(b"x" * 5000)
        elif how == 4:
            os.rename(self.path, self.path + ".moved")
            with open(self.path, "wb") as f:
                f.write(b"{}" * (n // 3))
        else:
            os.rename(self.path, self.path + ".moved")

    def undo(self):
        if os.path.exists(self.path + ".moved"):
            os.rename(self.path + ".moved", self.path)
        with open(self.path, "wb") as f:
            f.write(self.was)


def changes(case):
    rng = random.Random(8)
    files = inputs_of(case)
    for path in rng.sample(files, min(3, len(files))):
        stops(case, "changed", Change(path, rng), changed=True,
              allowed=FAILED | {0, 1, 2})


def with_word(case, old, new):
    name = rf"(^|,){re.escape(old)}(?=$|,|@\d+$)"
    return [re.sub(name, lambda m: m[1] + new, w) for w in case.argv]


def odd_inputs(case):
    """Each file or directory of the command line is something else."""
    os.mkdir("empty")
    os.mkfifo("fifo")
    for word in named(case.argv):
        os.symlink(os.path.abspath(word), "link")
        odd = dict(changed=True, allowed=FAILED | {0, 1, 2})
        r = case.run(with_word(case, word, "link"))
        judge(case, "input", f"{word} a link", r, words=False, changed=True,
              same="--resume" not in case.argv)  # which knows names
        os.unlink("link")
        for what in "/dev/null", "/dev/full", "empty", "missing", "out", "-":
            # of /dev/full there is no end
            r = case.run(with_word(case, word, what),
                         prepare=limit(resource.RLIMIT_CPU, 2, 20))
            if what == "/dev/full" and r.status in (75, 128 + signal.SIGXCPU):
                continue
            judge(case, "input", f"{word} {what}", r, **odd)
        if os.path.isfile(word):
            feeder = subprocess.Popen(
                ["sh", "-c", 'while :; do cat "$1" >fifo; sleep .1; done',
                 "sh", word], stderr=subprocess.DEVNULL,
                start_new_session=True)
            r = case.run(with_word(case, word, "fifo"), end_s=20)
            os.killpg(feeder.pid, signal.SIGKILL)
            feeder.wait()
            judge(case, "input", f"{word} a FIFO", r, **odd)
    os.rmdir("empty")
    os.unlink("fifo")


def own_input(case):
    """tool x > x, and tool x >> x."""
    for path in inputs_of(case)[:3]:
        with open(path, "rb") as f:
            was = f.read()
        for mode in "wb", "ab":
            with open(path, mode) as f:
                r = case.run(out=f, prepare=limit(resource.RLIMIT_FSIZE,
                                                  len(was) + (1 << 20)))
            judge(case, "onto its input", mode, r, words=False, changed=True,
                  allowed=FAILED | {0, 1, 2})
            with open(path, "wb") as f:
                f.write(was)


# ---- outputs ----

def odd_outputs(case):
    """Each output is something else, or where none can be."""
    long = "out/" + "x" * 300
    for word in sorted({w for w in case.argv if w.startswith("out")}):
        for what in ("/dev/null", "/dev/full", "no/such/directory/x", long,
                     word + "/", "in/sums/x", "/proc/x", "/proc", ""):
            r = case.run(with_word(case, word, what))
            judge(case, "output", f"{word} {what[:20]}", r, changed=True,
                  allowed=FAILED | {0, 2})
            if what in DEVICES:
                still_there(case, what, r)
        for name, mode in (("read-only", 0o555), ("sticky", 0o1777)):
            odd_dir(case, word, name, mode)
        for target in "nothing", "in/a.f32":
            odd_link(case, word, target)
        os.mkfifo("fifo")
        reader = subprocess.Popen(["sh", "-c", "exec cat <fifo >/dev/null"])
        r = case.run(with_word(case, word, "fifo"), end_s=20)
        reader.kill()
        reader.wait()
        os.unlink("fifo")
        judge(case, "output", f"{word} a FIFO", r, changed=True,
              allowed=FAILED | {0, 2})


def still_there(case, device, r):
    """Root may remove it; then it is made anew, for all others here."""
    if os.path.lexists(device) and stat.S_ISCHR(os.lstat(device).st_mode):
        return
    broken(case, f"output {device}", r, "the device is gone")
    if os.path.lexists(device):
        os.unlink(device)
    os.mknod(device, 0o666 | stat.S_IFCHR, DEVICES[device])
    os.chmod(device, 0o666)


def odd_link(case, word, target):
    """What it points to is replaced, with -f alone, or else itself."""
    was = open(target, "rb").read() if os.path.exists(target) else None
    os.symlink(target, "link")
    r = case.run(with_word(case, word, "link"))
    judge(case, "output", f"{word} a link to {target}", r, changed=True,
          allowed=FAILED | {0, 2})
    force = {"-f", "--force"} & set(case.argv)
    if not os.path.islink("link") and (was or not force):
        broken(case, "output a link", r, "the link is gone")
    os.unlink("link")
    if was is None:
        if os.path.isdir(target):
            shutil.rmtree(target)
        elif os.path.exists(target):
            os.unlink(target)
    elif open(target, "rb").read() != was:
        if not force:
            broken(case, "output a link", r, f"{target} is another")
        with open(target, "wb") as f:
            f.write(was)


def become_nobody():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def nobody_runs(tool):
    """Not where the tools lie in a directory that is root's alone."""
    try:
        subprocess.run([tool, "-V"], stdout=subprocess.DEVNULL,
                       preexec_fn=become_nobody, check=True)
        return True
    except PermissionError:
        return False


def odd_dir(case, word, name, mode):
    """A directory of root's, in which nobody writes, or replaces nothing."""
    if os.geteuid() != 0 or not nobody_runs(case.argv[0]):
        return
    shutil.copytree("before", "odd", symlinks=True)
    os.chmod("odd", mode)
    before = read_tree("odd")
    r = case.run(with_word(case, word, "odd" + word[3:]),
                 prepare=become_nobody)
    judge(case, "output", f"{word} {name}", r, changed=True,
          allowed=FAILED | {0, 2})
    after = read_tree("odd")
    for path, entry in before.items():
        if after.get(path) != entry:
            broken(case, name, r, f"{path} is not what it was")
    if any(".tmp." in p for p in after):
        broken(case, name, r, "a temporary stays")
    os.chmod("odd", 0o755)
    shutil.rmtree("odd")


# ---- file systems ----

# What netfs.c makes of one.
FILE_SYSTEMS = {
    "NFS 3": "no-lock no-room no-tmpfile no-seek silly odd-stat"
             " rights",
    "NFS 4": "no-tmpfile silly rights:EROFS lease",
    "Lustre": "no-lock:ENOSYS no-room no-tmpfile:EISDIR"
              " odd-stat",
    "GPFS": "no-tmpfile no-hint:EOPNOTSUPP",
    "SMB": "no-lock:EOPNOTSUPP no-link:EOPNOTSUPP"
           " no-tmpfile:EINVAL no-dirsync:EBADF no-over:EXDEV",
    "FUSE": "no-link no-sync no-dirsync no-hint no-direct no-seek"
            " no-room:ENOSYS no-shared no-statvfs skip short no-over",
}
# Of these it may be told.
LACKING = {
    "no maps": "no-map",
    "full": "full",
    "a quota at last": "close",
    "stale names": "blind",
    "lost answers": "twice",
}


def with_numbers(quirks):
    return re.sub(":([A-Z]+)", lambda m: f":{getattr(errno, m[1])}", quirks)


def file_systems(case):
    global told
    for table in FILE_SYSTEMS, LACKING:
        for name, quirks in table.items():
            r = case.run(env={"LD_PRELOAD": NETFS,
                              "FAULT_FS": with_numbers(quirks)})
            told += table is LACKING and r.status != case.whole.status
            judge(case, "file system", name, r, same=table is not LACKING)


CONDITIONS = (too_little, one_task, streams, clocks, changes, odd_inputs,
              own_input, odd_outputs, file_systems)


def main():
    global bad
    os.chdir(sys.argv[1])
    top = os.getcwd()
    os.chmod(".", 0o755)
    os.umask(0o022)
    only = os.environ.get("CONDITIONS", "").split()
    for line in sys.stdin:
        os.chdir(top)
        case = Case(line)
        for condition in CONDITIONS:
            if not only or condition.__name__ in only:
                condition(case)
        if not only or "stops" in only:
            stops(case, "stopped", same=True)
        os.chdir(top)
        shutil.rmtree(case.name)
    for kind, n in counts.items():
        print(f"{kind}\t{n}")
    if not only and not counts.get("stopped"):
        print("# nothing was stopped: is the shim loaded?")
        bad += 1
    if counts.get("file system") and not told:
        print("# no file system was noticed: is its shim loaded?")
        bad += 1
    n = sum(counts.values())
    print(f"limits: {n} runs, {bad} bad")
    sys.exit(bad > 0 or n == 0)


main()
