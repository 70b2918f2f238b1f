# SPDX-License-Identifier: ISC
"""pth_torch.py DIR: checkpoints by the torch that is installed.

DIR/torch has a line for each: its name.  DIR/NAME is what torch.save() wrote,
DIR/NAME.want the tree in it (see pth_make.py); torch resolves the strides.
"""
import argparse
import collections
import os
import struct
import sys

import numpy as np
import torch

dir = sys.argv[1]
cases = open(os.path.join(dir, "torch"), "w")
torch.manual_seed(7)
NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
         torch.float64: "F64", torch.int64: "I64", torch.int32: "I32",
         torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
         torch.bool: "BOOL", torch.complex64: "C64"}


def tensor(t):
    a = t.detach().contiguous()
    if t.dtype == torch.bfloat16:
        a = a.view(torch.int16)
    shape = "".join(" %d" % n for n in t.shape)
    return "TENSOR %s%s :%s\n" % (NAMES[t.dtype], shape,
                                  a.numpy().tobytes().hex())


def plain(v):
    if v is None:
        return "NONE"
    if isinstance(v, np.generic):
        return "OPAQUE numpy.core.multiarray.scalar"
    if isinstance(v, bool):
        return "BOOL %d" % v
    if isinstance(v, int):
        return "INT %d" % v
    if isinstance(v, float):
        return "FLOAT %016x" % struct.unpack("<Q", struct.pack("<d", v))
    if isinstance(v, str):
        return "STR " + v
    return "OPAQUE %s.%s" % (type(v).__module__, type(v).__name__)


def tree(v, path=""):
    head = (path or ".") + " "
    if isinstance(v, torch.Tensor):
        return head + tensor(v)
    if isinstance(v, dict):
        return head + "DICT %d\n" % len(v) + "".join(
            tree(v[k], "%s.%s" % (path, k)) for k in v)
    if isinstance(v, (list, tuple, set)):
        return head + "LIST %d\n" % len(v) + "".join(
            tree(x, "%s[%d]" % (path, i)) for i, x in enumerate(v))
    return head + plain(v) + "\n"


def case(name, value):
    for protocol in (2, 3, 4, 5):
        for zip in (True, False):
            file = "torch-%s-%d%s" % (name, protocol, "" if zip else "-legacy")
            path = os.path.join(dir, file)
            torch.save(value, path, pickle_protocol=protocol,
                       _use_new_zipfile_serialization=zip)
            with open(path + ".want", "w") as f:
                f.write(tree(value))
            cases.write(file + "\n")


def views():
    x = torch.arange(60.).view(3, 4, 5)
    return {"t": x.transpose(0, 2), "step": x[:, ::2, 1::3], "row": x[1],
            "expand": x[:, :1].expand(3, 6, 5), "scalar": x[2, 1, 1],
            "empty": x[:0], "permute": x.permute(2, 0, 1), "whole": x,
            "diagonal": x[0, :, :4].diagonal(),
            "unfold": torch.arange(9.).unfold(0, 3, 2)}


def dtypes():
    return {str(d): (torch.randn(2, 3) * 5).to(d) for d in NAMES}


def training():
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2),
                              torch.nn.Linear(2, 2))
    adam = torch.optim.Adam(net.parameters())
    steps = torch.optim.lr_scheduler.StepLR(adam, 3)
    net(torch.randn(4, 3)).sum().backward()
    adam.step()
    steps.step()
    return {"epoch": 3, "model_state_dict": {"compressor": net.state_dict()},
            "optimizer_state_dict": adam.state_dict(),
            "scheduler_state_dict": steps.state_dict(),
            "loss": np.float64(0.5), "best": np.float32(1),
            "args": argparse.Namespace(lr=0.1, nested={"a": 1})}


def parameters():
    shared = torch.randn(2, 3)
    return collections.OrderedDict(
        p=torch.nn.Parameter(shared), q=shared, r=shared.t(),
        frozen=torch.nn.Parameter(shared[0], requires_grad=False),
        nested=[torch.nn.ParameterDict({"a": torch.nn.Parameter(shared)})["a"]],
        size=tuple(shared.size()), s={4})


case("views", views())
case("dtypes", dtypes())
case("training", training())
case("parameters", parameters())
