package doctor

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// spelled makes an object one whose spec was written at that time, and whose controller has seen a
// generation.
func spelled(t *testing.T, object *unstructured.Unstructured, at string, generation, seen int64) {
	t.Helper()
	set(t, object, generation, "metadata", "generation")
	set(t, object, []any{map[string]any{"manager": "kubectl", "operation": "Update", "time": at, "fieldsType": "FieldsV1"},
		map[string]any{"manager": "kruise-manager", "operation": "Update", "subresource": "status", "time": "2026-01-02T14:59:59Z"}}, "metadata", "managedFields")
	if seen > 0 {
		set(t, object, seen, "status", "observedGeneration")
	}
}

// event is one of the manager about its Deployment.
func event(name, reason, message, at string) string {
	return `{apiVersion: v1, kind: Event, metadata: {name: ` + name + `, namespace: kruise-system}, involvedObject: {kind: Deployment, name: ` +
		installation.Manager + `}, reason: ` + reason + `, message: "` + message + `", eventTime: "` + at + `"}`
}

// OPS-186: a leader whose controllers do nothing is a problem, by what can be seen: its readiness, and
// objects whose last change is not seen. What was changed a moment ago, or before a leader that has just
// begun, is none.
func TestALeaderThatDoesNothingIsAProblem(t *testing.T) {
	led := func(t *testing.T, m *memory, at string) {
		set(t, m.find("Lease", installation.Lock), at, "spec", "acquireTime")
	}
	ready := func(t *testing.T, m *memory, status, since string) {
		set(t, m.find("Pod", "manager-a"), []any{map[string]any{"type": "Ready", "status": status, "lastTransitionTime": since}}, "status", "conditions")
	}
	for name, tt := range map[string]struct {
		change func(*testing.T, *memory)
		want   []string
	}{
		"healthy": {change: func(t *testing.T, m *memory) {
			led(t, m, "2026-01-01T00:00:00Z")
			ready(t, m, "True", "2026-01-01T00:00:00Z")
			spelled(t, m.find("CloneSet", "web"), "2026-01-02T14:00:00Z", 5, 5)
		}},
		"changed a minute ago": {change: func(t *testing.T, m *memory) {
			led(t, m, "2026-01-01T00:00:00Z")
			spelled(t, m.find("CloneSet", "web"), "2026-01-02T14:59:00Z", 5, 4)
		}},
		"taken over a minute ago": {change: func(t *testing.T, m *memory) {
			led(t, m, "2026-01-02T14:59:00.000000Z")
			ready(t, m, "False", "2026-01-02T14:59:10Z")
			spelled(t, m.find("CloneSet", "web"), "2026-01-02T14:30:00Z", 5, 4)
			set(t, m.find("CloneSet", "web"), []any{map[string]any{"type": "FailedUpdate", "status": "True", "lastTransitionTime": "2025-10-01T00:00:00Z",
				"message": "of another manager"}}, "status", "conditions")
			template := func(by string) map[string]any {
				return map[string]any{"manager": by, "operation": "Update", "time": "2026-01-02T14:59:30Z", "fieldsType": "FieldsV1",
					"fieldsV1": map[string]any{"f:metadata": map[string]any{"f:annotations": map[string]any{"f:template": map[string]any{}}}}}
			}
			set(t, m.find("MutatingWebhookConfiguration", installation.Mutating), []any{template("kruise-manager"), template("kubectl-afloat")},
				"metadata", "managedFields")
			set(t, m.find("CloneSet", "web"), int64(5), "status", "observedGeneration")
			set(t, m.find("CloneSet", "web"), int64(3), "spec", "replicas")
			for _, field := range []string{"replicas", "availableReplicas", "updatedReplicas"} {
				set(t, m.find("CloneSet", "web"), int64(3), "status", field)
			}
		}},
		"off by a feature gate": {change: func(t *testing.T, m *memory) {
			m.add(t, `{apiVersion: apps.kruise.io/v1beta1, kind: ResourceDistribution, metadata: {name: x, generation: 1}}`)
		}},
		"a DaemonSet that says why": {change: func(t *testing.T, m *memory) {
			m.add(t, `{apiVersion: apps.kruise.io/v1beta1, kind: DaemonSet, metadata: {name: x, namespace: shop, generation: 1}, spec: {selector: {}}}`)
		}},
		"leads and does nothing": {func(t *testing.T, m *memory) {
			led(t, m, "2026-01-01T00:00:00Z")
			spelled(t, m.find("CloneSet", "web"), "2026-01-02T14:50:00Z", 5, 4)
		}, []string{"problem  controllers       the last change of 1 of 1 object of kind CloneSet is not seen, as if nobody reconciled it: " +
			"CloneSet shop/web is at generation 5, and its controller has seen 4, for 10 minutes", "kubectl -n kruise-system logs manager-a says which kind"}},
		"never looked at a new one": {func(t *testing.T, m *memory) {
			spelled(t, m.find("PodUnavailableBudget", "web"), "2026-01-02T14:50:00Z", 1, 0)
		}, []string{"the last change of 1 of 1 object of kind PodUnavailableBudget is not seen"}},
		"said an hour ago what it does not repeat, and half an hour ago what is over": {change: func(t *testing.T, m *memory) {
			m.add(t, event("old", "KindNotWatched", "Secret.v1 cannot be watched, its controllers wait", "2026-01-02T14:00:00.000000Z"))
			m.add(t, event("begun", "ControllerNotWorking", "controller cloneset does not work: its workers hang", "2026-01-02T14:40:00.000000Z"))
			m.add(t, event("over", "ControllerWorking", "controller cloneset works again", "2026-01-02T14:41:00.000000Z"))
		}},
		"says by an event that it cannot watch a kind": {func(t *testing.T, m *memory) {
			m.add(t, event("new", "KindNotWatched", "Secret.v1 cannot be watched, its controllers wait: forbidden", "2026-01-02T14:50:00.000000Z"))
		}, []string{"problem  controllers       Secret.v1 cannot be watched, its controllers wait: forbidden (told 10 minutes ago)"}},
		"says itself that it is not well": {func(t *testing.T, m *memory) { ready(t, m, "False", "2026-01-02T14:00:00Z") },
			[]string{"problem  leader            Pod kruise-system/manager-a: it leads, and is not ready for 60 minutes"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := healthy(t)
			tt.change(t, m)
			out, code := examine(t, m, "")
			if problems := len(tt.want) > 0; (code != 0) != problems {
				t.Errorf("code: got %d, want problems: %t", code, problems)
			}
			if code == 0 && strings.Contains(out, "kubectl-afloat wrote") {
				t.Errorf("output: got %s, want nothing that the plugin wrote", out)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is missing", want)
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

// OPS-186: a condition that another manager has left is no problem of a workload that is all that it is to
// be, of each kind; of one that is not, it is.
func TestOldFailuresOfFinishedWorkloadsAreNoProblem(t *testing.T) {
	const condition = `conditions: [{type: %, status: "True", lastTransitionTime: "2025-12-01T00:00:00Z", message: no room}]`
	for name, tt := range map[string]struct {
		kind, spec, status, condition string
		problem                       bool
	}{
		"CloneSet": {"CloneSet", "replicas: 2", "replicas: 2, availableReplicas: 2, updatedReplicas: 2", "FailedUpdate", false},
		"CloneSet with a partition": {"CloneSet", "replicas: 2, updateStrategy: {rollingUpdate: {partition: 50%}}",
			"replicas: 2, availableReplicas: 2, updatedReplicas: 1, expectedUpdatedReplicas: 1", "FailedScale", false},
		"CloneSet to be updated":   {"CloneSet", "replicas: 2", "replicas: 2, availableReplicas: 2, updatedReplicas: 1", "FailedUpdate", true},
		"CloneSet to be scaled":    {"CloneSet", "replicas: 3", "replicas: 2, availableReplicas: 2, updatedReplicas: 2", "FailedScale", true},
		"CloneSet not available":   {"CloneSet", "replicas: 2", "replicas: 2, availableReplicas: 1, updatedReplicas: 2", "FailedUpdate", true},
		"StatefulSet":              {"StatefulSet", "replicas: 1", "replicas: 1, availableReplicas: 1, updatedReplicas: 1", "FailedUpdatePod", false},
		"StatefulSet to be scaled": {"StatefulSet", "replicas: 2", "replicas: 1, availableReplicas: 1, updatedReplicas: 1", "FailedCreatePod", true},
		"DaemonSet": {"DaemonSet", "", "desiredNumberScheduled: 3, currentNumberScheduled: 3, numberAvailable: 3, updatedNumberScheduled: 3",
			"FailedCreatePod", false},
		"DaemonSet without one": {"DaemonSet", "", "desiredNumberScheduled: 3, currentNumberScheduled: 2, numberAvailable: 2, updatedNumberScheduled: 2",
			"FailedCreatePod", true},
	} {
		t.Run(name, func(t *testing.T) {
			m := healthy(t)
			m.add(t, "{apiVersion: apps.kruise.io/v1beta1, kind: "+tt.kind+", metadata: {name: old, namespace: shop}, spec: {"+tt.spec+"}, status: {"+tt.status+
				", "+strings.Replace(condition, "%", tt.condition, 1)+"}}")
			out, code := examine(t, m, "")
			want := "warning  workloads"
			if tt.problem {
				want = "problem  workloads"
			}
			if (code != 0) != tt.problem {
				t.Errorf("code: got %d, want a problem: %t", code, tt.problem)
			}
			for _, want := range []string{want, tt.condition + " no room (for 32 days)"} {
				if !strings.Contains(out, want) {
					t.Errorf("output: got %s, want %q in it", out, want)
				}
			}
			if tt.problem && !strings.Contains(out, "kubectl afloat why -n shop "+strings.ToLower(tt.kind)+".apps.kruise.io/old says") {
				t.Errorf("the command is wrong: %s", out)
			}
		})
	}
}

// OPS-186: nodes that the node daemon is not meant for, by its selector, its affinity or their taints, are
// well without one.
func TestNodesThatTheDaemonLeavesOutAreWell(t *testing.T) {
	for name, tt := range map[string]struct {
		selector    map[string]any
		labels, add string
		problem     bool
	}{
		"not selected": {map[string]any{"pool": "apps", "kubernetes.io/os": "linux"}, "pool: databases", "", false},
		"selected":     {map[string]any{"pool": "apps", "kubernetes.io/os": "linux"}, "pool: apps", "", true},
		"tainted":      {nil, "pool: apps", "spec: {taints: [{key: mine, effect: NoExecute}]}, ", false},
		"cordoned":     {nil, "pool: apps", "spec: {unschedulable: true}, ", true},
	} {
		t.Run(name, func(t *testing.T) {
			m := healthy(t)
			daemon := m.find("DaemonSet", installation.Daemon)
			template := []string{"spec", "template", "spec"}
			unstructured.RemoveNestedField(daemon.Object, append(template, "tolerations")...)
			if tt.selector != nil {
				set(t, daemon, tt.selector, append(template, "nodeSelector")...)
			}
			m.find("Node", "node-a").SetLabels(map[string]string{"pool": "apps", "kubernetes.io/os": "linux"})
			m.add(t, `{apiVersion: v1, kind: Node, metadata: {name: node-b, labels: {kubernetes.io/os: linux, `+tt.labels+`}}, `+tt.add+
				`status: {conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`)
			out, code := examine(t, m, "")
			if told := strings.Contains(out, "Node node-b: it has no node daemon"); told != tt.problem {
				t.Errorf("node-b without a daemon is told: got %t, want %t: %s", told, tt.problem, out)
			}
			if (code != 0) != tt.problem {
				t.Errorf("code: got %d, want a problem: %t", code, tt.problem)
			}
			const ready = "ready on 1 of 1 node, image afloat/daemon:1; 1 other not selected or not tolerated"
			if !tt.problem && !strings.Contains(out, ready) {
				t.Errorf("output: got %s, want %q in it", out, ready)
			}
		})
	}
}
