#!/bin/sh
# Puts the sources that a function of one's own is built with into a folder: tools/package/sources.sh DIRECTORY.
#
#   crates, without their tests ─┐
#   Cargo.toml, Cargo.lock ──────┴─► DIRECTORY, /usr/share/flowkeep of a package
#
# `flowkeep new` of an installed program takes Flowkeep's crates from there, by path: no registry has them.
# Times of files are the caller's business. Needs a checkout: what git does not know is no source.
set -eu
umask 022
mkdir -p "$1"
to=$(realpath "$1")
cd "$(dirname "$0")/../.."
git ls-files crates | grep -Ev '^crates/[^/]+/(tests|benches|fuzz)/' | tar -cf - -T - | tar -C "$to" -xf -
if [ ! -e "$to/crates/nf/Cargo.toml" ]; then
    echo "sources.sh: no sources found: this needs a checkout, with git" >&2
    exit 1
fi
# Checks of the whole tree are no part of it.
sed '/^members = /s/, "xtask"//' Cargo.toml >"$to/Cargo.toml"
cp Cargo.lock LICENSE-APACHE LICENSE-MIT "$to/"
find "$to" -type d -exec chmod 755 {} + -o -type f -exec chmod 644 {} +
