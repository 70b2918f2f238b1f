# SPDX-License-Identifier: ISC
"""A person at a terminal, who types to a command and reads what it shows; and
models that say what they are told to."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import numpy as np

import mkst

TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
WITHIN_S = 60  # on a slow machine, sanitized
TERMS = "dumb", "xterm"


def edits(term):
    """Are lines edited there?  EDITS is 0 for a build without libedit."""
    return term != "dumb" and os.environ["EDITS"] != "0"


class Conversation:
    """Runs the command on a terminal of its own, as its session's leader."""

    def __init__(self, command, columns=80, **environment):
        self.fd, self.its = pty.openpty()
        self.first_modes = self.modes()
        self.resize(columns)
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(self.its, termios.TIOCSCTTY, 0)
            for fd in 0, 1, 2:
                os.dup2(self.its, fd)
            os.closerange(3, 16)
            for number in signal.SIGHUP, signal.SIGINT, signal.SIGQUIT:
                signal.signal(number, signal.SIG_DFL)  # nohup make check
            os.environ.update({"TERM": "xterm", "LC_ALL": "C.UTF-8", **environment})
            os.environ.pop("NO_COLOR", None)
            if "NO_COLOR" in environment:
                os.environ["NO_COLOR"] = environment["NO_COLOR"]
            os.execvp(command[0], command)
        self.seen = ""  # all that it showed
        self.at = 0  # what of it was waited for
        self.raw = b""

    def resize(self, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def read(self, within_s):
        """More of what it shows: False at its end, or after that time."""
        if not select.select([self.fd], [], [], within_s)[0]:
            return False
        try:
            piece = os.read(self.fd, 65536)
        except OSError:  # it has ended
            piece = b""
        self.raw += piece
        self.seen = self.raw.decode("utf-8", "replace")
        return piece != b""

    def wait(self, pattern):
        """What it shows up to a regular expression, and the match."""
        regex = re.compile(pattern, re.S)
        until = time.monotonic() + WITHIN_S
        while not (match := regex.search(self.seen, self.at)):
            if time.monotonic() > until or not self.read(until - time.monotonic()):
                raise AssertionError(f"no {pattern!r} in {self.seen[self.at:]!r}")
        before = self.seen[self.at:match.start()]
        self.at = match.end()
        return before, match

    def type(self, text):
        os.write(self.fd, text.encode() if isinstance(text, str) else text)

    def kill(self, number):
        os.kill(self.pid, number)

    def modes(self):
        """What the terminal does with what is typed."""
        return termios.tcgetattr(self.its)[:4]

    def end(self):
        """Its exit status, or minus the signal."""
        until = time.monotonic() + WITHIN_S
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            assert time.monotonic() < until, self.seen
            self.read(0.01)
        while self.read(0):
            pass
        return os.waitstatus_to_exitcode(ended[1])

    def __del__(self):
        os.close(self.fd)
        os.close(self.its)


def parrot(path, words, endless=False, special=(), template=TEMPLATE, **config):
    """A model whose every answer is these words, a token each and all different,
    or with 'endless' the words again and again: what follows a token is a row
    of lm_head, as all layers are zero and embeddings are unit vectors."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    char = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    added = ["<|im_start|>", "<|im_end|>", *words]
    n = 256 + len(added)
    follows = np.full(n, 257)  # <|im_end|>
    follows[ord("\n")] = 258  # a prompt's last byte
    follows[258:-1] = np.arange(259, n)
    if endless:
        follows[-1] = 258
    head = np.zeros((n, n), np.float32)
    head[follows, np.arange(n)] = 1
    shapes = {"self_attn.q_proj": (4, n), "self_attn.k_proj": (4, n), "self_attn.v_proj": (4, n),
              "self_attn.o_proj": (n, 4), "mlp.gate_proj": (4, n), "mlp.up_proj": (4, n), "mlp.down_proj": (n, 4)}
    tensors = {f"model.layers.0.{k}.weight": np.zeros(v, np.float32) for k, v in shapes.items()}
    for norm in "layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm":
        tensors[f"model.{norm}.weight"] = np.ones(n, np.float32)
    tensors |= {"model.embed_tokens.weight": np.eye(n, dtype=np.float32), "lm_head.weight": head}
    os.mkdir(path)
    mkst.save(path + "/model.safetensors", tensors)
    with open(path + "/config.json", "w") as f:
        json.dump({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": n,
                   "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1,
                   "num_key_value_heads": 1, "head_dim": 4, "vocab_size": n, "max_position_embeddings": 100000,
                   "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
                   "tie_word_embeddings": False, "eos_token_id": 257, **config}, f)
    with open(path + "/tokenizer.json", "w") as f:
        json.dump({"version": "1.0", "added_tokens": [
            {"id": 256 + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": i < 2 or t in special} for i, t in enumerate(added)],
            "normalizer": None, "post_processor": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
            "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
            "model": {"type": "BPE", "vocab": {char[b]: b for b in range(256)}, "merges": []}}, f)
    with open(path + "/chat_template.jinja", "w") as f:
        f.write(template)
