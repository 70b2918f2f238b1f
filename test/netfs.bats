# File systems that are no local disk: what their clients lack or do otherwise,
# as test/fault/netfs.c makes every call do it.
load helpers
NEEDS=${LEFT_OUT-} # every tool

@test "file systems: every command does the same on NFS, Lustre, GPFS, SMB, FUSE" {
    [ -e "$BUILD/test/fault/netfs.so" ] || skip "no shim in this build"
    # shellcheck disable=SC2086 # words
    CONDITIONS=file_systems run -0 sh "$ROOT/scripts/limits.sh" ${LIMITS:-}
    [[ ${lines[-1]} == "limits: "*" runs, 0 bad" ]]
}
