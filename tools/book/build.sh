#!/bin/sh
# Makes the book of the repository's pages: tools/book/build.sh DIRECTORY (needs mdbook).
#
#   README, ARCHITECTURE, docs/, examples/ ──► DIRECTORY/pages (copies, so that links between them hold)
#   tools/book/SUMMARY ───────────────────────► the order of chapters
#                                               DIRECTORY/html, from its index.html on
set -eu
mkdir -p "$1"
out=$(realpath "$1")
cd "$(dirname "$0")/../.."
rm -rf "$out/pages" "$out/html"
mkdir -p "$out/pages"
cp -r README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md LICENSE-APACHE LICENSE-MIT docs examples tools "$out/pages"
cp tools/book/SUMMARY "$out/pages/SUMMARY.md"
cp tools/book/book.toml "$out/pages"
mdbook build --dest-dir "$out/html" "$out/pages" >&2
# The first chapter is index.html; links with a place in it name it by its file.
cp "$out/html/index.html" "$out/html/README.html"
echo "$out/html/index.html"
