#!/usr/bin/env bash
# Installs Afloat into the cluster that KUBECONFIG names and waits until it serves. Called by `make deploy`.
set -euo pipefail
cd "$(dirname "$0")/.."
kubectl=$(hack/kubectl.sh)
"$kubectl" kustomize config/default | sed "s|image: afloat/manager:dev|image: ${IMAGE:-afloat/manager:dev}|" |
  "$kubectl" apply --server-side --force-conflicts -f - >/dev/null
# A rebuilt image of the same tag is only taken up by new pods.
"$kubectl" -n kruise-system rollout restart deployment/kruise-controller-manager >/dev/null
"$kubectl" -n kruise-system rollout status deployment/kruise-controller-manager --timeout=180s
