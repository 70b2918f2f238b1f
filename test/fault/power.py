# SPDX-License-Identifier: ISC
"""power.py OUT STATES COMMAND: runs COMMAND, and makes what a power cut may
leave of the directory OUT, at each of its steps, each a directory in STATES.

Nothing is taken for granted but what POSIX promises: a file's bytes are on the
disk once it was synced, a name once its directory was; all else may be there
or not, each by itself, in any order in which one thing does not need another
(a name's second change comes after its first).  A rename is one step.

STATES/N has "out", and "when": the step's line of test/fault/power.c's log, or
"end".  The command's standard input, output and status are its own.
"""
import os
import subprocess
import sys

GONE = None


class Node:
    """A file or directory, whatever its names."""

    def __init__(self, directory, mode, data=b""):
        self.directory, self.mode = directory, mode
        self.data = data  # on the disk


class Change:
    """A step that changes names: (directory, name) to node or GONE."""

    def __init__(self, names, needs):
        self.names, self.needs = names, needs  # needs: earlier ones' numbers


def load(path, nodes, names):
    """What is there before: all of it is on the disk."""
    st = os.lstat(path)
    nodes[st.st_ino] = here = Node(True, st.st_mode)
    for entry in os.scandir(path):
        st = entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            names[here, entry.name] = load(entry.path, nodes, names)
        else:
            with open(entry.path, "rb") as f:
                nodes[st.st_ino] = Node(False, st.st_mode, f.read())
            names[here, entry.name] = nodes[st.st_ino]
    return here


class Disk:
    def __init__(self, out):
        self.nodes, self.before = {}, {}
        self.root = load(out, self.nodes, self.before)
        self.now = dict(self.before)
        self.changes, self.safe = [], set()

    def with_needs(self, wanted):
        todo, found = list(wanted), set()
        while todo:
            k = todo.pop()
            if k not in found:
                found.add(k)
                todo += self.changes[k].needs
        return found

    def change(self, names):
        needs = [k for k, c in enumerate(self.changes) if c.names.keys() & names.keys()]
        self.changes.append(Change(names, needs))
        self.now.update(names)

    def sync(self, node, data):
        if node.directory:
            of_it = [k for k, c in enumerate(self.changes) if any(f is node for f, _ in c.names)]
            self.safe |= self.with_needs(of_it)
        else:
            node.data = data

    def step(self, line, copies):
        """One line of the log; other directories' are passed over."""
        op, *words = line.split()
        if op == "sync":
            node = self.nodes.get(int(words[0]))
            data = b""
            if len(words) > 1:
                with open(os.path.join(copies, words[1]), "rb") as f:
                    data = f.read()
            if node:
                self.sync(node, data)
            return
        places = [(self.nodes.get(int(words[i])), words[i + 1]) for i in range(0, len(words) - 1, 2)]
        if not all(directory for directory, _ in places):
            return
        inode = int(words[-1])
        if op in ("create", "mkdir"):
            self.nodes[inode] = Node(op == "mkdir", 0o755 if op == "mkdir" else 0o644)
        if op in ("create", "mkdir", "link"):
            self.change({places[0]: self.nodes[inode]})
        elif op == "unlink":
            self.change({places[0]: GONE})
        elif op == "rename":
            self.change({places[0]: GONE, places[1]: self.now[places[0]]})
        elif op == "exchange":
            self.change({places[0]: self.now[places[1]], places[1]: self.now[places[0]]})
        else:
            sys.exit(f"power.py: {line!r}?")

    def cuts(self):
        """Sets of changes that may be on the disk now."""
        everything = set(range(len(self.changes)))
        yield everything
        yield set(self.safe)
        for k in everything - self.safe:
            yield self.safe | self.with_needs([k])
            yield {i for i in everything if k not in self.with_needs([i])} | self.safe

    def tree(self, cut):
        """{path: bytes, or None for a directory}, of what can be reached."""
        names = dict(self.before)
        for k in sorted(cut):
            names.update(self.changes[k].names)
        inside = {}
        for (directory, name), node in names.items():
            if node is not GONE:
                inside.setdefault(directory, []).append((name, node))
        tree = {}

        def walk(directory, path):
            for name, node in inside.get(directory, []):
                tree[path + name] = None if node.directory else node.data
                if node.directory:
                    walk(node, path + name + "/")

        walk(self.root, "")
        return tree


def write(tree, path, when):
    os.makedirs(path + "/out")
    for name in sorted(tree):
        if tree[name] is None:
            os.mkdir(f"{path}/out/{name}")
        else:
            with open(f"{path}/out/{name}", "wb") as f:
                f.write(tree[name])
    with open(path + "/when", "w") as f:
        f.write(when)


def main(out, states, command):
    disk, copies, seen = Disk(out), states + "/copies", set()
    os.makedirs(copies)
    env = dict(os.environ, POWER_DIR=os.path.abspath(copies), LD_PRELOAD=os.environ["POWER_SHIMS"])
    status = subprocess.run(["bash", "-c", "exec " + command], env=env, check=False).returncode
    if status or not os.path.exists(copies + "/log"):
        return status or "power.py: nothing was recorded"
    with open(copies + "/log", encoding="utf-8", errors="surrogateescape") as f:
        lines = f.read().splitlines()
    for line in lines + ["end"]:
        if line != "end":
            disk.step(line, copies)
        for cut in disk.cuts():
            tree = disk.tree(cut)
            key = hash((line == "end", frozenset(tree.items())))
            if key not in seen:
                seen.add(key)
                write(tree, f"{states}/{len(seen)}", line)
    return 0


sys.exit(main(*sys.argv[1:]))
