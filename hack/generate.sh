#!/usr/bin/env bash
# Writes all generated files: deep copies, CustomResourceDefinitions and the RBAC roles. Called by `make generate`.
set -euo pipefail
cd "$(dirname "$0")/.."

# Kinds whose versions differ: they are converted by the manager's webhook (OPS-070). The manager fills in the CA bundle (OPS-071).
converted=(clonesets containerrecreaterequests nodeimages sidecarsets workloadspreads)

mkdir -p bin
go -C hack/tools build -o ../../bin/controller-gen sigs.k8s.io/controller-tools/cmd/controller-gen

bin/controller-gen object paths=./api/...
# Long descriptions would not fit the annotation that `kubectl apply` keeps.
bin/controller-gen crd:maxDescLen=250 paths=./api/... output:crd:artifacts:config=config/crd/bases
for plural in "${converted[@]}"; do
  sed -i '0,/^spec:$/s//spec:\
  conversion:\
    strategy: Webhook\
    webhook:\
      clientConfig:\
        service:\
          name: kruise-webhook-service\
          namespace: kruise-system\
          path: \/convert\
          port: 443\
      conversionReviewVersions:\
      - v1\
      - v1beta1/' config/crd/bases/*_"$plural".yaml
done

roots=()
for dir in ./internal ./cmd; do
  if [[ -d $dir ]]; then roots+=("paths=$dir/..."); fi
done
bin/controller-gen rbac:roleName=kruise-manager-role "${roots[@]}" output:rbac:dir=config/rbac
