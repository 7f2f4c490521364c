#!/usr/bin/env bash
# Plays the tests against a real API server and the end-to-end tests on each version of Kubernetes that the local cluster can have, or
# on those that are given, one after the other, and writes what came of it to docs/quality/versions.md, or to REPORT. Called by `make test-versions`.
#
# Each version has binaries of its own and a cluster of its own, which is taken down afterwards. A version whose tests fail stands in the
# report, and the others are played all the same. Rows of versions that are not played stay as they are. What the tests wrote is in bin/versions.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $(id -u) != 0 ]]; then echo "real kubelets need root" >&2; exit 2; fi
report=${REPORT:-docs/quality/versions.md}
logs=bin/versions
export CLUSTER=${CLUSTER_FOR_TEST:-afloat-versions} NODES=3 SIMULATED=0
unset KUBECONFIG
versions=("$@")
if ((${#versions[@]} == 0)); then mapfile -t versions < <(bin/afloat-cluster versions); fi
mkdir -p "$logs" "$(dirname "$report")"
commit=$(git rev-parse --short=12 HEAD)
trap 'make --no-print-directory cluster-down' EXIT

# results prints how many tests of a log passed, and lists those that failed or were skipped.
results() {
  awk '
    /^ *--- (FAIL|SKIP|PASS): / {
      top = $0 !~ /^ /
      if ($2 == "PASS:") passed += top
      if ($2 == "SKIP:") skipped = skipped (skipped ? ", " : "") $3
      if ($2 == "FAIL:") failed = failed (failed ? ", " : "") $3
    }
    END { printf "%d | %s | %s", passed, failed ? failed : "none", skipped ? skipped : "none" }' "$1"
}

client=$(go list -m -f '{{.Version}}' k8s.io/client-go)
# write puts the rows of a version into the report, in place of those that it had. What stands below the table stays.
write() {
  local all below=""
  if [[ -e $report ]]; then below=$(awk '/^\| v/ { seen = 1; text = ""; next } seen { text = text "\n" $0 } END { print text }' "$report"); fi
  all=$({ if [[ -e $report ]]; then grep '^| v' "$report" | grep -vF "| $1 |" || true; fi; printf '%s' "$2"; } | sort -s -t'|' -k2,2V)
  cat >"$report" <<END
# Versions of Kubernetes, tested

Made by \`make test-versions\` on $(nproc) cores; each row says when, and of which commit. For each version the API server,
the controllers, the scheduler, kube-proxy and three kubelets are of that version, built from its modules. Part \`integration\` is the tests
against its API server; part \`e2e\` is the end-to-end tests on its kubelets with containerd, with the shipped manifests. Afloat is built
with client libraries $client in all of them, so the first rows are the newest libraries on the oldest server.

| Kubernetes | part | passed | failed | left out | seconds | day | commit |
|---|---|--:|---|---|--:|---|---|
$all$below
END
}

failed=0
for version in "${versions[@]}"; do
  export K8S_VERSION=$version
  rows=""
  for part in integration e2e; do
    log=$logs/$version-$part.log
    echo "=== $version, $part: begins at $(date +%H:%M)"
    begin=$SECONDS code=0
    if [[ $part = integration ]]; then
      make --no-print-directory test-integration VERBOSE=1 >"$log" 2>&1 </dev/null || code=$?
    else
      make --no-print-directory test-e2e >"$log" 2>&1 </dev/null || code=$?
    fi
    took=$((SECONDS - begin))
    row="$(results "$log")"
    if ((code)) && [[ $row == *"| none |"* ]]; then row="0 | ended with $code before a test failed | none"; fi
    echo "=== $version, $part: exit $code after $took s: $row"
    if ((code)); then failed=1; fi
    rows+="| $version | $part | $row | $took | $(date +%Y-%m-%d) | $commit |"$'\n'
  done
  write "$version" "$rows"
  make --no-print-directory cluster-down
done
echo "the table is in $report"
exit $failed
