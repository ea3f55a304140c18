#!/bin/sh
# What `./x demo` shows: flows move between two runtimes, and a runtime is emptied, while their packets pass.
#
#   clients (generated) ─► firewall ─► NAT ─► load balancer ─► the world (a port that answers)
#
# Run from the repository's root. FLOWKEEP names the program, else it is looked for in PATH. Needs no root, no
# network interface and no server. Ends with 0 if no packet was lost by moving, and no flow stayed behind.
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

# The same of one that moves flows: its receipt is kept.
moves() {
    printf '\n$ flowkeep %s\n' "$*"
    "$flowkeep" "$@" >"$directory/receipt" || { cat "$directory/receipt"; return 1; }
    tee -a "$directory/receipts" <"$directory/receipt"
}

# Traffic goes on for a moment.
goes_on() {
    sleep 1
    "$flowkeep" status >"$directory/status"
    sed -n 's/^in  *\([0-9,]*\) .*/… \1 packets so far/p' "$directory/status"
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
moves flow migrate --all --from 0 --to 1
goes_on
types runtime list
moves runtime drain 1
goes_on
types runtime resume 1
moves flow migrate --all --from 0 --count 500
goes_on
types runtime list
types stop
wait "$cluster"
printf '\n'
cat "$directory/report"

awk '
    /^flows/ { gsub(",", ""); moved += $5; stayed += $7 + $9 }
    /^packets/ { lost += $NF }
    END {
        printf "\n%d flows moved, %d stayed behind; %d packets lost by moving\n", moved, stayed, lost
        exit !(moved > 0 && stayed == 0 && lost == 0)
    }' "$directory/receipts"
