# SPDX-License-Identifier: ISC
# What surrounds a tool is not as it should be: signals, streams that are
# closed, full or nobody's, files that change, and too little of everything.
load helpers
load writers
NEEDS=${LEFT_OUT-} # every tool

setup_file() {
    [ -z "$NEEDS" ] || return 0
    mkdir "$BATS_FILE_TMPDIR/inputs"
    cd "$BATS_FILE_TMPDIR/inputs" || return
    make_inputs
}

setup() {
    skip_left_out
    cp -r "$BATS_FILE_TMPDIR/inputs/." "$BATS_TEST_TMPDIR"
    cd "$BATS_TEST_TMPDIR" || return
}

@test "signals: a file under way is removed, one line says so, status 75" {
    py - <<'END'
import os, resource, signal, subprocess as sp, time
demo = os.environ["DEMO"]
ids = ",".join(["1"] * 500)
# Inputs that are no end of work; what is written appears as ".x.tmp.*".
def make_dump(name, n_imgs):
    os.makedirs(name)
    meta = open("big/metadata.json").read().replace('"n_imgs": 100', f'"n_imgs": {n_imgs}')
    meta = meta.replace('"max_patches_per_shard": 25', '"max_patches_per_shard": 32000000')
    open(name + "/metadata.json", "w").write(meta)
    os.truncate(os.open(name + "/acts000000.bin", os.O_CREAT | os.O_WRONLY), n_imgs * 8 * 4000)
make_dump("long", 4000000) # a hole of 128 GB
make_dump("some", 100000) # 3 GB, which a disk may not have
open("many.jsonl", "w").write('{"prompt": "1+1="}\n' * 100000)
commands = {
    "saev-read -q -o x some": 5,
    "saev-read -q --shuffle -o x long --mem 1T --index": 5,
    f"hf-infer {demo} --jsonl --file many.jsonl -n 5 -o x": 5,
    f"lut-apply -q --raw -i /dev/zero --x-dtype f32 -o x lut {os.environ['LAYER']}": 5,
}
if os.statvfs(".").f_bavail * os.statvfs(".").f_frsize < 4 << 30:
    del commands["saev-read -q -o x some"]
sigs = ["SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP", "SIGXCPU"]
def child():
    for s in sigs:
        signal.signal(getattr(signal, s), signal.SIG_DFL)
    # one that does not stop must not fill the disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 30,) * 2)
def start(words):
    return sp.Popen(words, stdout=sp.PIPE, stderr=sp.PIPE, stdin=sp.DEVNULL, preexec_fn=child)
def temporaries():
    return [n for n in os.listdir(".") if n.startswith(".x.tmp.")]
for command, n in commands.items():
    words = command.split()
    for sig in sigs[:n]:
        p = start(words)
        while not temporaries():
            assert p.poll() is None, (command, p.communicate())
            time.sleep(.005)
        time.sleep(.03)
        p.send_signal(signal.Signals[sig])
        said = p.communicate()
        assert (p.returncode, *said) == (
            75, b"", f"{words[0]}: stopped by {sig}: run it again\n".encode()), (command, sig, p.returncode, said)
        assert not temporaries() and not os.path.exists("x"), command
# a filter has nothing to lose: it ends by the signal, and says nothing
for sig in sigs[:4]:
    p = start(["saev-read", "-q", "long"])
    p.stdout.read(100)
    p.send_signal(signal.Signals[sig])
    p.stdout.read()
    assert p.wait() == -signal.Signals[sig] and not p.stderr.read(), sig
END
}

@test "signals: one that is ignored, as HUP is under nohup, stops nothing" {
    py - <<'END'
import os, signal, subprocess as sp, time
sigs = [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGXCPU]
def run(command, data, under_way):
    p = sp.Popen(command.split(), stdin=sp.PIPE, stdout=sp.DEVNULL, stderr=sp.PIPE,
                 preexec_fn=lambda: [signal.signal(s, signal.SIG_IGN) for s in sigs])
    p.stdin.write(data[:len(data) // 2])
    p.stdin.flush()
    while not under_way():
        assert p.poll() is None, p.communicate()
        time.sleep(.005)
    for s in sigs:
        p.send_signal(s)
    said = p.communicate(data[len(data) // 2:])
    assert p.returncode == 0 and not said[1], (command, p.returncode, said)
def temporary(directory):
    return lambda: any(".tmp." in n or ".part" in n for n in os.listdir(directory))
os.mkdir("out")
run("saev-write -q -m m.json -o out --no-sync", open("a.f32", "rb").read(), temporary("out"))
run(f"lut-apply -q --raw --x-dtype f32 -o x lut {os.environ['LAYER']}", open("x.raw", "rb").read(), temporary("."))
END
    cat out/*/acts*.bin | cmp - a.f32
    lut-apply -q --raw --x-dtype f32 -i x.raw lut "$LAYER" | cmp - x
}

@test "signals: a reader that goes away leaves no temporary of another output" {
    py - <<'END'
import os, signal, subprocess as sp
demo = os.environ["DEMO"]
for command in (f"hf-infer {demo} --ids 1,2,3 --lut lut --lut-report x --top 3",
                f"hf-infer {demo} --ids 1,2,3 --acts mlp:0 --acts-meta x",
                f"st-inspect stats --svg x {demo}",
                "saev-read -q stats --svg x dump",
                f"lut-apply -q --report -m {demo} -i x.raw --x-dtype f32 --svg x lut {os.environ['LAYER']}",
                "moe-sft quantize -b base.safetensors -o x"):
    r, w = os.pipe()
    os.close(r)
    p = sp.run(command.split(), stdout=w, stderr=sp.PIPE)
    os.close(w)
    assert p.returncode == -signal.SIGPIPE, (command, p)
    assert not [n for n in os.listdir(".") if n.startswith(".x.")], (command, os.listdir("."))
    os.remove("x")
END
}

@test "signals: a pipe that nobody reads keeps moe-sft train from nothing but its lines" {
    py - <<'END'
import fcntl, os, signal, subprocess as sp, time
r, w = os.pipe()
fcntl.fcntl(w, 1031, 4096) # F_SETPIPE_SZ
os.write(w, b"." * fcntl.fcntl(w, 1032))
p = sp.Popen("moe-sft train -b train/base.safetensors -l train/student.safetensors -o run -n 999999".split()
             + ["train/b0.safetensors"], stdout=w, stderr=sp.PIPE)
def catches(): # SIGTERM
    status = open(f"/proc/{p.pid}/status").read()
    return int(status.split("SigCgt:")[1].split()[0], 16) >> signal.SIGTERM - 1 & 1
while not catches():
    assert p.poll() is None, p.communicate()
    time.sleep(.005)
time.sleep(.5)
p.send_signal(signal.SIGTERM)
said = p.communicate(timeout=60)[1]
assert p.returncode == 75 and b"stopped by SIGTERM: run " in said, (p.returncode, said)
END
    st-inspect verify -q run/*.safetensors
    mkfifo pipe
    for what in log svg; do
        run -73 timeout 60 moe-sft train -b train/base.safetensors -l train/student.safetensors -o run -n 2 -f \
            --$what pipe train/b0.safetensors
        [ "$output" = "moe-sft: pipe: is not a file" ]
    done
}

@test "streams: what is said to closed ones lands in no output" {
    for closed in '' 0 1 2 01 02 12 012; do
        close=
        for fd in 0 1 2; do
            [[ $closed != *$fd* ]] || close+=" $fd>&-"
        done
        rm -rf out
        status=0
        eval "saev-write -v -m m.json -o out a.f32 $close" || status=$?
        # its path is lost
        [ $status = "$([[ $closed == *1* ]] && echo 74 || echo 0)" ]
        cat out/*/acts*.bin | cmp - a.f32
    done
}

# pairs ROUNDS [NAME...]: every writer, or those, twice at once on one output.
pairs() {
    py - "$WRITERS" "$@" <<'END'
import os, random, shutil, string, subprocess as sp, sys, time
writers, rounds, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
random.seed(1)
def prepare(name):
    sp.run(["bash", "-c", f". {os.environ['ROOT']}/test/writers.bash; prepare {name}"], check=True)
def start(command):
    return sp.Popen(command.split(), stdin=open("in"), stdout=sp.DEVNULL, stderr=sp.PIPE, text=True)
def end(p):
    said = p.communicate()[1]
    return p.returncode, said
for line in writers.splitlines():
    name, flags, command = line.split(" ", 2)
    if names and name not in names:
        continue
    command = string.Template(command).substitute(os.environ)
    open("in", "w").write('{"prompt": "1+1="}\n' if name == "hf-jsonl" else "")
    prepare(name)
    assert end(start(command))[0] == 0, name
    shutil.rmtree("want", ignore_errors=True)
    shutil.copytree("out", "want")
    for over in ("", " -f") if "f" in flags else ("",):
        for i in range(rounds):
            prepare(name)
            if over:
                assert end(start(command))[0] == 0, name
            both = [start(command + over)]
            time.sleep(random.random() * .02 * (i % 3))
            both.append(start(command + over))
            got = sorted(map(end, both))
            differs = sp.run(["diff", "-r", "want", "out"], stdout=sp.PIPE, text=True).stdout
            assert got[0][0] == 0 and got[1][0] in ((0,) if "--if-missing" in command else (0, 73, 75)) \
                and not differs, (command + over, got, differs)
END
}

@test "memory: a file that there is no room to map is one line, status 70" {
    not_sanitized "sanitizers reserve more"
    [ -z "${TU_RUN:-}" ] || skip "an emulator takes more itself"
    py - <<'END'
import json, struct
n = 4 << 30
head = json.dumps({"gate_proj": {"dtype": "U8", "shape": [n], "data_offsets": [0, n]}}).encode()
with open("big.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head)
    f.truncate(8 + len(head) + n)
END
    run -70 --separate-stderr bash -c 'ulimit -v 2000000; moe-sft info -b big.safetensors'
    [ "$stderr" = "moe-sft: big.safetensors: cannot be mapped: Cannot allocate memory" ]
}

# bats test_tags=long
@test "two at once: one wins, the other as well or with 73 or 75, and what is there is whole" {
    pairs 2
}

# bats test_tags=long
@test "two at once: saev-write that continues, replaces, or finishes" {
    pairs 25 saev-write saev-finish
}

@test "--if-missing: a run that comes second succeeds, and leaves what the first has made" {
    [ "$(cd "$ROOT/cmd" && grep -l '"if-missing", NULL' ./*/main.c | xargs)" = \
        "./kvc-convert/main.c ./moe-sft/main.c ./saev-write/main.c ./st-convert/main.c" ] # each is below
    py - "$WRITERS" <<'END'
import os, shutil, signal, string, subprocess as sp, sys, time
names = "saev-pad kvc-bin kvc-back moe-init moe-forward moe-directory moe-to-peft moe-quantize sc-int8 sc-file".split()
def start(command):
    return sp.Popen(command.split(), stdin=sp.DEVNULL, stdout=sp.DEVNULL, stderr=sp.PIPE, text=True)
def files(what="out"):
    return {(d, f): os.stat(os.path.join(d, f)).st_ino for d, _, found in os.walk(what) for f in found}
def second(command):
    """Starts it twice; the second time it is stopped while it writes until the other has ended."""
    while True:
        shutil.rmtree("out", ignore_errors=True)
        os.mkdir("out")
        p = start(command)
        while p.poll() is None and not os.listdir("out"):
            pass
        p.send_signal(signal.SIGSTOP)
        if p.poll() is None:
            os.waitid(os.P_PID, p.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        late = p.poll() is not None or not all(f.startswith(".") for f in os.listdir("out"))
        first = None if late else start(command)
        assert late or (first.wait(), first.stderr.read()) == (0, ""), command
        made = files()
        p.send_signal(signal.SIGCONT)
        said = p.communicate()[1]
        if not late:
            assert {k: v for k, v in made.items() if "/." not in k[0] and k[1][0] != "."} == files(), command
            return p.returncode, said
for line in sys.argv[1].splitlines():
    name, flags, command = line.split(" ", 2)
    if name in names:
        command = string.Template(command).substitute(os.environ)
        assert second(command + " --if-missing") == (0, ""), command
        assert second(command)[0] in (73, 75), command # or this were no test
        names.remove(name)
assert not names
END
}
