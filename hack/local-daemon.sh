#!/usr/bin/env bash
# Prints the patch with which the node daemon runs on the real nodes of the local cluster, an entry of the patches of a kustomization.
# These nodes share one network and keep their sockets in folders of their own, so that its daemons differ from the shipped ones in both.
set -euo pipefail
cd "$(dirname "$0")/.."
socket=$(bin/afloat-cluster node-socket node1)
cat <<END
- patch: |
    apiVersion: apps/v1
    kind: DaemonSet
    metadata: {name: kruise-daemon, namespace: kruise-system}
    spec:
      template:
        spec:
          hostNetwork: false
          dnsPolicy: ClusterFirst
          containers:
          - name: daemon
            imagePullPolicy: Always # a rebuilt image has the same tag
            volumeMounts:
            - {name: runtime-sockets, mountPath: /hostvarrun, readOnly: true, mountPropagation: HostToContainer, subPathExpr: \$(NODE_NAME)}
          volumes:
          - {name: runtime-sockets, hostPath: {path: $(dirname "$(dirname "$socket")")}}
END
