#!/usr/bin/env bash
# Writes the ConfigMaps that hold dashboards of Grafana and scripts of Argo CD. Called by `make generate`.
set -euo pipefail
cd "$(dirname "$0")/.."

# Files in ConfigMaps: Grafana's sidecar finds dashboards by their label; Argo CD reads its scripts from argocd-cm.
header='# Written by `make generate`.
'
configmap() { # namespace, name, labels
  printf 'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: %s\n  labels:\n    %s\ndata:\n' "$2" "$1" "$3"
}
entry() { # key; the text comes from standard input
  printf '  %s: |\n' "$1"
  sed 's/^\(.\)/    \1/'
}
{
  printf %s "$header"
  for file in config/monitoring/dashboards/*.json; do
    name=$(basename "$file" .json)
    echo ---
    configmap kruise-system "$name-dashboard" 'grafana_dashboard: "1"'
    entry "$name.json" <"$file"
  done
} >config/monitoring/dashboards.yaml
{
  printf %s "$header"
  configmap argocd argocd-cm 'app.kubernetes.io/part-of: argocd'
  for file in config/argocd/health/*.lua; do
    for kind in $(sed -n 's/^-- kinds: //p' "$file"); do
      entry "resource.customizations.health.$kind" <"$file"
    done
  done
  for kind in $(sed -n 's/^-- kinds: //p' config/argocd/actions/discovery.lua); do
    {
      entry discovery.lua <config/argocd/actions/discovery.lua | sed 's/^  //'
      echo definitions:
      for action in pause restart resume; do
        [[ $kind != *_SidecarSet || $action != restart ]] || continue
        printf -- '- name: %s\n' "$action"
        entry action.lua <"config/argocd/actions/$action.lua"
      done
    } | entry "resource.customizations.actions.$kind"
  done
} >config/argocd/argocd-cm.yaml
