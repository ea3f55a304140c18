#!/bin/sh
# What `./x demo` shows: flows move between two runtimes, a runtime is emptied, and one is killed, while their packets pass.
#
#   clients (generated) ─► firewall ─► NAT ─► load balancer ─► the world (a port that answers)
#
# Run from the repository's root. FLOWKEEP names the program, else it is looked for in PATH. Needs no root, no
# network interface and no server. Ends with 0 if no packet was lost by moving, no flow stayed behind, and each flow of
# which the killed runtime's replica had a copy goes on. Packets are dropped before the kill only where the machine is too
# slow for the traffic.
set -eu

flowkeep=${FLOWKEEP:-flowkeep}
directory=$(mktemp -d)
FLOWKEEP_SOCKET=$directory/socket
export FLOWKEEP_SOCKET

"$flowkeep" run examples/demo-live.toml --for 5m >"$directory/report" 2>"$directory/said" &
cluster=$!
trap 'kill "$cluster" 2>/dev/null || true; rm -rf "$directory"' EXIT

# Types a command, and prints what it answers.
types() {
    printf '\n$ flowkeep %s\n' "$*"
    "$flowkeep" "$@"
}

# The same of one whose answer is kept in a file for the table at the end.
keeps() {
    file=$directory/$1
    shift
    printf '\n$ flowkeep %s\n' "$*"
    "$flowkeep" "$@" >"$directory/answer" || { cat "$directory/answer"; return 1; }
    tee -a "$file" <"$directory/answer"
}

# Traffic goes on for a moment.
goes_on() {
    sleep 1
    "$flowkeep" status >"$directory/status"
    sed -n 's/^in  *\([0-9,]*\) .*/… \1 packets so far/p' "$directory/status"
}

# Waits until the other runtime has the flows of the one that was killed.
recovers() {
    tries=0
    until "$flowkeep" status | grep ' recovered .* of runtime 1, '; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || { echo 'no flow was recovered within ten seconds'; return 1; }
        sleep 0.1
    done
}

echo '$ flowkeep run examples/demo-live.toml &'
until "$flowkeep" status >"$directory/status" 2>/dev/null; do
    kill -0 "$cluster" 2>/dev/null || { cat "$directory/said"; exit 1; }
    sleep 0.1
done
cat "$directory/said"
goes_on
goes_on
types runtime list
keeps receipts flow migrate --all --from 0 --to 1
goes_on
types runtime list
keeps receipts runtime drain 1
goes_on
types runtime resume 1
keeps receipts flow migrate --all --from 0 --count 4000
goes_on
types runtime list
dropped=$(sed -n 's/^dropped  *\([0-9,]*\) .*/\1/p' "$directory/status")

# It fails as a process does that is killed. A flow that is just beginning, of which no packet has left, has no copy yet.
keeps killed runtime kill 1 --unprotected
recovers
goes_on
types runtime add 1
goes_on
types runtime list
types stop
wait "$cluster"
printf '\n'
cat "$directory/report"

grep ' recovered .* of runtime 1, ' "$directory/report" >"$directory/recovered"
printf '\n'
cat "$directory/receipts" "$directory/killed" "$directory/recovered" | tr -d , | awk -v dropped="$dropped" '
    function row(what, count) { printf "%-45s %10s\n", what, count }
    /^flows/ { moved += $5; stayed += $7 + $9 }
    /^packets/ { by_moving += $NF }
    /^pause/ && $3 > pause { pause = $3 }
    / is gone; / { had = $7; copied = $9; with_it = $16 }
    / recovered / { recovered = $4; refused = $9 }
    END {
        lost = had > recovered ? had - recovered : 0
        row("packets dropped before the kill", dropped)
        row("flows moved", moved)
        row("flows that stayed behind", stayed)
        row("packets lost by moving", by_moving)
        row("longest pause of a group that moved", pause " ms")
        row("flows of the killed runtime", had)
        row("  with copies at the other", copied)
        row("  recovered there", recovered)
        row("  lost", lost)
        row("packets lost with it", with_it)
        exit !(moved > 0 && stayed == 0 && by_moving == 0 && copied > 0 && recovered >= copied && refused == 0)
    }'
