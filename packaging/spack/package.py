# SPDX-License-Identifier: ISC
"""Spack's recipe: spack repo create, then a directory tensorutils with this."""
from spack.package import *


class Tensorutils(MakefilePackage):
    """Small Unix tools for the tensors around language and vision models:
    safetensors, activations, sparse autoencoders, lookup tables, LoRA."""

    homepage = "https://tensorutils.invalid"  # none yet
    # of a checkout: make dist; spack mirror create -d DIR, or spack develop
    url = "file:///tmp/tensorutils-0.2.tar.gz"

    license("ISC")
    version("0.2")

    variant("mpi", default=False, description="moe-sft tune on several machines")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build", when="+mpi")
    depends_on("jansson")
    depends_on("xxhash")
    depends_on("openssl")
    depends_on("pcre2")
    depends_on("utf8proc")
    depends_on("zlib-api")
    depends_on("libpng")
    depends_on("libjpeg-turbo")
    depends_on("libedit")
    depends_on("mpi", when="+mpi")

    def edit(self, spec, prefix):
        libraries = ["jansson", "xxhash", "openssl", "pcre2", "utf8proc", "zlib-api"]
        libraries += ["libpng", "libjpeg-turbo", "libedit"]
        env["CPPFLAGS"] = " ".join("-I%s" % spec[i].prefix.include for i in libraries)
        env["LDFLAGS"] = " ".join(
            "-L%s -Wl,-rpath,%s" % (d, d)
            for i in libraries
            for d in spec[i].libs.directories
        )

    def build(self, spec, prefix):
        make("all")
        if spec.satisfies("+mpi"):
            make("all", "MPI=1", "MPICC=%s" % spec["mpi"].mpicc)

    def install(self, spec, prefix):
        make("install", "PREFIX=%s" % prefix)
        if spec.satisfies("+mpi"):
            install("build/mpi/moe-sft", prefix.bin)
