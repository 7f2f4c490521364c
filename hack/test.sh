#!/usr/bin/env bash
# Everything a change must pass, the quick things first. Called by `make test`.
#
# What takes long is played in shares: each day has other seeds of simulations, and another third of the pages of the manual that change
# the installation. `make simulate` and `make test-docs` play more.
#
# As root the end-to-end tests run on a cluster of their own with two real nodes; without root there are no kubelets, so they are
# left out, which is said.
set -euo pipefail
cd "$(dirname "$0")/.."
begin=$SECONDS since=$SECONDS now="" cluster="" took=""
day=$(($(date +%s) / 86400))
export FIRST=${FIRST:-$((day % 10000 * 1000 + 1))}
times=bin/test-times # how long the parts took last time
mkdir -p bin
touch "$times"
# step begins a part, and remembers how long the one before took. What the parts took is printed at the end, with the one that failed, if one did.
step() {
  local last
  if [[ -n $now ]]; then took+=$(printf '%6d s  %s' $((SECONDS - since)) "$now")$'\n'; fi
  since=$SECONDS now=$1
  if [[ -z $now ]]; then return 0; fi # alone it would return what failed, when the trap calls it
  last=$(grep -F "  $now" "$times" | tail -n 1 | sed 's/ s .*/ s/; s/^ *//' || true)
  printf '\n=== %s (%d s since the start%s)\n' "$now" $((SECONDS - begin)) "${last:+; it took $last last time}"
}
finish() {
  local code=$? failed=$now
  step ""
  if ((code == 0)); then printf '%s' "$took" >"$times"; fi
  if [[ -n $cluster ]]; then make --no-print-directory cluster-down || true; fi
  printf '\n=== what the parts took, %d s together\n%s' $((SECONDS - begin)) "$took"
  if ((code != 0)); then echo "failed: $failed" >&2; fi
}
trap finish EXIT

step "generated files are current"
generated=(api config charts docs/reference docs/operate/helm.md)
before=$(git status --porcelain -- "${generated[@]}")
hack/generate.sh
after=$(git status --porcelain -- "${generated[@]}")
if [[ $before != "$after" ]]; then
  git --no-pager diff -- "${generated[@]}"
  echo "generated files were not current: run make generate" >&2
  exit 1
fi

step "requirements that tests cite"
make --no-print-directory spec-check

step "lint"
hack/lint.sh

step "unit tests and simulated rollouts"
make --no-print-directory test-unit SIM="${SIM:-300}"

step "Helm chart"
make --no-print-directory test-chart

step "documentation: links, and the site"
go -C hack/links vet ./...
go -C hack/links test -count=1 ./... # go does not see that files outside of the module have changed
if command -v npm >/dev/null; then
  make --no-print-directory site
else
  echo "the site is not built: that needs Node.js and npm"
fi

step "local cluster"
make --no-print-directory bin/afloat-cluster
for module in test/cluster test/cluster/csi; do
  go -C $module vet ./...
  go -C $module test ./...
done

step "what a release is made of"
go -C hack/release vet ./...
go -C hack/release test -count=1 ./...

step "alerts, dashboards and GitOps"
go -C test/monitoring vet ./...
go -C test/monitoring test -count=1 ./...

step "integration tests against a real API server"
make --no-print-directory test-integration

if [[ $(id -u) != 0 ]]; then
  step "end-to-end tests: left out, they need root for kubelets and containers"
  exit 0
fi
step "end-to-end tests on real kubelets"
export CLUSTER=${CLUSTER_FOR_TEST:-afloat-test} NODES=3 SIMULATED=0
unset KUBECONFIG
cluster=up
make --no-print-directory test-e2e test-docs SHARE="$((day % 3 + 1))/3" # the manual, too
