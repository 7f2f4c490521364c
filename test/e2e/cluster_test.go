//go:build e2e

// Package e2e tests the installed product on a cluster with real kubelets and containers. KUBECONFIG names
// the cluster, AUDIT_LOG the file to which its API server writes every write.
package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/test/story"
)

// patience is how long a test waits for something that should happen within seconds.
const patience = 3 * time.Minute

var kube client.Client

func TestMain(m *testing.M) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err == nil {
		config.UserAgent = "afloat-e2e"
		config.QPS = -1 // tests wait for each other's requests otherwise
		kube, err = story.NewClient(config)
	}
	replicas := newEveryReplica(kube)
	kube = replicas
	if err != nil {
		fmt.Fprintln(os.Stderr, "KUBECONFIG:", err)
		os.Exit(1)
	}
	code := m.Run()
	for _, fault := range replicas.faults {
		fmt.Fprintln(os.Stderr, "each replica of the manager must answer:", fault)
		code = 1
	}
	os.Exit(code)
}

// eventually waits until the check returns nothing; what it returns says what is missing.
func eventually(t *testing.T, what string, check func(ctx context.Context) string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	missing := "nothing was seen"
	for {
		now := check(ctx)
		if now == "" {
			return
		}
		if ctx.Err() == nil { // otherwise it says only that the time is over
			missing = now
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %s", what, patience, missing)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// namespace makes a namespace that is deleted after the test.
func namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	if err := kube.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kube.Delete(context.Background(), ns); err != nil {
			t.Error(err)
		}
	})
	return ns.Name
}

// workload is a CloneSet under test, or the part of another kind that is the same.
type workload struct {
	t      *testing.T
	object client.Object
	key    client.ObjectKey
	seen   map[string]corev1.Pod
}

// create makes a CloneSet of nginx pods from a v1beta1 spec, with the usual selector and template where it
// has none.
func create(t *testing.T, name, spec string) *workload {
	t.Helper()
	set := &appsv1beta1.CloneSet{}
	document(t, set, name, namespace(t), spec)
	if err := kube.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	w := &workload{t: t, object: set, key: client.ObjectKeyFromObject(set)}
	w.settled()
	w.seen = w.pods()
	return w
}

// document reads a spec into the object, with the usual selector and template of nginx where it has none.
func document(t *testing.T, object client.Object, name, namespace, spec string) {
	t.Helper()
	merged := merge(t, `
metadata: {name: `+name+`, namespace: `+namespace+`}
spec:
  selector: {matchLabels: {app: `+name+`}}
  template:
    metadata: {labels: {app: `+name+`}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - {name: nginx, image: "nginx:1.26", imagePullPolicy: IfNotPresent}
`, "spec:\n"+indent(spec))
	if err := yaml.Unmarshal(merged, object); err != nil {
		t.Fatal(err)
	}
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")
}

// merge merges two YAML documents; maps are merged, everything else is replaced.
func merge(t *testing.T, base, over string) []byte {
	t.Helper()
	var a, b map[string]any
	if err := yaml.Unmarshal([]byte(base), &a); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(over), &b); err != nil {
		t.Fatalf("%v in\n%s", err, over)
	}
	var into func(a, b map[string]any) map[string]any
	into = func(a, b map[string]any) map[string]any {
		for key, value := range b {
			old, isMap := a[key].(map[string]any)
			if next, ok := value.(map[string]any); ok && isMap {
				a[key] = into(old, next)
			} else {
				a[key] = value
			}
		}
		return a
	}
	merged, err := yaml.Marshal(into(a, b))
	if err != nil {
		t.Fatal(err)
	}
	return merged
}

// patch changes the workload by a merge patch in YAML.
func (w *workload) patch(patch string) error {
	w.t.Helper()
	body, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		w.t.Fatal(err)
	}
	return kube.Patch(w.t.Context(), w.object.DeepCopyObject().(client.Object), client.RawPatch("application/merge-patch+json", body))
}

// change is a patch that must succeed.
func (w *workload) change(patch string) {
	w.t.Helper()
	if err := w.patch(patch); err != nil {
		w.t.Fatal(err)
	}
}

// image gives the container of the template a new image.
func (w *workload) image(image string) {
	w.t.Helper()
	w.change(`spec: {template: {spec: {containers: [{name: nginx, image: "` + image + `", imagePullPolicy: IfNotPresent` + w.mounts() +
		`}]}}}`)
}

func (w *workload) mounts() string {
	if set := w.get(); len(set.Spec.VolumeClaimTemplates) > 0 {
		return `, volumeMounts: [{name: data, mountPath: /data}]`
	}
	return ""
}

func (w *workload) get() *appsv1beta1.CloneSet {
	w.t.Helper()
	set := &appsv1beta1.CloneSet{}
	if err := kube.Get(w.t.Context(), w.key, set); err != nil {
		w.t.Fatal(err)
	}
	return set
}

// pods returns the pods by name, without those that are ending.
func (w *workload) pods() map[string]corev1.Pod {
	w.t.Helper()
	var list corev1.PodList
	if err := kube.List(w.t.Context(), &list, client.InNamespace(w.key.Namespace)); err != nil {
		w.t.Fatal(err)
	}
	pods := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			pods[pod.Name] = pod
		}
	}
	return pods
}

// settled waits until the status says that as many pods as expected are updated and all are available.
func (w *workload) settled() {
	w.t.Helper()
	eventually(w.t, "the rollout", func(context.Context) string {
		set := w.get()
		s, replicas := set.Status, *set.Spec.Replicas
		if s.ObservedGeneration == set.Generation && s.Replicas == replicas && s.AvailableReplicas == replicas &&
			s.UpdatedReplicas >= s.ExpectedUpdatedReplicas &&
			int32(len(w.pods())) == replicas {
			return ""
		}
		return fmt.Sprintf("%+v", s)
	})
}

// inPlace checks that the pods are those seen first, with the image and one restart each since the counts
// given.
func (w *workload) inPlace(image string, restarts int32) {
	w.t.Helper()
	pods := w.pods()
	if len(pods) != len(w.seen) {
		w.t.Errorf("%d pods, %d before", len(pods), len(w.seen))
	}
	for name, before := range w.seen {
		after, ok := pods[name]
		switch {
		case !ok:
			w.t.Errorf("pod %s is gone", name)
		case before.UID != after.UID || before.Spec.NodeName != after.Spec.NodeName || before.Status.PodIP != after.Status.PodIP:
			w.t.Errorf("pod %s: UID %s to %s, node %s to %s, IP %s to %s", name, before.UID, after.UID, before.Spec.NodeName,
				after.Spec.NodeName,
				before.Status.PodIP, after.Status.PodIP)
		case after.Spec.Containers[0].Image != image:
			w.t.Errorf("pod %s has image %s, not %s", name, after.Spec.Containers[0].Image, image)
		case after.Status.ContainerStatuses[0].RestartCount != before.Status.ContainerStatuses[0].RestartCount+restarts:
			w.t.Errorf("pod %s: restarts %d to %d, not %d more", name, before.Status.ContainerStatuses[0].RestartCount,
				after.Status.ContainerStatuses[0].RestartCount, restarts)
		}
	}
}

// podWrites returns the manager's successful writes of pods since a moment, by pod name, from the API server's
// audit log.
func podWrites(t *testing.T, since time.Time) map[string][]podWrite {
	t.Helper()
	writes := map[string][]podWrite{}
	for _, write := range managerWrites(t, since) {
		writes[write.ObjectRef.Name] = append(writes[write.ObjectRef.Name], write)
	}
	return writes
}

// writesOfManagers returns when the managers wrote pods of a namespace since a moment, in order.
func writesOfManagers(t *testing.T, namespace string, since time.Time) (times []time.Time) {
	t.Helper()
	for _, write := range managerWrites(t, since) {
		if write.ObjectRef.Namespace == namespace {
			times = append(times, write.RequestReceivedTimestamp)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// podWrite is what is read of an entry of the audit log.
type podWrite struct {
	UserAgent                string
	Verb                     string
	RequestReceivedTimestamp time.Time
	ObjectRef                struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus           struct{ Code int }
}

// String tells when which part of the pod was to be written, by which of the managers' clients, and the answer.
func (w podWrite) String() string {
	return fmt.Sprintf("%s %s pods/%s by %s: %d", w.RequestReceivedTimestamp.Format("15:04:05.000"), w.Verb, w.ObjectRef.Subresource, w.UserAgent,
		w.ResponseStatus.Code)
}

// managerWrites returns the managers' successful writes of pods since a moment, from the audit log.
func managerWrites(t *testing.T, since time.Time) []podWrite {
	t.Helper()
	return slices.DeleteFunc(managerRequests(t, since), func(w podWrite) bool { return w.ResponseStatus.Code >= 300 })
}

// tookAtMost fails if the managers wrote a pod more often since a moment than is due. Each write that met a conflict may be
// one more: a kubelet that is behind may write once more that a pod is ready that was just taken out of service. The image
// is not written on top of that, but the pod is taken out of service again.
func tookAtMost(t *testing.T, due int, pod string, since time.Time) {
	t.Helper()
	requests := slices.DeleteFunc(managerRequests(t, since), func(w podWrite) bool { return w.ObjectRef.Name != pod })
	writes, most := 0, due
	for _, request := range requests {
		switch code := request.ResponseStatus.Code; {
		case code == http.StatusConflict:
			most++
		case code < 300:
			writes++
		}
	}
	if writes > most {
		t.Errorf("pod %s took %d writes, at most %d are due: %v", pod, writes, most, requests)
	}
}

// managerRequests returns the managers' requests to write pods since a moment, whatever the answer, from the audit log.
func managerRequests(t *testing.T, since time.Time) (requests []podWrite) {
	t.Helper()
	file, err := os.Open(os.Getenv("AUDIT_LOG"))
	if err != nil {
		t.Fatalf("AUDIT_LOG: %v", err)
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var write podWrite
		if err := json.Unmarshal(scanner.Bytes(), &write); err != nil {
			t.Fatalf("audit log: %v", err)
		}
		if strings.HasPrefix(write.UserAgent, "kruise-manager") && write.ObjectRef.Resource == "pods" &&
			write.RequestReceivedTimestamp.After(since) {
			requests = append(requests, write)
		}
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return requests
}

// kubelets are the nodes that run pods, in the order of their names. Tests that run beside make others, which
// only exist.
func kubelets(t *testing.T) []corev1.Node {
	t.Helper()
	var list corev1.NodeList
	if err := kube.List(t.Context(), &list, client.MatchingLabels{corev1.LabelOSStable: "linux"}); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}
