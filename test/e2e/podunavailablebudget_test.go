//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// budgeted makes a PodUnavailableBudget for the workload, and waits until it has counted so many pods.
func (w *workload) budgeted(spec string, pods int32) {
	w.t.Helper()
	budget := manifest(w.t, w.key.Namespace, `{apiVersion: policy.kruise.io/v1beta1, kind: PodUnavailableBudget, metadata: {name: `+w.key.Name+
		`}, spec: {`+spec+`}}`, &policyv1beta1.PodUnavailableBudget{})
	eventually(w.t, "the budget counts", func(ctx context.Context) string {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(budget), budget); err != nil {
			return err.Error()
		}
		if budget.Status.ObservedGeneration == budget.Generation && budget.Status.CurrentAvailable == pods {
			return ""
		}
		return fmt.Sprintf("%+v", budget.Status)
	})
}

// drain has kubectl drain a node of the pods of an app.
func drain(ctx context.Context, node, app string) ([]byte, error) {
	return exec.CommandContext(ctx, os.Getenv("KUBECTL"), "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=app="+app,
		"--timeout=150s").CombinedOutput()
}

// PUB-001, PUB-100 (part): an update in place, a drain and a scale-in at the same time never take more pods
// out of service than the budget allows, beside a PodDisruptionBudget; and each of them ends.
func TestRolloutDrainAndScaleInTogether(t *testing.T) {
	w := create(t, "together", `
replicas: 9
updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 100%}}
template: {spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: together}}}]}}
`)
	w.budgeted(`targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: together}, maxUnavailable: 2`, 9)
	apply(t, `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: together, namespace: `+w.key.Namespace+
		`}, spec: {selector: {matchLabels: {app: together}}, minAvailable: 5}}`)
	node := ""
	for _, pod := range w.pods() {
		node = pod.Spec.NodeName
	}
	uncordon := func() {
		if out, err := exec.CommandContext(context.Background(), os.Getenv("KUBECTL"), "uncordon", node).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	t.Cleanup(uncordon)
	events := watchPods(t, w.key.Namespace)
	var all sync.WaitGroup
	all.Go(func() {
		if out, err := drain(t.Context(), node, "together"); err != nil {
			t.Errorf("drain: %v: %s", err, out)
		}
	})
	w.image("nginx:1.27")
	// As soon as somebody has taken a pod.
	eventually(t, "pods go", func(ctx context.Context) string {
		var budget policyv1beta1.PodUnavailableBudget
		if err := kube.Get(ctx, w.key, &budget); err != nil {
			return err.Error()
		}
		if budget.Status.CurrentAvailable < 9 {
			return ""
		}
		return fmt.Sprintf("%+v", budget.Status)
	})
	w.change(`spec: {replicas: 7}`)
	all.Wait()
	w.settled()
	for name, pod := range w.pods() {
		if pod.Spec.NodeName == node || pod.Spec.Containers[0].Image != "nginx:1.27" {
			t.Errorf("pod %s is on %s with %s", name, pod.Spec.NodeName, pod.Spec.Containers[0].Image)
		}
	}
	notBelow(t, events, 9, 5) // 7 - 2
	// A rollout that the budget holds says so.
	w.budget(`maxUnavailable: 0`)
	w.image("nginx:1.26")
	eventually(t, "the rollout waits", func(ctx context.Context) string {
		return eventWith(ctx, w.key.Namespace, "RolloutWaiting", "PodUnavailableBudget together")
	})
	w.budget(`maxUnavailable: 3`)
	w.settled()
}

// budget changes the budget of the workload.
func (w *workload) budget(spec string) {
	w.t.Helper()
	body, err := yaml.YAMLToJSON([]byte("spec: {" + spec + "}"))
	if err != nil {
		w.t.Fatal(err)
	}
	budget := &policyv1beta1.PodUnavailableBudget{}
	budget.Namespace, budget.Name = w.key.Namespace, w.key.Name
	if err := kube.Patch(w.t.Context(), budget, client.RawPatch(types.MergePatchType, body)); err != nil {
		w.t.Fatal(err)
	}
}

// PUB-101 (part), ASTS-363: a budget protects the pods of a StatefulSet from deletion, and from its own
// updates in place; they have the readiness gate KruisePodReady.
func TestBudgetsHoldOtherKinds(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	set := &appsv1beta1.StatefulSet{}
	document(t, set, "held", ns, `
replicas: 3
podManagementPolicy: Parallel
updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 3}}`)
	if err := kube.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	pods := func(ctx context.Context) (list corev1.PodList, missing string) {
		if err := kube.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return list, err.Error()
		}
		ready := 0
		for i := range list.Items {
			if condition := conditionFalse(&list.Items[i]); !condition && list.Items[i].Status.Phase == corev1.PodRunning {
				ready++
			}
		}
		if ready < 3 {
			missing = fmt.Sprintf("%d pods run", ready)
		}
		return list, missing
	}
	eventually(t, "the pods", func(ctx context.Context) string { _, missing := pods(ctx); return missing })
	w := &workload{t: t, object: set, key: types.NamespacedName{Namespace: ns, Name: "held"}}
	w.budgeted(`selector: {matchLabels: {app: held}}, minAvailable: 100%`, 3)
	refused := func(ctx context.Context) string {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = ns, "held-0"
		if err := kube.Delete(ctx, pod, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Sprint(err)
		}
		return ""
	}
	eventually(t, "deletions are refused", refused)
	w.change(`spec: {template: {spec: {containers: [{name: nginx, image: "nginx:1.27", imagePullPolicy: IfNotPresent}]}}}`)
	eventually(t, "the StatefulSet waits", func(ctx context.Context) string {
		return eventWith(ctx, ns, "RolloutWaiting", "PodUnavailableBudget held")
	})
	list, _ := pods(t.Context())
	for i := range list.Items {
		if gate := (corev1.PodReadinessGate{ConditionType: pub.KruisePodReady}); !slices.Contains(list.Items[i].Spec.ReadinessGates, gate) {
			t.Errorf("pod %s has no gate", list.Items[i].Name)
		}
		if list.Items[i].Spec.Containers[0].Image != "nginx:1.26" {
			t.Errorf("pod %s has %s", list.Items[i].Name, list.Items[i].Spec.Containers[0].Image)
		}
	}
	w.budget(`minAvailable: 2`)
	eventually(t, "the rollout ends", func(ctx context.Context) string {
		list, missing := pods(ctx)
		for i := range list.Items {
			if list.Items[i].Spec.Containers[0].Image != "nginx:1.27" {
				missing += " " + list.Items[i].Name
			}
		}
		return missing
	})
}

// eventWith says what is missing of an event with that reason and those words.
func eventWith(ctx context.Context, namespace, reason, words string) string {
	var list corev1.EventList
	if err := kube.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return err.Error()
	}
	var seen []string
	for i := range list.Items {
		if e := &list.Items[i]; e.Reason == reason {
			if strings.Contains(e.Message, words) {
				return ""
			}
			seen = append(seen, e.Message)
		}
	}
	return fmt.Sprintf("%s: %q at %s", reason, seen, time.Now().Format(time.TimeOnly))
}
