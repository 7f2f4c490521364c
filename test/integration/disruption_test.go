//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// protectedPods makes a namespace with so many ready pods of nobody, and a budget for them.
func protectedPods(t *testing.T, n int, spec func(*policyv1beta1.PodUnavailableBudgetSpec)) (namespace string) {
	t.Helper()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "protected-"}}
	if err := kube.Create(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	namespace = space.Name
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "protected"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("1Ti")}}}
	if err := kube.Create(t.Context(), node); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	budget := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	total, unavailable := int32(n), intstr.FromInt32(1)
	budget.Spec.ProtectTotalReplicas, budget.Spec.MaxUnavailable = &total, &unavailable
	if spec != nil {
		spec(&budget.Spec)
	}
	for i := range n {
		if err := readyPod(t.Context(), namespace, fmt.Sprintf("web-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	wanted, none := budget.Spec.MaxUnavailable, intstr.FromInt32(0)
	budget.Spec.MaxUnavailable = &none
	if err := kube.Create(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = kube.Delete(context.Background(), budget)
		_ = kube.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace(namespace), client.GracePeriodSeconds(0))
	})
	protects(t, budget, n)
	// The API server follows its configuration with some delay.
	first := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-0"}}
	if err := wait(func() error {
		if err := kube.Delete(t.Context(), first, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("what is not allowed is not refused yet: %w", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(budget), budget); err != nil {
			return err
		}
		budget.Spec.MaxUnavailable = wanted
		return kube.Update(t.Context(), budget)
	}); err != nil {
		t.Fatal(err)
	}
	protects(t, budget, n)
	// A pod that was created in the second of a booking is charged again, since it may be another one.
	if err := wait(func() error {
		var pods corev1.PodList
		if err := kube.List(t.Context(), &pods, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range pods.Items {
			if time.Since(pods.Items[i].CreationTimestamp.Time) < 2*time.Second {
				return fmt.Errorf("pod %s is young", pods.Items[i].Name)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return namespace
}

// readyPod makes a pod that runs and is ready.
func readyPod(ctx context.Context, namespace, name string) error {
	no, resources := false, corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: "protected", AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{Name: "c", Image: "i:1", Resources: resources}}}}
	if err := kube.Create(ctx, pod); err != nil {
		return err
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Image: "i:1", Ready: true, ContainerID: "containerd://" + name, Resources: &resources,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
	return kube.Status().Update(ctx, pod)
}

// protects waits until a budget has counted so many pods in service.
func protects(t *testing.T, budget *policyv1beta1.PodUnavailableBudget, pods int) {
	t.Helper()
	if err := wait(func() error {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(budget), budget); err != nil {
			return err
		}
		if s := &budget.Status; s.ObservedGeneration != budget.Generation || s.CurrentAvailable != int32(pods) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func evict(ctx context.Context, namespace, name string, options ...client.SubResourceCreateOption) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return kube.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
		options...)
}

// PUB-087 (part), PUB-089 (part), PUB-090 (part), PUB-092 (part): 200 evictions at once of pods of which five
// may go take five, and the others are told to come later, as by the API server's own budgets.
func TestManyEvictionsAtOnce(t *testing.T) {
	const pods, may = 200, 5
	namespace := protectedPods(t, pods, func(s *policyv1beta1.PodUnavailableBudgetSpec) {
		five := intstr.FromInt32(may)
		s.MaxUnavailable = &five
	})
	var evicted atomic.Int32
	var all sync.WaitGroup
	for i := range pods {
		all.Go(func() {
			var err error
			if late := wait(func() error { // whose turn did not come in time comes again, as a drain does
				err = evict(t.Context(), namespace, fmt.Sprintf("web-%d", i))
				if seconds, later := apierrors.SuggestsClientDelay(err); later && seconds > 0 {
					return err
				}
				return nil
			}); late != nil {
				t.Errorf("web-%d: %v", i, late)
			}
			switch {
			case err == nil:
				evicted.Add(1)
			case !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
				t.Errorf("web-%d: %v", i, err)
			}
		})
	}
	all.Wait()
	if n := evicted.Load(); n != may {
		t.Errorf("%d pods were evicted", n)
	}
	var left corev1.PodList
	if err := kube.List(t.Context(), &left, client.InNamespace(namespace),
		client.MatchingLabels{"app": "web"}); err != nil {
		t.Errorf("listing the pods: %v", err)
	}
	if n := len(left.Items); n != pods-may {
		t.Errorf("pods that are left: got %d, want %d", n, pods-may)
	}
}

// What is done to protected pods: one may go, and then none of the others, by whatever way.
func TestDisruptionsOfProtectedPods(t *testing.T) {
	namespace := protectedPods(t, 4, func(s *policyv1beta1.PodUnavailableBudgetSpec) {
		s.IgnoredPodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"maintenance": "true"}}
	})
	at := func(i int) *corev1.Pod {
		pod := &corev1.Pod{}
		if err := kube.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("web-%d", i)}, pod); err != nil {
			t.Fatal(err)
		}
		return pod
	}
	// PUB-091: a dry run is judged, and books nothing.
	for range 3 {
		for i := range 3 {
			if err := kube.Delete(t.Context(), at(i), client.DryRunAll); err != nil {
				t.Errorf("PUB-091: %v", err)
			}
		}
	}
	image := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"c","image":"i:2"}]}}`))
	if err := kube.Patch(t.Context(), at(0), image); err != nil { // this uses the budget up
		t.Fatal(err)
	}
	refused := func(what string, code int32, err error) {
		t.Helper()
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != code {
			t.Errorf("%s: got %v, want it refused with code %d", what, err, code)
		} else if !strings.Contains(err.Error(), "PodUnavailableBudget web allows 0 more") {
			t.Errorf("%s: refused with %q, want the budget in it", what, err)
		}
	}
	refused("PUB-092: a deletion", http.StatusForbidden, kube.Delete(t.Context(), at(1)))
	refused("PUB-092: a dry run", http.StatusForbidden, kube.Delete(t.Context(), at(1), client.DryRunAll))
	refused("PUB-092: an eviction", http.StatusTooManyRequests, evict(t.Context(), namespace, "web-1"))
	refused("PUB-092: an update", http.StatusForbidden, kube.Patch(t.Context(), at(1), image))
	refused("PUB-082: a label", http.StatusForbidden, kube.Patch(t.Context(), at(1),
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"unavailable-pod.kruise.io/x":""}}}`))))
	if err := kube.Patch(t.Context(), at(1), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`))); err != nil {
		t.Errorf("PUB-082: another label: %v", err)
	}
	// PUB-080: of a collection each pod is judged; TestRemovalsOfPods shows that the request itself is not.
	refused("PUB-080: all at once", http.StatusForbidden, kube.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(namespace),
		client.MatchingFields{"metadata.name": "web-1"}))
	// PUB-084, PUB-085, PUB-D5: a resize is free unless it is listed, where it is expected to restart
	// nothing.
	resize := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}`))
	told := "DELETE EVICT UPDATE"
	if resizes(t) {
		refused("PUB-085: a resize", http.StatusForbidden, kube.SubResource("resize").Patch(t.Context(), at(1), resize))
		told = "DELETE EVICT RESIZE UPDATE"
	}
	if err := kube.Patch(t.Context(), at(0), client.RawPatch(types.StrategicMergePatchType,
		[]byte(`{"spec":{"containers":[{"name":"c","image":"i:3"}]}}`))); err != nil {
		t.Errorf("PUB-086 (7): a pod that is booked already: %v", err)
	}
	for name, label := range map[string]string{"ignored": `{"metadata":{"labels":{"maintenance":"true"}}}`,
		"unprotected": `{"metadata":{"annotations":{"` + pub.NoProtect + `":"true"}}}`} {
		pod := at(map[string]int{"ignored": 2, "unprotected": 3}[name])
		if err := kube.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(label))); err != nil {
			t.Fatal(err)
		}
		if err := kube.Delete(t.Context(), pod); err != nil {
			t.Errorf("PUB-086: %s: %v", name, err)
		}
	}
	// PUB-093: who was refused what is told.
	hasEvent(t, at(1), "PubPreventPodDeletion", "prevents pod deletion")
	var operations []string
	for _, line := range logged(t, "Pod", "web-1") {
		if line["Event"] == "PodUnavailableBudget" {
			operations = append(operations, line["Operation"])
		}
	}
	slices.Sort(operations)
	if got := strings.Join(slices.Compact(operations), " "); got != told {
		t.Errorf("PUB-093: the log has %s, want %s", got, told)
	}
	// PUB-089: a budget that is gone allows.
	budget := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	if err := kube.Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error { return kube.Delete(t.Context(), at(1)) }); err != nil {
		t.Errorf("PUB-089: %v", err)
	}
}

// PUB-077: what is done to pods of namespaces that are left out is not judged, whatever their budgets say.
// PUB-071 (part): pods that no webhook is asked about are told of their budget all the same.
func TestDisruptionsInNamespacesThatAreLeftOut(t *testing.T) {
	const name = "left-out"
	label := map[string]string{"left": "out"}
	installed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "installed-", Labels: map[string]string{"control-plane": "openkruise"}}}
	if err := kube.Create(t.Context(), installed); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{metav1.NamespaceSystem, installed.Name} {
		if err := readyPod(t.Context(), namespace, name); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if err := kube.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"left":"out"}}}`))); err != nil {
			t.Fatal(err)
		}
		budget := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		none := intstr.FromInt32(0)
		budget.Spec.Selector, budget.Spec.MaxUnavailable = &metav1.LabelSelector{MatchLabels: label}, &none
		budget.Spec.ProtectTotalReplicas = ptr.To(int32(1))
		if err := kube.Create(t.Context(), budget); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = kube.Delete(context.Background(), budget) })
		protects(t, budget, 1)
		if err := wait(func() error {
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			if pod.Annotations[pub.RelatedBudget] != name || pod.Annotations[pub.RelatedBudgetLegacy] != name {
				return fmt.Errorf("the pod says %v", pod.Annotations)
			}
			return nil
		}); err != nil {
			t.Errorf("annotations of the pod: %v", err)
		}
		if err := evict(t.Context(), namespace, name, client.DryRunAll); err != nil {
			t.Errorf("an eviction in %s: %v", namespace, err)
		}
		image := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"c","image":"i:2"}]}}`))
		if err := kube.Patch(t.Context(), pod, image); err != nil {
			t.Errorf("an update in %s: %v", namespace, err)
		}
		if err := kube.Delete(t.Context(), pod); err != nil {
			t.Errorf("a deletion in %s: %v", namespace, err)
		}
	}
}

// PUB-080 (part): while no manager answers, pods in service that a budget may protect are not deleted,
// evicted or changed. All others are: those that are not ready, those that somebody freed, and those of other
// namespaces; and what changes no spec passes.
func TestDisruptionsWhileNoManagerAnswers(t *testing.T) {
	namespace := protectedPods(t, 4, func(s *policyv1beta1.PodUnavailableBudgetSpec) {
		many := intstr.FromInt32(3)
		s.MaxUnavailable = &many
	})
	elsewhere := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "elsewhere-"}}
	if err := kube.Create(t.Context(), elsewhere); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web-0", "web-1"} {
		if err := readyPod(t.Context(), elsewhere.Name, name); err != nil {
			t.Fatal(err)
		}
	}
	var live registrationv1.ValidatingWebhookConfiguration
	if err := kube.Get(t.Context(), types.NamespacedName{Name: "kruise-validating-webhook-configuration"}, &live); err != nil {
		t.Fatal(err)
	}
	unreachable := &registrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "unreachable-budgets"}}
	for _, hook := range live.Webhooks {
		if strings.HasSuffix(hook.Name, "-budget.kb.io") {
			hook.Name = "unreachable." + hook.Name
			hook.ClientConfig = registrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/validate-pod")}
			unreachable.Webhooks = append(unreachable.Webhooks, hook)
		}
	}
	if len(unreachable.Webhooks) != 2 {
		t.Fatalf("%d entries", len(unreachable.Webhooks))
	}
	if err := kube.Create(t.Context(), unreachable); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kube.Delete(context.Background(), unreachable) })
	at := func(i int) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("web-%d", i)}}
	}
	merge := func(body string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(body)) }
	image := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"c","image":"i:2"}]}}`))
	for what, try := range map[string]func() error{
		"a deletion":  func() error { return kube.Delete(t.Context(), at(0), client.DryRunAll) },
		"an eviction": func() error { return evict(t.Context(), namespace, "web-0", client.DryRunAll) },
		"an update":   func() error { return kube.Patch(t.Context(), at(0), image, client.DryRunAll) },
	} {
		if err := wait(func() error { // until the API server knows the entries
			if err := try(); err == nil || !strings.Contains(err.Error(), "failed calling webhook \"unreachable.") {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		}); err != nil {
			t.Errorf("%s while the webhook cannot be reached: %v", what, err)
		}
	}
	for i, body := range map[int]string{1: `{"metadata":{"labels":{"x":"y"}}}`, 2: `{"metadata":{"annotations":{"` + pub.NoProtect + `":"true"}}}`} {
		if err := kube.Patch(t.Context(), at(i), merge(body)); err != nil {
			t.Errorf("a change of metadata: %v", err)
		}
	}
	if err := kube.Status().Patch(t.Context(), at(3), merge(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)); err != nil {
		t.Fatal(err)
	}
	for what, pod := range map[string]*corev1.Pod{"that somebody freed": at(2), "that is not ready": at(3),
		"of another namespace": {ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere.Name, Name: "web-0"}}} {
		if err := kube.Delete(t.Context(), pod); err != nil {
			t.Errorf("a pod %s: %v", what, err)
		}
	}
	if err := evict(t.Context(), elsewhere.Name, "web-1"); err != nil {
		t.Errorf("an eviction elsewhere: %v", err)
	}
}
