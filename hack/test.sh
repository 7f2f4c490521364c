#!/usr/bin/env bash
# Everything a change must pass. Called by `make test`.
#
# Parts that mostly wait are played beside parts that compute: in lanes, each of which plays one part after the other.
# What needs kubelets comes after them, alone: a local cluster whose API server gets no time loses its connections. What a part writes goes to a file in bin/test, and is printed as a whole
# when the part ends. The first part that fails ends them all.
#
# What takes long is played in shares: each day has other seeds of simulations, and another third of the pages of the manual that change
# the installation. `make simulate` and `make test-docs` play more.
#
# As root the end-to-end tests run on a cluster of their own with real nodes; without root there are no kubelets, so they are
# left out, which is said.
set -euo pipefail
set -m # each lane is a process group; finish ends what is left of them, since what they start ignores Ctrl-C
cd "$(dirname "$0")/.."
day=$(($(date +%s) / 86400))
export FIRST=${FIRST:-$((day % 10000 * 1000 + 1))}
export CLUSTER=${CLUSTER_FOR_TEST:-afloat-test} NODES=3 SIMULATED=0
unset KUBECONFIG
make="make --no-print-directory"
cluster=""
logs=bin/test
times=bin/test-times # how long the parts took last time
rm -rf "$logs"
mkdir -p "$logs"
touch "$times" "$logs/took"

# part plays a part, which is its name and a command.
part() {
  local name=$1 begin=$SECONDS code=0 log
  shift
  log="$logs/${name//[^A-Za-z]/-}"
  (set -e; "$@") >"$log" 2>&1 </dev/null & # in the background, since bash ignores -e where somebody asks for the status
  report_begin
  wait $! || code=$?
  report_end
  if ((code)); then kill -USR1 $$; exit $code; fi
}
# What is reported is printed by one lane at a time.
report_begin() {
  flock 9
  local last
  last=$(grep -F "  $name" "$times" | tail -n 1 | sed 's/ s .*/ s/; s/^ *//' || true)
  echo "=== $name: begins after $begin s${last:+, took $last last time}"
} 9>"$logs/lock"
report_end() {
  flock 9
  local took=$((SECONDS - begin))
  printf '%6d s  %s\n' $took "$name" >>"$logs/took"
  if ((code)) && [[ ! -e $logs/failed ]]; then echo "$name" >"$logs/failed"; fi
  printf '\n=== %s: %s %d s\n' "$name" "$( ((code)) && echo "FAILED after" || echo took)" $took
  cat "$log"
  echo
} 9>"$logs/lock"

# descendants prints the ids of a process and of all that it started, directly or not.
descendants() {
  local child
  echo "$1"
  for child in $(grep -lsE "^PPid:[[:space:]]+$1\$" /proc/[0-9]*/status | cut -d/ -f3); do descendants "$child"; done
}

finish() {
  local code=$? lane running=""
  trap '' INT TERM HUP USR1
  for lane in $(jobs -rp); do running+=" $(descendants "$lane" | paste -sd' ')"; done
  # shellcheck disable=SC2086 # these are many
  if [[ -n $running ]]; then
    { kill $running || true; wait; } 2>/dev/null
    for _ in {1..100}; do kill -0 $running 2>/dev/null && sleep 0.1 || break; done
  fi
  if [[ -n $cluster ]]; then $make cluster-down || true; fi
  if ((code == 0)); then cp "$logs/took" "$times"; fi
  printf '\n=== what the parts took, %d s together\n' $SECONDS
  cat "$logs/took"
  if [[ -e $logs/failed ]]; then
    echo "failed first: $(<"$logs/failed"); what each part wrote is in $logs" >&2
  elif ((code)); then
    echo "ended before all parts were played; what each wrote is in $logs" >&2
  fi
}
trap finish EXIT
trap 'exit 1' USR1 # a part failed
trap 'exit 130' INT
trap 'exit 143' TERM HUP

generated() {
  local folders=(api config charts docs/reference docs/operate/helm.md) before after
  before=$(git status --porcelain -- "${folders[@]}")
  hack/generate.sh
  after=$(git status --porcelain -- "${folders[@]}")
  if [[ $before == "$after" ]]; then return; fi
  git --no-pager diff -- "${folders[@]}"
  echo "generated files were not current: run make generate" >&2
  return 1
}

documentation() {
  module hack/links
  if command -v npm >/dev/null; then
    $make site
  else
    echo "the site is not built: that needs Node.js and npm"
  fi
}

# module vets and tests modules of their own. go does not see that files outside of them have changed, hence -count.
module() {
  local module
  for module in "$@"; do
    go -C "$module" vet ./...
    go -C "$module" test -count=1 ./...
  done
}

compute() {
  renice -n 10 -p $BASHPID >/dev/null 2>&1 || true # it takes what those leave that have limits of time
  part "requirements that tests cite" $make spec-check
  part "lint" hack/lint.sh
  part "unit tests and simulated rollouts" $make test-unit SIM="${SIM:-300}"
}

small() {
  part "Helm chart" $make test-chart
  part "documentation: links, and the site" documentation
  part "page of kubectl afloat dashboard" $make test-dashboard
  part "local cluster" module test/cluster test/cluster/csi
  part "judge of robustness" module test/robustness
  part "what a release is made of" module hack/release
  part "alerts, dashboards and GitOps" module test/monitoring
  part "integration tests against a real API server" $make test-integration
}

kubelets() {
  part "end-to-end tests on real kubelets" $make test-e2e
  part "manual" $make test-docs SHARE="$((day % 3 + 1))/3"
}

part "generated files are current" generated # alone, since all others read them
part "programs of the local cluster" $make bin/afloat-cluster
ids=()
for lane in compute small; do
  "$lane" &
  ids+=($!)
done
for id in "${ids[@]}"; do wait "$id"; done
if [[ $(id -u) != 0 ]]; then
  echo "=== end-to-end tests are left out: they need root for kubelets and containers"
  exit 0
fi
cluster=up
kubelets &
wait $!
