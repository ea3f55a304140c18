#!/bin/sh
# Runs a command to its end, and prints the most memory that it had, in KiB: tools/package/memory.sh COMMAND…
#
# Needs a shell and /proc alone, so that it can be run in a bare chroot. It reads as often as it can, and starts nothing to do so; what the
# command takes in its last moment may be missed.
set -eu
"$@" </dev/null >/dev/null &
pid=$!
most=0
is_there=yes
# One that has ended has no such line, or no such file.
while [ $is_there = yes ]; do
    is_there=no
    {
        while read -r name value _; do
            if [ "$name" = VmHWM: ]; then
                is_there=yes
                most=$value
            fi
        done <"/proc/$pid/status"
    } 2>/dev/null || break
done
wait "$pid"
echo "$most"
