#!/bin/sh
# SPDX-License-Identifier: ISC
# mpi.sh cflags|libs: how to compile with MPI, and to link; nothing where there
# is none.  Asks $MPICC, the compiler that MPI brings (default: mpicc), which is
# that of the mpirun next to it, then pkg-config.
mpicc=${MPICC:-mpicc}
case $1 in
cflags) open=-showme:compile mpich=-compile_info pkg=--cflags ;;
libs) open=-showme:link mpich=-link_info pkg=--libs ;;
*)
    echo 'usage: mpi.sh cflags|libs' >&2
    exit 2
    ;;
esac
if words=$("$mpicc" $open 2>/dev/null); then
    :
elif words=$("$mpicc" $mpich 2>/dev/null); then
    words=${words#* } # its compiler
else
    for p in ompi-c mpich ompi; do
        words=$(pkg-config $pkg $p 2>/dev/null) && break
    done
fi
printf '%s\n' "$words"
