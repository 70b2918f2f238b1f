# shellcheck shell=sh
# Sourced by scripts that call make.  Of what the make that called them was
# told it keeps variables, but not -s, -k and the like, nor -j, whose job
# server they do not have.
case ${MAKEFLAGS-} in
*' -- '*) MAKEFLAGS=" -- ${MAKEFLAGS#* -- }" ;;
*) unset MAKEFLAGS ;;
esac
