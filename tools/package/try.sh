#!/bin/sh
# Tries a package in a chroot with nothing but Debian's required packages: tools/package/try.sh FILE.deb
#
# Checks what was made with it (SHA256SUMS), installs it, runs it as its user, builds and tests what `flowkeep new` makes, removes it, and looks what is left. If an image or an archive is beside it, runs its program in a
# chroot with nothing but that. Needs root, mmdebstrap, umoci for an image, and Debian's mirror.
set -eu
deb=$(realpath "$1")
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
root=$(mktemp -d)
trap 'umount "$root/static/proc" "$root/proc" "$root/dev/shm" 2>/dev/null || true; rm -rf --one-file-system "$root"' EXIT
mmdebstrap --quiet --variant=required "$suite" "$root" >&2
mount -t proc proc "$root/proc"
mkdir -p "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
cp "$deb" "$root/flowkeep.deb"
# What is made beside it is whole, and all of it is listed.
(
    cd "$(dirname "$deb")"
    sha256sum --check SHA256SUMS
    for file in *; do
        [ "$file" = SHA256SUMS ] || grep -q "  $file\$" SHA256SUMS || {
            echo "$file: it has no checksum" >&2
            exit 1
        }
    done
)
within() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ "$@"; }

within dpkg -i /flowkeep.deb
within flowkeep --version
within sh -c 'getent passwd flowkeep && ls /usr/share/man/man1/flowkeep.1.gz /usr/lib/systemd/system/flowkeep.service'
within bash -n /usr/share/bash-completion/completions/flowkeep
install -d -m 777 "$root/try"
# The allocator of an optimised program counts, too.
within sh -c 'printf "%s\n" "[[port]]" "name = \"a\"" "output = \"pcap:/dev/null\"" "[[chain]]" "name = \"c\"" "functions = [\"flow_monitor\"]" >/try/memory.toml &&
    flowkeep chain check /try/memory.toml | grep "^memory: "'
# As its user, who has no rights: a capture is made and read again, and every record has a time of day.
within sh -c 'cd /try && cp -r /usr/share/doc/flowkeep/examples . && exec su -s /bin/sh flowkeep -c "
    flowkeep run --input generate:examples/demo-traffic.toml?packets=2000 --output pcap:in.pcap --events /dev/null &&
    flowkeep run --input pcap:in.pcap --events records.jsonl && wc -l records.jsonl"'
# An optimised program has the memory that is promised: 50 MB for a short capture. How many of the program's own pages the kernel
# brings with one that is asked for differs by some megabytes, so the least of three runs counts.
cp "$(dirname "$(realpath "$0")")/memory.sh" "$root/try"
least() { # COMMAND
    for _ in 1 2 3; do within su -s /bin/sh flowkeep -c "cd /try && sh memory.sh $1"; done | sort -n | head -n 1
}
within su -s /bin/sh flowkeep -c 'cd /try && flowkeep run --input generate:examples/demo-traffic.toml?packets=500 --output pcap:short.pcap --events /dev/null'
most=$(least 'flowkeep run --input pcap:short.pcap --events /dev/null')
echo "a capture of 500 packets takes $((most * 1024)) bytes"
if [ $((most * 1024)) -lt 5000000 ] || [ $((most * 1024)) -gt 50000000 ]; then
    echo "a capture of 500 packets takes $most KiB, not 5 to 50 MB" >&2
    exit 1
fi
# The same of an idle firewall and NAT, at defaults: 150 MB.
cat >"$root/try/idle-traffic.toml" <<'TOML'
seed = 1
flows = 10
rate = { total = 1000.0 }
pace = "clock"
sources = ["10.0.0.0/24"]
destinations = ["192.0.2.1/32"]
[[classes]]
share = 1.0
tcp = 0.0
TOML
cat >"$root/try/idle.toml" <<'TOML'
[[port]]
name = "lan"
side = "inside"
input = "generate:idle-traffic.toml"
[[port]]
name = "world"
side = "outside"
output = "pcap:/dev/null"
[[chain]]
name = "out"
functions = ["firewall", "nat"]
[[function.firewall.rules]]
name = "all"
from = "inside"
action = "allow"
[function.nat]
pool = ["203.0.113.0/28"]
TOML
most=$(least 'flowkeep run idle.toml --for 3s')
echo "an idle firewall and NAT takes $((most * 1024)) bytes"
if [ $((most * 1024)) -lt 50000000 ] || [ $((most * 1024)) -gt 150000000 ]; then
    echo "an idle firewall and NAT takes $most KiB, not 50 to 150 MB" >&2
    exit 1
fi
# It is ready within a second, by the clock: it answers `status`, which waits no longer.
within su -s /bin/sh flowkeep -c 'cd /try; flowkeep run idle.toml --for 5s >ready.out 2>&1 &
    begin=$(date +%s%N) && flowkeep status --wait 1s >/dev/null && echo "ready after $((($(date +%s%N) - begin) / 1000000)) ms" && flowkeep stop && wait $!'
# README and tutorial, typed line by line from their own blocks.
here=$(dirname "$(realpath "$0")")
cp "$here/pages.sh" "$here/../../README.md" "$here/../../docs/tutorial.md" "$root/try"
within su -s /bin/sh flowkeep -c 'sh /try/pages.sh /try /try/README.md /try/tutorial.md'
# A function of one's own from the installed program: its crates come from the package, whatever registries have. The chroot has no
# compiler, so the package's sources are put in their place for this machine's, in a namespace of mounts.
within su -s /bin/sh flowkeep -c 'cd /try && flowkeep new packet-counter'
grep -q 'path = "/usr/share/flowkeep/crates/nf"' "$root/try/packet-counter/Cargo.toml"
made=no
[ -d /usr/share/flowkeep ] || made=yes
mkdir -p /usr/share/flowkeep
unshare -m sh -ec 'mount --bind "$1/usr/share/flowkeep" /usr/share/flowkeep && cd "$1/try/packet-counter" && cargo test --quiet' sh "$root"
[ "$made" = no ] || rmdir /usr/share/flowkeep
within dpkg --purge flowkeep
cd "$root"
left=$(find usr etc var/lib/flowkeep var/log/flowkeep -name '*flowkeep*' -print 2>/dev/null || true)
if [ -n "$left" ]; then
    echo "left behind: $left" >&2
    exit 1
fi
echo "installed, run, and removed without a trace: $deb"

image=${deb%.deb}.oci.tar
if [ -e "$image" ]; then
    mkdir "$root/layout" "$root/image"
    tar -C "$root/layout" -xf "$image"
    tag=$(sed -n 's/.*"org.opencontainers.image.ref.name":"\([^"]*\)".*/\1/p' "$root/layout/index.json")
    umoci unpack --image "$root/layout:$tag" "$root/image/bundle" >&2
    files=$root/image/bundle/rootfs
    inside() { chroot --userspec=65532:65532 "$files" /usr/bin/flowkeep "$@"; }
    inside --version
    inside run --input 'generate:usr/share/doc/flowkeep/examples/demo-traffic.toml?packets=2000' \
        --output pcap:/tmp/in.pcap --events /tmp/none.jsonl
    inside run --input pcap:/tmp/in.pcap --events /tmp/records.jsonl
    wc -l "$files/tmp/records.jsonl"
    echo "run with nothing but the image: $image"
fi

# The static program runs with nothing but its archive, and makes a function's crate of the sources there.
archive=${deb%.deb}.static.tar.xz
if [ -e "$archive" ]; then
    mkdir "$root/static"
    tar -C "$root/static" -xf "$archive"
    alone() { chroot "$root/static" /usr/bin/flowkeep "$@"; }
    alone --version
    alone run --input 'generate:usr/share/doc/flowkeep/examples/demo-traffic.toml?packets=2000' \
        --output pcap:/tmp/in.pcap --events /tmp/none.jsonl
    alone run --input pcap:/tmp/in.pcap --events /tmp/records.jsonl
    wc -l "$root/static/tmp/records.jsonl"
    # Its sources are beside the program, which asks the kernel where that is.
    mkdir "$root/static/proc"
    mount -t proc proc "$root/static/proc"
    alone new packet-counter
    umount "$root/static/proc"
    grep -q 'path = "/usr/share/flowkeep/crates/nf"' "$root/static/packet-counter/Cargo.toml"
    echo "run with nothing but the archive: $archive"
fi
