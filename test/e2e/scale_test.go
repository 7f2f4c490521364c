//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
)

// served tells whether the API server has the resource in its core group.
func served(t *testing.T, resource string) bool {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := d.ServerResourcesForGroupVersion("v1")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource })
}

// event waits until an event of the CloneSet has one of the reasons.
func (w *workload) event(reasons ...string) bool {
	w.t.Helper()
	found := false
	eventually(w.t, "event "+strings.Join(reasons, " or "), func(ctx context.Context) string {
		var list corev1.EventList
		if err := kube.List(ctx, &list, client.InNamespace(w.key.Namespace)); err != nil {
			return err.Error()
		}
		for i := range list.Items {
			if slices.Contains(reasons, list.Items[i].Reason) {
				found = true
				return ""
			}
		}
		return fmt.Sprint(len(list.Items), " other events")
	})
	return found
}

// state waits until the only pod is in the lifecycle state and the check returns nothing.
func (w *workload) state(state pub.LifecycleStateType, check func(*corev1.Pod) string) {
	w.t.Helper()
	eventually(w.t, "state "+string(state), func(context.Context) string {
		for _, pod := range w.pods() {
			if pod.Labels[pub.LifecycleState] != string(state) {
				return "it is " + pod.Labels[pub.LifecycleState]
			}
			return check(&pod)
		}
		return "no pod"
	})
}

// label sets a label on all pods, or removes it.
func (w *workload) label(key string, value *string) {
	w.t.Helper()
	w.patchPods(map[string]any{"labels": map[string]*string{key: value}})
}

func (w *workload) patchPods(metadata map[string]any) {
	w.t.Helper()
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		w.t.Fatal(err)
	}
	for name := range w.pods() {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.key.Namespace, Name: name}}
		if err := kube.Patch(w.t.Context(), pod, client.RawPatch(types.MergePatchType, body)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestHookByFinalizer: scale-in waits until the operator removes its finalizer (IPU-151 (part),
// IPU-154 (part), CS-136 (part), CS-190 (part), CS-191 (part)).
func TestHookByFinalizer(t *testing.T) {
	t.Parallel()
	const drain = "example.com/drain"
	w := create(t, "drain", `
replicas: 1
lifecycle: {preDelete: {finalizersHandler: [`+drain+`], markPodNotReady: true}}
template: {metadata: {finalizers: [`+drain+`]}}
`)
	t.Cleanup(func() { // a failing test must not leave pods that cannot be deleted
		var list corev1.PodList
		if err := kube.List(context.Background(), &list, client.InNamespace(w.key.Namespace)); err != nil {
			t.Error(err)
		}
		for i := range list.Items {
			err := kube.Patch(context.Background(), &list.Items[i],
				client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
			if client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	})
	w.change(`spec: {replicas: 0}`)
	w.state(pub.LifecycleStatePreparingDelete, func(*corev1.Pod) string { return "" })
	w.patchPods(map[string]any{"finalizers": []string{}})
	w.settled()
}

// TestSurge: if no pod may be unavailable, an additional pod is made first (CS-100 (part), CS-128 (part)),
// also for an update in place, which keeps the original pods (CS-102 (part), CS-103 (part)).
func TestSurge(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"ReCreate", "InPlaceIfPossible"} {
		t.Run(policy, func(t *testing.T) {
			w := create(t, "surge", `
replicas: 2
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: `+policy+`, maxUnavailable: 0, maxSurge: 1}}
`)
			events := watchPods(t, w.key.Namespace)
			w.image("nginx:1.27")
			w.settled()
			notBelow(t, events, 2, 2)
			if policy == "InPlaceIfPossible" {
				w.inPlace("nginx:1.27", 1)
			}
		})
	}
}

// TestClaimReuse: the pod that replaces one that was deleted by hand has its name and its PVC (CS-060 (part),
// CS-061 (part), CS-272 (part)).
func TestClaimReuse(t *testing.T) {
	t.Parallel()
	w := create(t, "reuse", `
replicas: 2
scaleStrategy: {enablePVCReuse: true}
template:
  spec:
    containers:
    - {name: nginx, image: "nginx:1.26", imagePullPolicy: IfNotPresent, volumeMounts: [{name: data, mountPath: /data}]}
volumeClaimTemplates:
- metadata: {name: data}
  spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}
`)
	before := claimUIDs(t, w.key.Namespace)
	for i, name := range slices.Sorted(maps.Keys(w.seen)) {
		pod := w.seen[name]
		options := []client.DeleteOption{}
		if i > 0 {
			options = append(options, client.GracePeriodSeconds(0)) // by force
		}
		if err := kube.Delete(t.Context(), &pod, options...); err != nil {
			t.Fatal(err)
		}
	}
	w.settled()
	if after := claimUIDs(t, w.key.Namespace); !maps.Equal(before, after) {
		t.Errorf("claims %v became %v", before, after)
	}
	for name, pod := range w.pods() {
		if old, ok := w.seen[name]; !ok || old.UID == pod.UID {
			t.Errorf("pod %s is no successor", name)
		}
	}
	w.change(`spec: {replicas: 1}`) // the deleted pod's PVC is deleted with it
	w.settled()
	eventually(t, "the end of the claim", func(context.Context) string {
		if after := claimUIDs(t, w.key.Namespace); len(after) != 1 {
			return fmt.Sprint(after)
		}
		return ""
	})
}

// TestReadyPodsAreReplacedOneByOne: six pods that are ready, but not for minReadySeconds yet, are all to be
// deleted; with maxUnavailable 1 one is deleted at a time (CS-132 (part)).
func TestReadyPodsAreReplacedOneByOne(t *testing.T) {
	t.Parallel()
	w := create(t, "fresh", `
replicas: 6
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
`)
	w.change(`spec: {minReadySeconds: 3600}`)
	eventually(t, "the status", func(context.Context) string {
		if s := w.get().Status; s.AvailableReplicas != 0 || s.ReadyReplicas != 6 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	events := watchPods(t, w.key.Namespace)
	w.change(`spec: {scaleStrategy: {podsToDelete: [` + strings.Join(slices.Sorted(maps.Keys(w.seen)), ", ") + `]}}`)
	eventually(t, "six other pods", func(context.Context) string {
		for name := range w.pods() {
			if _, old := w.seen[name]; old {
				return name + " is still there"
			}
		}
		if s := w.get().Status; s.ReadyReplicas != 6 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	notBelow(t, events, 6, 5)
}

// TestAutoscaler: a HorizontalPodAutoscaler scales in the middle of a partitioned rollout through the scale
// subresource (CS-017 (part), CS-128 (part)).
func TestAutoscaler(t *testing.T) {
	t.Parallel()
	w := create(t, "hpa", `
replicas: 2
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, partition: 50%, maxUnavailable: 1}}
`)
	w.image("nginx:1.27")
	minimum := int32(4)
	scaler := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: w.key.Namespace, Name: "hpa"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: &minimum, MaxReplicas: 6,
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "hpa"},
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu",
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(50))}}}}}}
	if err := kube.Create(t.Context(), scaler); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the autoscaler", func(context.Context) string {
		if n := *w.get().Spec.Replicas; n != 4 {
			return fmt.Sprint(n, " replicas")
		}
		return ""
	})
	w.settled()
	if s := w.get().Status; s.UpdatedReplicas != 2 || s.ExpectedUpdatedReplicas != 2 || s.LabelSelector != "app=hpa" {
		t.Errorf("status %+v: half of the pods are to be updated", s)
	}
}

// TestDisruptionBudget: a PodDisruptionBudget counts the pods by the scale subresource and refuses an
// eviction (CS-017 (part)).
func TestDisruptionBudget(t *testing.T) {
	t.Parallel()
	w := create(t, "pdb", `replicas: 2`)
	none := intstr.FromInt32(0)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.key.Namespace, Name: "pdb"},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &none,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "pdb"}}}}
	if err := kube.Create(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the budget", func(ctx context.Context) string {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(budget), budget); err != nil {
			return err.Error()
		}
		if budget.Status.ExpectedPods != 2 || budget.Status.CurrentHealthy != 2 {
			return fmt.Sprintf("%+v", budget.Status)
		}
		return ""
	})
	for _, pod := range w.pods() {
		err := kube.SubResource("eviction").Create(t.Context(), &pod,
			&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})
		if !apierrors.IsTooManyRequests(err) {
			t.Errorf("an eviction answers %v", err)
		}
	}
}
