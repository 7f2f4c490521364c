#!/usr/bin/env bash
# Installs Afloat into the cluster that KUBECONFIG names and waits until it serves. Called by `make deploy`, `make local-deploy` and, with CHART=1 for
# the Helm chart in place of the manifests, `make local-helm`.
set -euo pipefail
cd "$(dirname "$0")/.."
kubectl=$(hack/kubectl.sh)
IMAGE=${IMAGE:-afloat/manager:dev} DAEMON_IMAGE=${DAEMON_IMAGE:-afloat/daemon:dev} manifests=${MANIFESTS:-config/default}
here=$(bin/afloat-cluster kubeconfig 2>/dev/null || true) # of the local cluster

# Images of that tag are in the registry of the local cluster, and in no other.
if [ "$KUBECONFIG" != "$here" ] && [[ $IMAGE == *:dev || $DAEMON_IMAGE == *:dev ]]; then
  echo "Nothing was changed: IMAGE=$IMAGE DAEMON_IMAGE=$DAEMON_IMAGE are for the local cluster. Name images that the nodes can pull." >&2
  exit 1
fi

# Replacing a manager that serves more kinds than this one would leave their objects without anybody (OPS-112).
foreign=$(hack/foreign.sh)
if [ -n "$foreign" ] && [ "${FORCE:-}" != 1 ]; then
  printf 'Nothing was changed: these webhooks belong to an installation that serves kinds which this one does not serve yet.\n%s\nFORCE=1 installs nevertheless.\n' "$foreign" >&2
  exit 1
fi

# A local cluster may have simulated nodes only, which run no containers: then the manager runs beside the cluster, called by URL.
if "$kubectl" get nodes -l afloat.dev/simulated -o name | grep -q . && ! "$kubectl" get nodes -l '!afloat.dev/simulated' -o name | grep -q .; then
  echo "only simulated nodes: the manager runs beside the cluster"
  "$kubectl" apply --server-side --force-conflicts -f config/manager/namespace.yaml >/dev/null
  "$kubectl" kustomize config/crd | "$kubectl" apply --server-side --force-conflicts -f - >/dev/null
  "$kubectl" kustomize config/webhook | "$kubectl" apply --server-side --force-conflicts -f - >/dev/null
  certificates=$(dirname "$KUBECONFIG")/manager-certificates # goes with the cluster
  log=$(WEBHOOK_HOST=127.0.0.1 WEBHOOK_CERT_WRITER=fs WEBHOOK_CERT_DIR=$certificates bin/afloat-cluster run manager -- bin/manager \
    --kubeconfig "$KUBECONFIG" --enable-leader-election=false --metrics-addr=127.0.0.1:0 --health-probe-addr=127.0.0.1:0 --enable-pprof=false --shutdown-delay-duration=0s --v=3)
  for _ in $(seq 120); do
    if "$kubectl" apply --dry-run=server -f test/story/create.yaml >/dev/null 2>&1; then
      echo "the manager serves; its log is $log"
      exit 0
    fi
    sleep 0.5
  done
  tail -n 20 "$log" >&2
  exit 1
fi

# The nodes of the local cluster share one network and keep their sockets in folders of their own, so that its daemons differ from the
# shipped ones in both.
if [ "$KUBECONFIG" = "$here" ] && socket=$(bin/afloat-cluster node-socket node1 2>/dev/null); then
  mkdir -p bin/local
  cat >bin/local/kustomization.yaml <<END
resources: [../../$manifests]
patches:
$(hack/local-daemon.sh)
- patch: |
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: kruise-controller-manager, namespace: kruise-system}
    spec:
      template:
        spec:
          containers:
          - name: manager
            imagePullPolicy: Always
END
  manifests=bin/local
  cat >bin/local/values.yaml <<END # the same for the chart
manager: {image: {pullPolicy: Always}}
daemon:
  image: {pullPolicy: Always}
  socketLocation: $(dirname "$(dirname "$socket")")
  podSpec: {hostNetwork: false, dnsPolicy: ClusterFirst}
  container:
    volumeMounts:
    - {name: runtime-sockets, mountPath: /hostvarrun, readOnly: true, mountPropagation: HostToContainer, subPathExpr: \$(NODE_NAME)}
END
fi
if [ "${CHART:-}" = 1 ]; then
  bin/helm upgrade --install kruise charts/kruise --take-ownership --force-conflicts --wait --timeout 3m -f bin/local/values.yaml \
    --set "manager.image.repository=${IMAGE%:*},manager.image.tag=${IMAGE##*:},daemon.image.repository=${DAEMON_IMAGE%:*},daemon.image.tag=${DAEMON_IMAGE##*:}"
  exit
fi
"$kubectl" kustomize "$manifests" | sed "s|image: afloat/manager:dev|image: $IMAGE|; s|image: afloat/daemon:dev|image: $DAEMON_IMAGE|" |
  "$kubectl" apply --server-side --force-conflicts -f - >/dev/null
# A rebuilt image of the same tag is only taken up by new pods that pull it.
"$kubectl" -n kruise-system rollout restart deployment/kruise-controller-manager daemonset/kruise-daemon >/dev/null
"$kubectl" -n kruise-system rollout status deployment/kruise-controller-manager --timeout=180s
# Nodes without a runtime, such as simulated ones, never have a ready daemon; that is no failure of the installation.
"$kubectl" -n kruise-system rollout status daemonset/kruise-daemon --timeout=60s || echo "the node daemon is not ready on every node: see kubectl -n kruise-system get pods -l control-plane=daemon -o wide" >&2
