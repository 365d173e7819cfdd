#!/usr/bin/env bash
# Builds the documentation as a site in build/site.
#
#   README, ARCHITECTURE …, docs, benchmarks ──▶ build/site-source ──mdBook──▶ build/site ──▶ every link is followed
#
# Pages link to each other and to sources by their places in the repository. So the book's source has the same places: the
# pages, and beside them each file or directory that a page links to.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tool.sh
if [ -z "${MDBOOK:-}" ]; then
    tool mdbook 0.5.4 --no-default-features --features search
    MDBOOK=$PWD/build/tools/bin/mdbook
fi
rm -rf build/site build/site-source
mkdir -p build/site-source
python3 scripts/site.py collect build/site-source
"$MDBOOK" build build/site-source --dest-dir "$PWD/build/site"
python3 scripts/site.py check build/site
echo "built: build/site/index.html"
