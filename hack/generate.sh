#!/usr/bin/env bash
# Writes all generated files. Called by `make generate`.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p bin
go -C hack/tools build -o ../../bin/controller-gen sigs.k8s.io/controller-tools/cmd/controller-gen

bin/controller-gen object paths=./api/...
# Long descriptions would not fit the annotation that `kubectl apply` keeps.
bin/controller-gen crd:maxDescLen=250 paths=./api/... output:crd:artifacts:config=config/crd/bases
(cd config/crd && printf 'resources:\n' >kustomization.yaml && printf -- '- %s\n' bases/*.yaml >>kustomization.yaml)
# Kinds whose versions differ are converted by the manager's webhook (OPS-070). The manager fills in the CA bundle (OPS-071).
for kind in $(sed -n 's/^func \(.*\)FromV1beta1(.*/\1/p' api/*/v1alpha1/*_conversion.go); do
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
      - v1beta1/' "$(grep -lx "    kind: $kind" config/crd/bases/*.yaml)"
done

roots=()
for dir in ./internal ./cmd; do
  if [[ -d $dir ]]; then roots+=("paths=$dir/..."); fi
done
bin/controller-gen rbac:roleName=kruise-manager-role "${roots[@]}" output:rbac:dir=config/rbac

go run ./hack/manifests config
hack/configmaps.sh
# The Helm chart has the objects of the manifests, the definitions included.
go run ./hack/chart config charts/kruise docs/operate/helm.md

# The reference has the descriptions whole.
whole=$(mktemp -d)
trap 'rm -rf "$whole"' EXIT
bin/controller-gen crd paths=./api/... output:crd:artifacts:config="$whole"
go run ./hack/reference -crds "$whole"
