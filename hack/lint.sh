#!/usr/bin/env bash
# Checks the code: formatting, the walls between the layers (.golangci.yml), common mistakes. Called by `make lint`.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin
go -C hack/lint build -o ../../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
bin/golangci-lint run --build-tags e2e,integration ./...
