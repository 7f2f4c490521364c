#!/usr/bin/env bash
# Prints the path of a kubectl: for the local cluster, and where none is installed, the one that is built with it, else the installed one.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$(bin/afloat-cluster kubeconfig 2>/dev/null || true)
if [[ ${KUBECONFIG:-} != "$here" ]] && command -v kubectl; then
  exit
fi
if [[ -x bin/afloat-cluster ]] && dir=$(bin/afloat-cluster binaries --only kubectl 2>/dev/null | tail -n 1) && [[ -x $dir/kubectl ]]; then
  echo "$dir/kubectl"
else
  command -v kubectl || { echo "kubectl is not installed" >&2; exit 1; }
fi
