package expose

import (
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
	"github.com/afloat-project/afloat/internal/plugin/plugintest/golden"
)

const workload = `
apiVersion: GROUPVERSION
kind: KIND
metadata: {name: NAME, labels: {team: shop}}
spec:
  fieldOfTomorrow: {kept: true}
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {containers: [{name: app, image: i, ports: [{containerPort: 8080}, {containerPort: 53, protocol: UDP}]}]}
`

func manifest(groupVersion, kind, name string) string {
	return strings.NewReplacer("GROUPVERSION", groupVersion, "KIND", kind, "NAME", name).Replace(workload)
}

// OPS-162: what kubectl exposes, and CloneSets and Advanced StatefulSets of either version, by argument or
// file, with kubectl's flags.
func TestWhatKubectlExposesAndOurKindsAreExposed(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		t.Run(version, func(t *testing.T) {
			own := "apps.kruise.io/" + version
			s := plugintest.NewIn(t, "shop", version, manifest(own, "CloneSet", "clone"), manifest(own, "StatefulSet", "asts"), manifest(own, "DaemonSet", "ads"),
				manifest("apps/v1", "Deployment", "deployment"), manifest("apps/v1", "ReplicaSet", "replicaset"),
				"{apiVersion: v1, kind: Pod, metadata: {name: pod, labels: {app: pod}}, spec: {containers: [{name: c, ports: [{containerPort: 1}]}]}}",
				"{apiVersion: v1, kind: Service, metadata: {name: service}, spec: {selector: {a: b}, ports: [{port: 2}]}}",
				"{apiVersion: v1, kind: ReplicationController, metadata: {name: rc}, spec: {selector: {a: b}, template: {spec: {containers: [{name: c, "+
					"ports: [{containerPort: 3}]}]}}}}",
				manifest(own, "CloneSet", "expressions"))
			s.Change(t, "clonesets", "expressions", func(o map[string]any) {
				o["spec"].(map[string]any)["selector"] = map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "Exists"}}}
			})
			var all string
			for _, line := range []string{
				"cloneset clone",
				"asts/asts --port=80 --target-port=8080 --name=http --type=LoadBalancer",
				"clone clone --name=dry --port=80 --dry-run=client -o yaml",
				"clone clone --name=dry --port=80 --dry-run=server --field-manager=me",
				"clone clone --name=picked --port=80 --selector=a=b -l c=d",
				"deployment deployment", "rs replicaset", "rc rc", "svc service --name=again", "pod pod",
				"-f testdata/cloneset.yaml",
				"clone/clone deploy/deployment --name=two --port=1",
				"ads ads", "clone expressions --port=80", "clone nothing",
			} {
				all += s.Play(t, New, append([]string{"expose"}, strings.Fields(line)...)...)
			}
			golden.Compare(t, version, all)
		})
	}
}
