#!/bin/sh
# Makes an archive and an image for containers (OCI 1.0) of a static program, without a daemon: tools/package/static.sh BINARY DIRECTORY.
#
#   BINARY ──► /usr/bin/flowkeep ─┐   DIRECTORY/flowkeep_VERSION_ARCHITECTURE.static.tar.xz
#   examples, licences ───────────┼─► DIRECTORY/flowkeep_VERSION_ARCHITECTURE.oci.tar: one layer
#   sources.sh ───────────────────┘   (sources for `flowkeep new`: in the archive alone)
#
# Both have nothing but these files: BINARY must need no library. Equal input gives equal files: SOURCE_DATE_EPOCH, or the
# newest commit's time, is the time of all that is in them. Needs umoci, xz and readelf.
set -eu
umask 022

binary=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/../.."

# One that asks for a loader asks for libraries.
heads=$(LC_ALL=C readelf --program-headers --wide "$binary")
case $heads in
    *INTERP*)
        echo "static.sh: $binary is no static program: it asks for a loader" >&2
        exit 1
        ;;
esac

version=$(sed -n 's/^version *= *"\(.*\)"/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
install -D -m 755 "$binary" "$root/usr/bin/flowkeep"
strip --strip-unneeded "$root/usr/bin/flowkeep" 2>/dev/null || true
install -d -m 755 "$root/usr/share/doc/flowkeep" "$root/etc/flowkeep" "$root/run/flowkeep" "$root/var/lib/flowkeep"
install -d -m 1777 "$root/tmp"
cp -r examples LICENSE-APACHE LICENSE-MIT "$root/usr/share/doc/flowkeep/"
tools/package/sources.sh "$work/with/usr/share/flowkeep"
# A member's process is of a user that has a name.
printf 'root:x:0:0::/:/\nflowkeep:x:65532:65532::/:/\nnobody:x:65534:65534::/:/\n' >"$root/etc/passwd"
pack() { # DIRECTORY FILE
    find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    tar -C "$1" --sort=name --owner=0 --group=0 --numeric-owner -cf "$2" .
}
name=flowkeep_${version}_$architecture
pack "$root" "$work/layer.tar"
# Containers have no use for the sources; `flowkeep new` of the archive's program has.
cp -a "$root/." "$work/with/"
pack "$work/with" "$work/archive.tar"
xz -6 -T1 -c "$work/archive.tar" >"$out/$name.static.tar.xz"

say() { umoci "$@" >&2; }
image=$work/image:$version
say init --layout "$work/image"
say new --image "$image"
say raw add-layer --image "$image" --history.created "$created" --history.created_by "tools/package/static.sh" "$work/layer.tar"
say config --image "$image" --history.created "$created" --created "$created" \
    --architecture "$architecture" --os linux \
    --config.entrypoint /usr/bin/flowkeep --config.workingdir /etc/flowkeep \
    --config.env XDG_RUNTIME_DIR=/run/flowkeep \
    --config.label org.opencontainers.image.title=flowkeep \
    --config.label "org.opencontainers.image.version=$version" \
    --config.label "org.opencontainers.image.licenses=Apache-2.0 OR MIT"
say gc --layout "$work/image"

pack "$work/image" "$out/$name.oci.tar"
printf '%s\n' "$out/$name.static.tar.xz" "$out/$name.oci.tar"
