#!/usr/bin/env bash
# Runs the tests that the race detector skips, see internal/racetest. Called by `make test-unit`.
set -euo pipefail
cd "$(dirname "$0")/.."
skip='racetest.SkipAlone(t)'
names=$(grep -rhF -B1 --include='*_test.go' "$skip" . | sed -n 's/^func \(Test[^(]*\)(.*/\1/p' | paste -sd'|')
mapfile -t packages < <(grep -rlF --include='*_test.go' "$skip" . | xargs -n1 dirname | sort -u)
GOGC=1000 go test -vet=off -count=1 -run "^($names)\$" "${packages[@]}"
