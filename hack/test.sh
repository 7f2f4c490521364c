#!/usr/bin/env bash
# Everything a change must pass, the quick things first. Called by `make test`.
#
# As root the end-to-end tests run on a cluster of their own with two real nodes; without root there are no kubelets, so they are
# left out, which is said.
set -euo pipefail
cd "$(dirname "$0")/.."
begin=$SECONDS
step() { printf '\n=== %s (%d s since the start)\n' "$1" $((SECONDS - begin)); }

step "generated files are current"
before=$(git status --porcelain -- api config)
hack/generate.sh
after=$(git status --porcelain -- api config)
if [[ $before != "$after" ]]; then
  git --no-pager diff -- api config
  echo "generated files were not current: run make generate" >&2
  exit 1
fi

step "requirements that tests cite"
make --no-print-directory spec-check

step "unit tests and simulated rollouts"
make --no-print-directory test-unit

step "lint"
hack/lint.sh

step "local cluster"
make --no-print-directory bin/afloat-cluster
for module in test/cluster test/cluster/csi; do
  go -C $module vet ./...
  go -C $module test ./...
done

step "integration tests against a real API server"
make --no-print-directory test-integration

if [[ $(id -u) != 0 ]]; then
  step "end-to-end tests: left out, they need root for kubelets and containers"
  exit 0
fi
step "end-to-end tests on real kubelets"
export CLUSTER=${CLUSTER_FOR_TEST:-afloat-test} NODES=3 SIMULATED=0
unset KUBECONFIG
trap 'make --no-print-directory cluster-down || true' EXIT
make --no-print-directory test-e2e
step "done"
