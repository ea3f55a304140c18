#!/bin/sh
# Writes the list of all parts of the program (CycloneDX 1.5, JSON): tools/package/parts.sh DIRECTORY.
#
# Names, versions, licences and checksums of every crate that is linked, from Cargo.lock. Needs cargo-cyclonedx.
set -eu
mkdir -p "$1"
out=$(realpath "$1")
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^version *= *"\(.*\)"/\1/p' Cargo.toml | head -n 1)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

# The tool writes one file beside the manifest of each member of the workspace.
list=parts-of-flowkeep
trap 'rm -f crates/*/$list.json xtask/$list.json' EXIT
cargo cyclonedx --quiet --format json --spec-version 1.5 --override-filename "$list" \
    --manifest-path crates/flowkeep/Cargo.toml >&2
made=$out/flowkeep_$version.cdx.json
mv "crates/flowkeep/$list.json" "$made"
sh tools/package/parts-check.sh "$made" "$version"
echo "$made"
