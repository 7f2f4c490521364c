#!/usr/bin/env bash
# Lists webhook entries in the cluster that are not in our manifests: those of an installation that serves more kinds than we do.
set -euo pipefail
cd "$(dirname "$0")/.."
kubectl=$(hack/kubectl.sh)
ours=$("$kubectl" kustomize config/webhook | sed -n 's/^  name: //p'; printf '%s.kb.io\n' mpod-all mpod-recent vpod-budget vpodeviction-budget) # these the manager makes
for configuration in mutatingwebhookconfiguration/kruise-mutating-webhook-configuration validatingwebhookconfiguration/kruise-validating-webhook-configuration; do
  for name in $("$kubectl" get "$configuration" --ignore-not-found -o jsonpath='{.webhooks[*].name}'); do
    grep -qxF -- "$name" <<<"$ours" || echo "$configuration: $name"
  done
done
