package dashboard

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
)

func podIn(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// What a person should look at first wins. OPS-223.
func TestStateOfATile(t *testing.T) {
	const ready = "status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}"
	waits := &explain.Pod{State: explain.Waiting, Reason: "MaxUnavailable"}
	for name, test := range map[string]struct {
		pod     string
		verdict *explain.Pod
		update  string
		want    tileState
	}{
		"of the new revision":       {"metadata: {labels: {controller-revision-hash: web-2}}\n" + ready, nil, "web-2", tileNew},
		"with a short hash":         {"metadata: {labels: {controller-revision-hash: '2'}}\n" + ready, nil, "web-2", tileNew},
		"of an old revision":        {"metadata: {labels: {controller-revision-hash: web-1}}\n" + ready, nil, "web-2", tileOld},
		"without a revision":        {ready, nil, "web-2", tileOld},
		"kept by the partition":     {ready, &explain.Pod{State: explain.Done, Reason: "Partition"}, "web-2", tileOld},
		"held back":                 {ready, waits, "web-2", tileHeld},
		"held back and not ready":   {"status: {phase: Pending}", waits, "web-2", tileNotReady},
		"new and not ready":         {"metadata: {labels: {controller-revision-hash: web-2}}", nil, "web-2", tileNotReady},
		"finished":                  {"status: {phase: Succeeded}", nil, "", tileOld},
		"being deleted":             {"metadata: {deletionTimestamp: '2026-01-01T00:00:00Z'}\n" + ready, waits, "web-2", tileDeleting},
		"being updated":             {"status: {conditions: [{type: InPlaceUpdateReady, status: 'False'}]}", waits, "web-2", tileUpdating},
		"before its update":         {"metadata: {labels: {lifecycle.apps.kruise.io/state: PreparingUpdate}}\n" + ready, nil, "web-2", tileUpdating},
		"updated":                   {"status: {phase: Running, conditions: [{type: InPlaceUpdateReady, status: 'True'}, {type: Ready, status: 'True'}]}", nil, "web-2", tileOld},
		"with the latest sidecar":   {ready, &explain.Pod{State: explain.Done}, "", tileNew},
		"with an old sidecar":       {ready, &explain.Pod{State: explain.Next}, "", tileOld},
		"with a sidecar held back":  {ready, waits, "", tileHeld},
		"of a set without revision": {"metadata: {labels: {controller-revision-hash: web-1}}\n" + ready, nil, "", tileOld},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podIn(t, test.pod)
			slimPod(pod) // as the page keeps it
			if got := tileOf(pod, pub.ControllerRevisionHash, test.update, test.verdict); got.State != test.want {
				t.Errorf("got %s, want %s", got.State, test.want)
			}
		})
	}
}

// A tile shows the same of a pod that was made slim.
func TestSlimPodsKeepWhatIsShown(t *testing.T) {
	const text = `
metadata:
  name: web-1
  namespace: shop
  uid: u
  creationTimestamp: "2026-01-01T00:00:00Z"
  labels: {controller-revision-hash: web-1, lifecycle.apps.kruise.io/state: Normal, app: web}
  annotations:
    apps.kruise.io/matched-workloadspread: '{"name":"web","subset":"zone-a"}'
    large: nobody reads this
spec:
  nodeName: node-1
  containers: [{name: app, image: 'nginx:1', env: [{name: A, value: b}]}, {name: log, image: 'log:2'}]
status:
  phase: Running
  containerStatuses:
  - {name: app, ready: true, restartCount: 2, image: nginx, imageID: x}
  - {name: log, ready: false, restartCount: 3, image: log, imageID: y, state: {waiting: {reason: CrashLoopBackOff}}}
`
	until := &metav1.Time{}
	verdict := &explain.Pod{State: explain.Waiting, Reason: "R", Message: "m", Until: until}
	pod := podIn(t, text)
	want := tileOf(pod, pub.ControllerRevisionHash, "web-2", verdict)
	slimPod(pod)
	if diff := cmp.Diff(want, tileOf(pod, pub.ControllerRevisionHash, "web-2", verdict)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if pod.Annotations["large"] != "" || pod.Spec.Containers[0].Env != nil {
		t.Error("what is not shown is kept")
	}

	if want.Ready != "1/2" || want.Restarts != 5 || want.Subset != "zone-a" || want.Phase != "CrashLoopBackOff" ||
		want.Node != "node-1" || len(want.Images) != 2 || want.ID != "shop/web-1" || want.State != tileNotReady {
		t.Errorf("got %+v", want)
	}
}

// Tiles are compared each time that something has changed.
func TestEqualTiles(t *testing.T) {
	const text = "metadata: {name: web-a, creationTimestamp: '2026-11-27T10:00:00Z'}"
	a, b := tileOf(podIn(t, text), "", "", nil), tileOf(podIn(t, text), "", "", nil)
	if !a.equal(b) {
		t.Error("tiles of the same pod differ")
	}
	b.Until = &metav1.Time{Time: b.Since.Add(time.Second)}
	if a.equal(b) {
		t.Error("tiles are equal although one waits until a time")
	}
}
