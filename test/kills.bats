# kill -9 at any moment, of all that writes: scripts/kills.sh, of which make
# check-kills does more.
load helpers
NEEDS=${LEFT_OUT-} # every tool

@test "kills: of every writer, what is published is whole, and the next run is as ever" {
    not_sanitized "they slow what is killed at a moment"
    run -0 bash "$ROOT/scripts/kills.sh" -n 1
    [[ $output == *"writers, "*" kills, "*" of them before the end: all sound" ]]
}
