#!/usr/bin/env bash
# Plays rollouts and faults on a cluster of its own, which is taken down afterwards, and judges the record. Called by
# `make robustness`; docs/develop/robustness.md says what it does. CLOCKS=1 lets the clocks of managers differ, FAULTS is how many
# faults there are in an hour. REAL_NODES is how many nodes have a kubelet, a containerd and the node daemon; with 0, nodes are simulated. REPORT=1 writes
# the verdict to docs/quality/robustness.md, too, with real nodes to robustness-nodes.md, without faults to hours.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CLUSTER=${ROBUSTNESS_CLUSTER:-afloat-robust} NODES=${REAL_NODES:-0} SIMULATED=4
unset KUBECONFIG
[[ $(id -u) == 0 ]] || { echo "make robustness needs root, for a network of its own" >&2; exit 2; }
report=robustness
if ((NODES > 0)); then
  # Programs of nodes cost more than simulated ones. Faults crash containers that kubelets would not start again for minutes.
  export SIMULATED=0 MAX_BACKOFF=10s FAULTS=${FAULTS:-400}
  report=robustness-nodes
fi
if [[ ${FAULTS:-} == 0 ]]; then report=hours; fi
work=$(mktemp -d)
cluster=$PWD/bin/afloat-cluster
finish() {
  "$cluster" down || true
  rm -rf "$work"
}
trap finish EXIT
# Copies: what runs must not change while others build.
go -C test/robustness build -o "$work/robustness" .
if [[ -n ${CLOCKS:-} ]]; then
  echo "building a manager whose clock can be shifted: the first time this takes minutes"
  "$work/robustness" -build-clocks "$work/manager"
else
  cp bin/manager "$work/manager"
fi

((NODES == 0)) || cp bin/daemon "$work/daemon"

"$cluster" up
KUBECONFIG=$("$cluster" kubeconfig)
export KUBECONFIG
kubectl=$(hack/kubectl.sh)
apply() { "$kubectl" apply --server-side --force-conflicts "$@" >/dev/null; }
apply -f config/manager/namespace.yaml
apply -f config/manager/serviceaccount.yaml
for part in crd rbac resource-distribution webhook; do "$kubectl" kustomize "config/$part" | apply -f -; done
if ((NODES > 0)); then
  "$cluster" image build --name afloat/daemon:dev --binary "$work/daemon=/daemon" --entrypoint /daemon --user 0
  # Versions of images, which differ in an argument that nothing reads.
  pause=$("$cluster" binaries --only pause | tail -n 1)/pause
  for name in beside:v1 {app,shipper,pull}:v{1..30}; do
    "$cluster" image build --name "$name" --binary "$pause=/pause" --entrypoint /pause --arg "$name" >/dev/null
  done
  mkdir -p bin/local-robustness
  # Between each node and the API server is a wire that can be cut, on the address of the node.
  { echo "resources: [../../config/daemon]"; echo "patches:"; hack/local-daemon.sh; cat; } >bin/local-robustness/kustomization.yaml <<END
- patch: |
    apiVersion: apps/v1
    kind: DaemonSet
    metadata: {name: kruise-daemon, namespace: kruise-system}
    spec:
      template:
        spec:
          containers:
          - name: daemon
            env:
            - {name: KUBERNETES_SERVICE_HOST, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
            - {name: KUBERNETES_SERVICE_PORT, value: "6443"}
END
  "$kubectl" kustomize bin/local-robustness | apply -f -
fi
"$cluster" exec -- "$work/robustness" -time "${TIME:-1h}" -seed "${SEED:-0}" -tool "$cluster" -manager "$work/manager" \
  -commit "$(git rev-parse --short=12 HEAD)" ${CLOCKS:+-clocks} ${FAULTS:+-faults-per-hour "$FAULTS"} \
  ${REPORT:+-report "$PWD/docs/quality/$report.md"} -out "$PWD/bin/robustness"
