package describe

import (
	"fmt"
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
	"github.com/afloat-project/afloat/internal/plugin/plugintest/golden"
)

const cloneSet = `
apiVersion: apps.kruise.io/VERSION
kind: CloneSet
metadata:
  name: web
  generation: 4
  creationTimestamp: "2026-01-02T03:04:05Z"
  labels: {team: shop, app: web}
  annotations: {note: here, kubectl.kubernetes.io/last-applied-configuration: "{}"}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}, matchExpressions: [{key: debug, operator: DoesNotExist}]}
  updateStrategy: {type: InPlaceIfPossible, rollingUpdate: {partition: 20%, scatterStrategy: [{key: a, value: b}]}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: "nginx:2", ports: [{containerPort: 80}]}], volumes: [{name: tmp, emptyDir: {}}]}
status:
  observedGeneration: 3
  replicas: 3
  updatedReplicas: 1
  updateRevision: web-new
  conditions:
  - {type: Progressing, status: "False", reason: ProgressDeadlineExceeded, message: it takes long, lastTransitionTime: "2026-01-02T04:00:00Z"}
  - {type: FailedScale, status: "False"}
`

func pod(name, kind, owner, revision, status, extra string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %s
  %s
  labels: {app: web, controller-revision-hash: %q, lifecycle.apps.kruise.io/state: Normal}
  ownerReferences: [{apiVersion: apps.kruise.io/v1beta1, kind: %s, name: web, uid: %s, controller: true}]
spec: {nodeName: node-1, containers: [{name: app, image: i}]}
status: %s
`, name, extra, revision, kind, owner, status)
}

const (
	ready   = `{phase: Running, conditions: [{type: Ready, status: "True"}], containerStatuses: [{name: app, ready: true, restartCount: 2}]}`
	crashes = `{phase: Running, containerStatuses: [{name: app, restartCount: 7, state: {waiting: {reason: CrashLoopBackOff}}}]}`
)

// OPS-165: status, conditions, pods by revision and events of the project's kinds, of either version; all
// else is kubectl's.
func TestDescribe(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		t.Run(version, func(t *testing.T) {
			s := plugintest.NewIn(t, "shop", version, strings.ReplaceAll(cloneSet, "VERSION", version),
				pod("web-a", "CloneSet", "uid-cloneset-web", "web-old", ready, ""), pod("web-b", "CloneSet", "uid-cloneset-web", "web-new", crashes, ""),
				pod("web-c", "CloneSet", "uid-cloneset-web", "web-old", ready, "deletionTimestamp: '2026-01-01T00:00:00Z'"),
				pod("stranger", "CloneSet", "uid-of-another", "web-old", ready, ""),
				pod("node-a", "DaemonSet", "uid-daemonset-agent", "hash1", ready, ""), pod("node-b", "DaemonSet", "uid-daemonset-agent", "", ready, ""),
				"{apiVersion: apps.kruise.io/"+version+", kind: DaemonSet, metadata: {name: agent}, spec: {selector: {matchLabels: {app: web}}}, "+
					"status: {numberReady: 1, daemonSetHash: hash1}}",
				"{apiVersion: apps.kruise.io/"+version+", kind: StatefulSet, metadata: {name: none}, spec: {selector: {matchLabels: {app: db}}}}",
				"{apiVersion: apps.kruise.io/"+version+", kind: SidecarSet, metadata: {name: mesh, deletionTimestamp: '2026-01-01T00:00:00Z'}, "+
					"spec: {containers: [{name: mesh, image: i}]}, status: {matchedPods: 3}}",
				"{apiVersion: policy.kruise.io/"+version+", kind: PodUnavailableBudget, metadata: {name: web}, spec: {maxUnavailable: 1}, status: {totalReplicas: 3}}",
				"{apiVersion: apps.kruise.io/"+version+", kind: UnitedDeployment, metadata: {name: far}, spec: {template: {cloneSetTemplate: {spec: {replicas: 1}}}}}",
				"{apiVersion: v1, kind: ConfigMap, metadata: {name: plain}, data: {a: b}}",
				"{apiVersion: v1, kind: Event, metadata: {name: e1}, type: Warning, reason: FailedCreate, message: no quota, source: {component: manager}, "+
					"involvedObject: {kind: CloneSet, name: web, namespace: shop, uid: uid-cloneset-web}}",
				"{apiVersion: v1, kind: Event, metadata: {name: e2}, type: Normal, reason: Other, message: of another object, "+
					"involvedObject: {kind: CloneSet, name: another, namespace: shop, uid: uid-of-another}}")
			var all string
			for _, line := range []string{
				"cloneset/web", "clone web --show-events=false", "ads agent", "asts/none", "sidecarset mesh", "pub/web", "ud/far", "configmap plain",
				"clone/nothing clone/web --show-events=false", "clone we --show-events=false", "clone -l app=nothing", "", "nothings/web",
			} {
				all += s.Play(t, New, append([]string{"describe"}, strings.Fields(line)...)...)
			}
			golden.Compare(t, version, all)
		})
	}
}
