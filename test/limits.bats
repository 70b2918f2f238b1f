# SPDX-License-Identifier: ISC
# Too little of everything, streams that are closed, files that change: of some
# commands; `make check-limits` is all of them.
load helpers
NEEDS=${LEFT_OUT-} # every tool

# bats test_tags=long
@test "limits: what surrounds a tool never makes it crash, hang or publish a part" {
    [ -e "$BUILD/test/fault/shim.so" ] || skip "no shim in this build"
    # shellcheck disable=SC2086 # words
    run -0 sh "$ROOT/scripts/limits.sh" ${LIMITS:-st-cat-force kvc-back}
    [[ ${lines[-1]} == "limits: "*" runs, 0 bad" ]]
}
