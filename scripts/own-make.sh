# SPDX-License-Identifier: ISC
# shellcheck shell=sh
# Sourced by scripts that call make.  Of the calling make's command line it
# keeps variables, but not -s, -k and the like, nor -j, as the job server
# is not passed on.
case ${MAKEFLAGS-} in
*' -- '*) MAKEFLAGS=" -- ${MAKEFLAGS#* -- }" ;;
*) unset MAKEFLAGS ;;
esac
