#!/bin/sh
# Makes a Debian package of a program that is built: `./x package`, or tools/package/build.sh BINARY DIRECTORY.
#
#   BINARY ── man pages, completions (it writes them itself) ─┐
#   tools/package ── units, user, logrotate, scripts ─────────┼─► DIRECTORY/flowkeep_VERSION_ARCHITECTURE.deb
#   examples, README, CHANGELOG, licences ────────────────────┤   DIRECTORY/SHA256SUMS
#   sources for `flowkeep new` (sources.sh) ──────────────────┘
#
# Equal input gives an equal package: SOURCE_DATE_EPOCH, or the newest commit's time, is the time of all files.
# Needs dpkg-deb.
set -eu
umask 022

binary=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/../.."
from=tools/package

version=$(sed -n 's/^version *= *"\(.*\)"/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
put() { # MODE FILE PLACE
    install -D -m "$1" "$2" "$tree$3"
}

put 755 "$binary" /usr/bin/flowkeep
strip --strip-unneeded "$tree/usr/bin/flowkeep" 2>/dev/null || true
for unit in "$from"/*.service; do
    put 644 "$unit" "/usr/lib/systemd/system/$(basename "$unit")"
done
put 644 "$from/flowkeep.sysusers" /usr/lib/sysusers.d/flowkeep.conf
put 644 "$from/flowkeep.logrotate" /etc/logrotate.d/flowkeep
install -d -m 755 "$tree/etc/flowkeep"

"$binary" man "$tree/usr/share/man/man1"
find "$tree/usr/share/man" -type f -exec gzip -9n {} +
completions() { # SHELL PLACE
    install -d -m 755 "$tree$(dirname "$2")"
    "$binary" completions "$1" >"$tree$2"
}
completions bash /usr/share/bash-completion/completions/flowkeep
completions zsh /usr/share/zsh/vendor-completions/_flowkeep
completions fish /usr/share/fish/vendor_completions.d/flowkeep.fish

doc=/usr/share/doc/flowkeep
put 644 README.md $doc/README.md
put 644 "$from/README.Debian" $doc/README.Debian
put 644 CHANGELOG.md $doc/changelog
gzip -9n "$tree$doc/changelog"
{
    printf 'Flowkeep is licensed under Apache-2.0 or MIT, as you like.\n\n'
    cat LICENSE-APACHE
    printf '\n'
    cat LICENSE-MIT
} >"$tree$doc/copyright"
install -d -m 755 "$tree$doc/examples"
cp -r examples/. "$tree$doc/examples/"
"$from/sources.sh" "$tree/usr/share/flowkeep"
put 644 tools/monitoring/alerts.yml $doc/monitoring/alerts.yml
put 644 tools/monitoring/dashboard.json $doc/monitoring/dashboard.json

# The C library of this machine, or a later one.
libc=$(dpkg-query -W -f '${Version}' libc6 2>/dev/null | sed 's/-.*//')
install -d -m 755 "$tree/DEBIAN"
for script in postinst prerm postrm; do
    put 755 "$from/$script" "/DEBIAN/$script"
done
echo /etc/logrotate.d/flowkeep >"$tree/DEBIAN/conffiles"
cat >"$tree/DEBIAN/control" <<CONTROL
Package: flowkeep
Version: $version
Architecture: $architecture
Maintainer: Flowkeep <flowkeep@localhost>
Section: net
Priority: optional
Depends: libc6${libc:+ (>= $libc)}, libgcc-s1, passwd
Recommends: tcpdump, iproute2
Suggests: logrotate, cargo
Homepage: https://github.com/flowkeep/flowkeep
Installed-Size: $(du -k -s --exclude=DEBIAN "$tree" | cut -f 1)
Description: stateful network functions whose flows move and survive failures
 Firewall, NAT, load balancer, intrusion detection, limits per host and more, as chains of functions. Flows move
 between workers while their packets pass, and the configuration changes while they live. Where copies are kept
 of them, they go on when a worker fails.
CONTROL
(cd "$tree" && find . -type f ! -path './DEBIAN/*' -printf '%P\n' | LC_ALL=C sort | xargs md5sum >DEBIAN/md5sums)
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

name=flowkeep_${version}_$architecture.deb
dpkg-deb --root-owner-group "-Z${FLOWKEEP_PACKAGE_COMPRESSION:-xz}" --build "$tree" "$out/$name" >/dev/null
(cd "$out" && sha256sum "$name" >SHA256SUMS)
echo "$out/$name"
