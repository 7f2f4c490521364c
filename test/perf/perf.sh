#!/usr/bin/env bash
# Measures the scenarios named by the arguments, each on a fresh cluster that is taken down afterwards. Called by `make perf`; doc.go
# tells what PERF_MANAGER and the like mean. PERF_INSTALL is a file of manifests that are applied first, by default our own.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
export CLUSTER=${PERF_CLUSTER:-afloat-perf} NODES=0
unset KUBECONFIG
work=$(mktemp -d)
export TMPDIR=$work # whatever is left there goes with it
cluster=$root/bin/afloat-cluster
up=
finish() {
  if [[ -n $up ]]; then "$cluster" down || true; fi
  rm -rf "$work"
}
trap finish EXIT
# Copies: what is measured must not change while others build.
go build -o "$work/perf" ./test/perf
cp bin/manager "$work/manager"
export PERF_NAME=${PERF_NAME:-afloat $(git describe --always --dirty 2>/dev/null || echo unknown)}
export PERF_REPORTS=${PERF_REPORTS:-docs/perf}
export PERF_MEMORY=${PERF_MEMORY:-$(sed -nE 's/.*name: GOMEMLIMIT, value: ([^}]+)}.*/\1/p' config/manager/deployment.yaml)}
export PERF_RUN="$cluster run" PERF_BINARY=$work/manager

status=0
for scenario in "$@"; do
  echo "=== $scenario"
  if [[ $("$work/perf" -local -scenario "$scenario") == true ]]; then
    "$work/perf" -scenario "$scenario" || status=1
    continue
  fi
  kubectl=$(hack/kubectl.sh)
  up=yes
  SIMULATED=$("$work/perf" -nodes -scenario "$scenario") "$cluster" up # with room for 500 pods each
  KUBECONFIG=$("$cluster" kubeconfig)
  AUDIT_LOG=$("$cluster" audit)
  # Where the cluster's own programs can be reached: it has a network of its own where it may.
  host=$("$kubectl" --kubeconfig "$KUBECONFIG" config view --minify -o 'jsonpath={.clusters[0].cluster.server}')
  host=${host#https://} host=${host%:*}
  export KUBECONFIG AUDIT_LOG PERF_HOST=$host
  if [[ -n ${PERF_INSTALL:-} ]]; then
    "$kubectl" apply --server-side --force-conflicts -f "$PERF_INSTALL" >/dev/null
  else
    "$kubectl" apply --server-side --force-conflicts -f config/manager/namespace.yaml >/dev/null
    for part in crd webhook; do "$kubectl" kustomize "config/$part" | "$kubectl" apply --server-side --force-conflicts -f - >/dev/null; done
  fi
  if [[ -n ${PERF_MANAGER:-} ]]; then
    manager=$PERF_MANAGER
  else
    manager="env GOMEMLIMIT=$PERF_MEMORY WEBHOOK_HOST=127.0.0.1 WEBHOOK_CERT_WRITER=fs WEBHOOK_CERT_DIR=$work/certificates-$scenario $work/manager --kubeconfig $KUBECONFIG
      --metrics-addr=$host:18080 --health-probe-addr=$host:18000 --enable-pprof --pprof-addr=$host:18090 --shutdown-delay-duration=0s --v=3
      --feature-gates=PodUnavailableBudgetUpdateGate=true,ResourceDistributionGate=true"
    manager=${manager//$'\n'/}
  fi
  PERF_MANAGER=$manager PERF_READY=${PERF_READY-http://$host:18000/readyz} PERF_METRICS=${PERF_METRICS-http://$host:18080/metrics} \
    PERF_PPROF=${PERF_PPROF-http://$host:18090} "$work/perf" -scenario "$scenario" || {
    status=1
    tail -n 20 "$(dirname "$AUDIT_LOG")/run-perf-manager.log" >&2 || true
  }
  if [[ -n ${PERF_PROFILES:-} ]]; then # for a closer look
    mkdir -p "$PERF_PROFILES"
    for log in run-perf-manager.log audit.log; do cp "$(dirname "$AUDIT_LOG")/$log" "$PERF_PROFILES/$scenario.$log" || true; done
  fi
  "$cluster" down
  up=
done
exit $status
