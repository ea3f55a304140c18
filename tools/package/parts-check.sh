#!/bin/sh
# Looks at a list of parts: tools/package/parts-check.sh FILE VERSION
#
# It is CycloneDX, it is about this program and version, and each crate that the program names as a dependency of its own is in it with the
# version of Cargo.lock.
set -eu
file=$1
version=$2
cd "$(dirname "$0")/../.."
has() { # WORDS: without the blanks that a printer of JSON may put between them
    tr -d ' \n' <"$file" | grep -qF "$1" || {
        echo "$file: it has no $1" >&2
        exit 1
    }
}
has '"bomFormat":"CycloneDX"'
has "\"name\":\"flowkeep\",\"version\":\"$version\""
parts=0
# Names of the registry's: in the table of dependencies, those whose version the workspace says.
for name in $(sed -n '/^\[dependencies\]/,/^\[/s/^\([a-z0-9_-]*\)\.workspace = true$/\1/p' crates/flowkeep/Cargo.toml); do
    locked=$(sed -n "/^name = \"$name\"\$/{n;s/^version = \"\(.*\)\"\$/\1/p;q}" Cargo.lock)
    # Not the workspace's own, and not one of several versions.
    [ "$(grep -c "^name = \"$name\"\$" Cargo.lock)" = 1 ] && [ -n "$locked" ] || continue
    has "\"name\":\"$name\",\"version\":\"$locked\""
    parts=$((parts + 1))
done
if [ $parts -eq 0 ]; then
    echo "no dependency was looked for: crates/flowkeep/Cargo.toml names none as this expects" >&2
    exit 1
fi
echo "$file: $parts of the program's own dependencies are in it" >&2
