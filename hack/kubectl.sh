#!/usr/bin/env bash
# Prints the path of a kubectl: the one of the local cluster, or else the one that is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ -x bin/afloat-cluster ]] && dir=$(bin/afloat-cluster binaries --only kubectl 2>/dev/null | tail -n 1) && [[ -x $dir/kubectl ]]; then
  echo "$dir/kubectl"
else
  command -v kubectl || { echo "kubectl is not installed" >&2; exit 1; }
fi
