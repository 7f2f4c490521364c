#!/usr/bin/env bash
# Makes the notes of what is not released yet those of a release, and begins new ones. Called by `make release-notes VERSION=v0.1.0`.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]] || { echo "VERSION=$version is no version such as v0.1.0" >&2; exit 2; }
[[ ! -e docs/releases/$version.md ]] || { echo "docs/releases/$version.md is there already" >&2; exit 1; }
grep -q '^## Unreleased$' CHANGELOG.md || { echo "CHANGELOG.md has no line: ## Unreleased" >&2; exit 1; }
go test ./docs/releases # nothing is missing in the notes
sed "1s/.*/# $version/" docs/releases/unreleased.md >"docs/releases/$version.md"
cp docs/releases/template.md docs/releases/unreleased.md
sed -i "s/^## Unreleased\$/## Unreleased\n\n## $version/" CHANGELOG.md
go test -count=1 ./docs/releases -update
echo "Read docs/releases/$version.md and commit; make release VERSION=$version takes it from there."
