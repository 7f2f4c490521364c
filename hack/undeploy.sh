#!/usr/bin/env bash
# Removes Afloat but not the users' objects: the webhooks first, so that none points to nothing; CRDs stay, without conversion
# (OPS-117, OPS-118). Called by `make undeploy`.
set -euo pipefail
cd "$(dirname "$0")/.."
kubectl=$(hack/kubectl.sh)
foreign=$(hack/foreign.sh)
if [ -n "$foreign" ] && [ "${FORCE:-}" != 1 ]; then
  printf 'Nothing was changed: these webhooks of another installation would go too.\n%s\nFORCE=1 removes them nevertheless.\n' "$foreign" >&2
  exit 1
fi
"$kubectl" delete --ignore-not-found mutatingwebhookconfiguration/kruise-mutating-webhook-configuration \
  validatingwebhookconfiguration/kruise-validating-webhook-configuration \
  validatingadmissionpolicy/kruise-protection-warnings validatingadmissionpolicybinding/kruise-protection-warnings
for crd in $("$kubectl" get crd -o name | grep -E '\.(apps|policy)\.kruise\.io$' || true); do
  "$kubectl" patch "$crd" --type=json -p '[{"op":"replace","path":"/spec/conversion","value":{"strategy":"None"}}]'
done
"$kubectl" kustomize config/daemon | "$kubectl" delete --ignore-not-found -f -
"$kubectl" kustomize config/manager | "$kubectl" delete --ignore-not-found -f -
# Nobody is left to remove the finalizers of the manager (IMG-121).
for kind in imagepulljobs.apps.kruise.io containerrecreaterequests.apps.kruise.io jobs.batch broadcastjobs.apps.kruise.io imagelistpulljobs.apps.kruise.io ephemeraljobs.apps.kruise.io podprobemarkers.apps.kruise.io; do
  ("$kubectl" get "$kind" -A -o jsonpath='{range .items[*]}{.metadata.namespace} {.metadata.name} {.metadata.finalizers}{"\n"}{end}' 2>/dev/null || true) |
    while read -r namespace name finalizers; do
      rest=$(sed -E 's#"(apps\.kruise\.io/(deletion-protection|unrecorded-run|ephemeralcontainers-cleanup)|crr\.apps\.kruise\.io/unready-acquired|kruise\.io/node-pod-probe-cleanup)",?##; s#,\]$#]#' <<<"$finalizers")
      if [ "$rest" != "$finalizers" ]; then
        # A pod that a request holds not ready (CRR-083) would never be ready again. Either may have gone meanwhile.
        if [ "$kind" = containerrecreaterequests.apps.kruise.io ]; then
          pod=$("$kubectl" -n "$namespace" get "$kind" "$name" --ignore-not-found -o jsonpath='{.spec.podName}')
          held=$("$kubectl" -n "$namespace" get pod "$pod" --ignore-not-found -o jsonpath='{.status.conditions[?(@.type=="KruisePodReady")].status}')
          [ "$held" != False ] || "$kubectl" -n "$namespace" patch pod "$pod" --subresource=status -p '{"status":{"conditions":[{"type":"KruisePodReady","status":"True","message":null}]}}' || true
        fi
        "$kubectl" -n "$namespace" patch "$kind" "$name" --type=merge -p "{\"metadata\":{\"finalizers\":$rest}}" || true
      fi
    done
done
for part in resource-distribution rbac; do "$kubectl" kustomize "config/$part" | "$kubectl" delete --ignore-not-found -f -; done
