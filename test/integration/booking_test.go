//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/admission/pod"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	workloadspreadcontroller "github.com/afloat-project/afloat/internal/kinds/workloadspread/controller"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// bookingReplica is the part of a manager that puts pods into subsets, with its own caches and lock.
type bookingReplica struct {
	watch    *workloadspreadcontroller.Watch
	create   *pod.Chain
	removals *pod.Disruptions
}

func newBookingReplica(ctx context.Context, t *testing.T) *bookingReplica {
	t.Helper()
	mgr, err := ctrl.NewManager(apiServer, ctrl.Options{Scheme: kube.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Logger: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	versioned := workloadspread.ParseVersioned("deployment,replicaset")
	watch := workloadspreadcontroller.NewWatch(ctx, mgr,
		workloadspreadcontroller.NewKinds(mgr, func() workloadspread.AllowList { return workloadspread.AllowList{} }, func() bool { return true },
			versioned))
	if err := watch.Follow(ctx, mgr); err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("running the manager: %v", err)
		}
	}()
	spreads := pod.NewSpreads(pod.SpreadOptions{Matcher: watch, Booker: watch.Booker, Known: watch.Index.Get, Versioned: versioned,
		Recorder: reconcile.NewRecorder(events.NewFakeRecorder(1000)),
		Log:      logr.Discard(), Now: time.Now})
	return &bookingReplica{watch, pod.NewChain(spreads.Step()), pod.NewDisruptions(spreads.Check())}
}

// admit creates a pod as this replica's webhook changes it.
func (r *bookingReplica) admit(ctx context.Context, p *corev1.Pod) error {
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	operations, _, err := r.create.Mutate(ctx, pod.Request{Raw: raw, Namespace: p.Namespace})
	if err != nil {
		return err
	}
	text, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return err
	}
	if raw, err = patch.Apply(raw); err != nil {
		return err
	}
	admitted := &corev1.Pod{}
	if err := json.Unmarshal(raw, admitted); err != nil {
		return err
	}
	return kube.Create(ctx, admitted)
}

// counters returns the values of a counter by its label.
func counters(collectors []prometheus.Collector, label string) map[string]float64 {
	found := map[string]float64{}
	for _, c := range collectors {
		ch := make(chan prometheus.Metric, 100)
		c.Collect(ch)
		close(ch)
		for m := range ch {
			var out dto.Metric
			if m.Write(&out) != nil {
				continue
			}
			for _, l := range out.Label {
				if l.GetName() == label {
					found[l.GetValue()] += out.Counter.GetValue()
				}
			}
		}
	}
	return found
}

// subsetsOf counts the pods of a namespace that are not being deleted, by their subset.
func subsetsOf(t *testing.T, namespace string) map[string]int {
	t.Helper()
	var list corev1.PodList
	if err := kube.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp != nil {
			continue
		}
		placement, _ := pub.ParsePlacement(list.Items[i].Annotations)
		found[placement.Subset]++
	}
	return found
}

func spreadIn(t *testing.T, namespace, target, subsets string) *appsv1beta1.WorkloadSpread {
	t.Helper()
	spread := &appsv1beta1.WorkloadSpread{}
	if err := yaml.UnmarshalStrict([]byte(fmt.Sprintf(`{metadata: {name: ws, namespace: %s}, spec: {targetRef: %s, subsets: [%s]}}`,
		namespace, target, subsets)), spread); err != nil {
		t.Fatal(err)
	}
	if err := kube.Create(t.Context(), spread); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kube.Delete(context.Background(), spread) })
	return spread
}

// WS-053, WS-076, WS-103, WS-112, WS-114: two managers handle the creation of 200 pods at once, then the
// removal of some, then others in their place. Each pod gets a subset, and no subset gets more than it may
// have.
func TestTwoManagersBookAtOnce(t *testing.T) {
	// The webhooks exclude the namespace, so that only this test handles the pods.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	replicas := []*bookingReplica{newBookingReplica(ctx, t), newBookingReplica(ctx, t)}
	for name, test := range map[string]struct {
		target string
		owner  func(namespace string) metav1.OwnerReference
		// counted: the target exists, so that the controller counts its pods.
		counted bool
	}{
		"booked-cloneset": {`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: web}`, func(string) metav1.OwnerReference {
			return metav1.OwnerReference{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web", UID: "u1",
				Controller: new(true)}
		}, false},
		"booked-deployment": {`{apiVersion: apps/v1, kind: Deployment, name: web}`,
			func(namespace string) metav1.OwnerReference { return replicaSetIn(t, namespace) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := kube.Create(t.Context(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name,
					Labels: map[string]string{"control-plane": "openkruise"}}}); err != nil {
				t.Fatal(err)
			}
			owner := test.owner(name)
			spread := spreadIn(t, name, test.target, `{name: a, maxReplicas: 70}, {name: b, maxReplicas: 60}, {name: c, maxReplicas: 70}`)
			for _, r := range replicas {
				if err := wait(func() error {
					if r.watch.Index.Get(client.ObjectKeyFromObject(spread)) == nil {
						return errors.New("the WorkloadSpread is not seen")
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			one := &corev1.Pod{}
			if err := yaml.Unmarshal([]byte(fmt.Sprintf(`{metadata: {generateName: web-, namespace: %s, labels: {app: web, pod-template-hash: h1}}, spec: {containers: [{name: app, image: i}]}}`, name)), one); err != nil {
				t.Fatal(err)
			}
			one.OwnerReferences = []metav1.OwnerReference{owner}
			figures := func() string {
				var all []prometheus.Collector
				for _, r := range replicas {
					all = append(all, r.watch.Booker.Metrics()...)
				}
				return fmt.Sprintf("writes %v, bookings %v", counters(all, "result"), counters(all, "kind"))
			}
			create := func(n int) {
				t.Helper()
				begin, before := time.Now(), figures()
				var all sync.WaitGroup
				for i := range n {
					all.Go(func() {
						if err := replicas[i%2].admit(t.Context(), one.DeepCopy()); err != nil {
							t.Errorf("admission of a pod: %v", err)
						}
					})
				}
				all.Wait()
				t.Logf("%d pods in %s; before %s, after %s", n, time.Since(begin).Round(time.Millisecond), before, figures())
			}
			create(200)
			want := map[string]int{"a": 70, "b": 60, "c": 70}
			if diff := cmp.Diff(want, subsetsOf(t, name)); diff != "" {
				t.Fatalf("pods by subset (-want +got):\n%s", diff)
			}
			var list corev1.PodList
			if err := kube.List(t.Context(), &list, client.InNamespace(name)); err != nil {
				t.Fatal(err)
			}
			if !test.counted {
				return
			}
			var all sync.WaitGroup
			for i := range 50 {
				all.Go(func() {
					p := &list.Items[i]
					if err := replicas[i%2].removals.Admit(t.Context(), &pod.Disruption{By: policyv1beta1.Delete, Pod: p}); err != nil {
						t.Errorf("admission of a deletion: %v", err)
					}
					if err := kube.Delete(t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
						t.Errorf("deleting a pod: %v", err)
					}
				})
			}
			all.Wait()
			create(50)
			if diff := cmp.Diff(want, subsetsOf(t, name)); diff != "" {
				t.Errorf("pods by subset after 50 were replaced (-want +got):\n%s", diff)
			}
			create(1) // one too many is accepted too, without a subset (WS-077)
			want[""] = 1
			if diff := cmp.Diff(want, subsetsOf(t, name)); diff != "" {
				t.Errorf("pods by subset with one too many (-want +got):\n%s", diff)
			}
		})
	}
}

// replicaSetIn makes a Deployment with a ReplicaSet, for which no controller runs.
func replicaSetIn(t *testing.T, namespace string) metav1.OwnerReference {
	t.Helper()
	const spec = `spec: {replicas: 200, selector: {matchLabels: {app: web%[2]s}}, template: {metadata: {labels: {app: web%[2]s}}, spec: {containers: [{name: app, image: i}]}}}`
	deployment, replicaSet := &appsv1.Deployment{}, &appsv1.ReplicaSet{}
	if err := yaml.Unmarshal([]byte(fmt.Sprintf(`{metadata: {name: web, namespace: %[1]s}, `+spec+`}`, namespace, "")),
		deployment); err != nil {
		t.Fatal(err)
	}
	if err := kube.Create(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(fmt.Sprintf(`{metadata: {name: web-h1, namespace: %[1]s, labels: {app: web, pod-template-hash: h1}}, `+
		spec+`}`, namespace, ", pod-template-hash: h1")), replicaSet); err != nil {
		t.Fatal(err)
	}
	replicaSet.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(deployment,
		appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	if err := kube.Create(t.Context(), replicaSet); err != nil {
		t.Fatal(err)
	}
	return *metav1.NewControllerRef(replicaSet, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
}

// jobIn makes a Job, for which no controller runs.
func jobIn(t *testing.T, namespace string) metav1.OwnerReference {
	t.Helper()
	job := &batchv1.Job{}
	if err := yaml.Unmarshal([]byte(fmt.Sprintf(`{metadata: {name: train, namespace: %s}, spec: {parallelism: 5, template: {spec: {restartPolicy: Never, containers: [{name: app, image: i}]}}}}`, namespace)), job); err != nil {
		t.Fatal(err)
	}
	if err := kube.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	return *metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))
}

// asksAbout waits until the API server sends the pods of a namespace, and their evictions, to the webhook.
func asksAbout(t *testing.T, namespace string) {
	t.Helper()
	if err := wait(func() error {
		var mutating registrationv1.MutatingWebhookConfiguration
		var validating registrationv1.ValidatingWebhookConfiguration
		if err := errors.Join(kube.Get(t.Context(), client.ObjectKey{Name: "kruise-mutating-webhook-configuration"}, &mutating),
			kube.Get(t.Context(), client.ObjectKey{Name: "kruise-validating-webhook-configuration"}, &validating)); err != nil {
			return err
		}
		asked := 0
		for _, hook := range mutating.Webhooks {
			if hook.Name == "mpod-all.kb.io" && len(hook.MatchConditions) > 0 && strings.Contains(hook.MatchConditions[0].Expression,
				"'"+namespace+"'") && *hook.FailurePolicy == registrationv1.Fail {
				asked++
			}
		}
		for _, hook := range validating.Webhooks {
			if hook.Name == "vpodeviction.kb.io" && len(hook.MatchConditions) == 2 && strings.Contains(hook.MatchConditions[0].Expression,
				"'"+namespace+"'") && *hook.FailurePolicy == registrationv1.Ignore {
				asked++
			}
		}
		if asked != 2 {
			return fmt.Errorf("%d entries ask", asked)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// booked returns the keys of the bookings in the status of ws for a subset of a version.
func booked(t *testing.T, namespace, version, subset string) (creating, deleting []string) {
	t.Helper()
	spread := &appsv1beta1.WorkloadSpread{}
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "ws"}, spread); err != nil {
		t.Fatal(err)
	}
	for _, s := range spread.Status.VersionedSubsetStatuses[version] {
		if s.Name == subset {
			for key := range s.CreatingPods {
				creating = append(creating, key)
			}
			for key := range s.DeletingPods {
				deleting = append(deleting, key)
			}
		}
	}
	return creating, deleting
}

// WS-050, WS-090 to WS-096, WS-100, WS-101: through the API server a pod of a Job gets its subset once,
// although two entries may send it, a dry run gets none, and deletions and evictions are booked.
func TestPodsAreSpread(t *testing.T) {
	const namespace = "spread"
	if err := kube.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	owner := jobIn(t, namespace)
	spreadIn(t, namespace, `{apiVersion: batch/v1, kind: Job, name: train}`,
		`{name: a, maxReplicas: 2, requiredNodeSelector: {matchExpressions: [{key: zone, operator: In, values: [a]}]},
		tolerations: [{key: burst, operator: Exists}], patch: {metadata: {labels: {pool: a}}, spec: {priorityClassName: system-node-critical}}}, {name: b}`)
	asksAbout(t, namespace)
	made := func(name string) *corev1.Pod {
		p := &corev1.Pod{}
		if err := yaml.Unmarshal(
			[]byte(fmt.Sprintf(`{metadata: {name: %s, namespace: %s, annotations: {apps.kruise.io/container-launch-priority: Ordered}},
			spec: {containers: [{name: app, image: i}, {name: side, image: i}]}}`, name, namespace)), p); err != nil {
			t.Fatal(err)
		}
		p.OwnerReferences = []metav1.OwnerReference{owner}
		return p
	}
	if tried := made("tried"); kube.Create(t.Context(), tried, client.DryRunAll) != nil ||
		tried.Annotations[pub.MatchedWorkloadSpread] != "" {
		t.Errorf("a dry run: got annotations %v, want no subset and no error", tried.Annotations)
	}
	// The first creation after the condition was written may come before the API server knows it.
	first := made("first")
	if err := wait(func() error {
		if err := kube.Create(t.Context(), first); err != nil {
			return err
		}
		if first.Annotations[pub.MatchedWorkloadSpread] != "" {
			return nil
		}
		remove(t, first)
		first = made("first")
		return errors.New("no subset")
	}); err != nil {
		t.Fatal(err)
	}
	if got := first.Annotations[pub.MatchedWorkloadSpread]; got != `{"name":"ws","subset":"a"}` {
		t.Errorf("placement of the first pod: got %s, want subset a", got)
	}
	terms := first.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	// WS-095, WS-194
	if len(terms) != 1 || terms[0].MatchExpressions[0].Key != "zone" || first.Labels["pool"] != "a" || *first.Spec.Priority != 2000001000 {
		t.Errorf("zone, pool, priority: got %v, %v, %d", terms, first.Labels, *first.Spec.Priority)
	}
	tolerations := 0
	for _, toleration := range first.Spec.Tolerations {
		if toleration.Key == "burst" {
			tolerations++
		}
	}
	if barriers := first.Spec.Containers[0].Env; tolerations != 1 || len(barriers) != 1 { // launch priority: both entries send the pod
		t.Errorf("tolerations %v, barriers %v; want one of each", first.Spec.Tolerations, barriers)
	}
	generated := made("")
	generated.Name, generated.GenerateName = "", "gen-"
	if err := kube.Create(t.Context(), generated); err != nil {
		t.Fatal(err)
	}
	placement, ok := pub.ParsePlacement(generated.Annotations)
	if !ok || placement.Subset != "a" || placement.UID == "" {
		t.Errorf("placement of a generated pod: got annotations %v, want subset a and a UID", generated.Annotations)
	}
	third := made("third")
	if err := kube.Create(t.Context(), third); err != nil || third.Annotations[pub.MatchedWorkloadSpread] != `{"name":"ws","subset":"b"}` {
		t.Errorf("placement of the third pod: got %v, want subset b; %v", third.Annotations, err)
	}
	if err := kube.Delete(t.Context(), generated, client.DryRunAll); err != nil {
		t.Errorf("a dry run of a deletion: %v", err)
	}
	if _, deleting := booked(t, namespace, "versionIgnored", "a"); len(deleting) != 0 {
		t.Errorf("a dry run is booked: %v", deleting)
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: generated.Name, Namespace: namespace}}
	if err := kube.SubResource("eviction").Create(t.Context(), generated, eviction); err != nil {
		t.Fatal(err)
	}
	fourth := made("fourth") // the place is free again at once
	if err := kube.Create(t.Context(), fourth); err != nil ||
		fourth.Annotations[pub.MatchedWorkloadSpread] != `{"name":"ws","subset":"a"}` {
		creating, deleting := booked(t, namespace, "versionIgnored", "a")
		t.Errorf("%v, %v; %v are coming, %v are going", fourth.Annotations, err, creating, deleting)
	}
}

// WS-072, WS-150: bookings that the reference has written count, in either version of the API.
func TestSpreadTakeover(t *testing.T) {
	const namespace = "spread-takeover"
	if err := kube.Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace,
			Labels: map[string]string{"control-plane": "openkruise"}}}); err != nil {
		t.Fatal(err)
	}
	owner := jobIn(t, namespace)
	legacy := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(fmt.Sprintf(`{apiVersion: apps.kruise.io/v1alpha1, kind: WorkloadSpread, metadata: {name: ws, namespace: %s}, spec: {targetRef: {apiVersion: batch/v1, kind: Job, name: train},
		subsets: [{name: a, maxReplicas: 3}, {name: b, maxReplicas: 1}, {name: c}]}}`, namespace)), &legacy.Object); err != nil {
		t.Fatal(err)
	}
	if err := kube.Create(t.Context(), legacy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kube.Delete(context.Background(), legacy) })
	now := metav1.Now().UTC().Format(time.RFC3339)
	status := fmt.Sprintf(
		`{observedGeneration: 1, subsetStatuses: [{name: a, replicas: 0, missingReplicas: 3}], versionedSubsetStatuses: {versionIgnored: [
		{name: a, replicas: 0, missingReplicas: 2, creatingPods: {coming: %q}}, {name: b, replicas: 1, missingReplicas: 1, deletingPods: {going: %q}}, {name: c, replicas: 4, missingReplicas: -1}]}}`, now, now)
	if err := wait(func() error { // the controller may write, too
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(legacy), legacy); err != nil {
			return err
		}
		var value map[string]any
		if err := yaml.Unmarshal([]byte(status), &value); err != nil {
			return err
		}
		legacy.Object["status"] = value
		return kube.Status().Update(t.Context(), legacy)
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := newBookingReplica(ctx, t)
	got := map[string]string{}
	for _, name := range []string{"coming", "new-1", "new-2", "new-3", "new-4"} {
		p := &corev1.Pod{}
		if err := yaml.Unmarshal([]byte(fmt.Sprintf(`{metadata: {name: %s, namespace: %s}, spec: {containers: [{name: app, image: i}]}}`,
			name, namespace)), p); err != nil {
			t.Fatal(err)
		}
		p.OwnerReferences = []metav1.OwnerReference{owner}
		if err := r.admit(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			t.Fatal(err)
		}
		placement, _ := pub.ParsePlacement(p.Annotations)
		got[name] = placement.Subset
	}
	if diff := cmp.Diff(map[string]string{"coming": "a", "new-1": "a", "new-2": "a", "new-3": "b", "new-4": "c"}, got); diff != "" {
		t.Errorf("subsets of the pods (-want +got):\n%s", diff)
	}
}

// WS-012, WS-053, WS-070, WS-114: the pods of a CloneSet that its controller makes at once get their subsets,
// by percentages of a number of replicas that caches may not have yet.
func TestCloneSetIsSpread(t *testing.T) {
	const namespace = "spread-cloneset"
	if err := kube.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	spreadIn(t, namespace, `{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: web}`,
		`{name: a, maxReplicas: 50%}, {name: b, maxReplicas: 30%}, {name: c}`)
	asksAbout(t, namespace)
	set := cloneSet("v1beta1", "web", "{metadata: {namespace: "+namespace+"}, spec: {replicas: 0}}")
	if err := kube.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web", UID: "none",
			Controller: new(true)}}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "i"}}}}
	for i := range 100 { // until the API server has the condition; percentages of zero replicas leave no place in a and b
		probe.Name = fmt.Sprintf("probe-%d", i)
		p := probe.DeepCopy()
		if err := kube.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		remove(t, p)
		if placement, ok := pub.ParsePlacement(p.Annotations); ok {
			if placement.Subset != "c" {
				t.Errorf("placement: got %+v, want subset c", placement)
			}
			break
		}
	}
	if err := kube.Patch(t.Context(), set,
		client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":60}}`))); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		if diff := cmp.Diff(map[string]int{"a": 30, "b": 18, "c": 12}, subsetsOf(t, namespace)); diff != "" {
			return errors.New(diff)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
