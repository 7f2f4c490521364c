//go:build integration

package tenants

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// objectAttacks are about what an object claims to be: whose it is, whom it selects, and whether it goes.
var objectAttacks = []attack{
	{name: "rights", least: 0, run: beyondRights, check: refused,
		does: "writes what role `edit` may not: SidecarSets, NodeImages, NodePodProbes, ResourceDistributions, EphemeralJobs, ControllerRevisions, each status, and everything in the namespace of the other tenant"},
	{name: "foreign-owners", least: 200, run: foreignOwners,
		does: "150 pods and 100 claims and jobs of images whose owner is the CloneSet of the other tenant, or a SidecarSet, a node or a Deployment that does not exist"},
	{name: "selectors", least: 10, run: selectsEverything,
		does: "one object of each kind that selects all pods, or names the CloneSet of the other tenant; budgets that allow nothing"},
	{name: "adoption", least: 150, run: adoption,
		does: "50 CloneSets and 10 DaemonSets with the same selector, and 100 pods without an owner that all of them select"},
	{name: "finalizers", least: 50, run: finalizers,
		does: "objects of each kind, pods and claims with a finalizer that nobody removes, deleted at once"},
	{name: "names", least: 10, run: longNames,
		does: "objects of each kind with names of 253 characters, or the most that is accepted, and 100 labels at their longest"},
	{name: "protection", least: 30, run: protection,
		does: "8 loops of deletions that label `policy.kruise.io/delete-protection` or a budget refuses: each is told in events and in a log"},
}

// beyondRights tries what must be refused.
func beyondRights(ctx context.Context, m *tenant) error {
	for _, o := range []string{
		`{apiVersion: apps.kruise.io/v1beta1, kind: SidecarSet, metadata: {name: mine}, spec: {selector: {matchLabels: {app: small}}, containers: [{name: side, image: "evil:1"}]}}`,
		`{apiVersion: apps.kruise.io/v1beta1, kind: NodeImage, metadata: {name: node-0}, spec: {images: {evil: {tags: [{tag: "1"}]}}}}`,
		`{apiVersion: apps.kruise.io/v1alpha1, kind: NodePodProbe, metadata: {name: node-0}, spec: {}}`,
		`{apiVersion: apps.kruise.io/v1beta1, kind: ResourceDistribution, metadata: {name: mine}, spec: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: mine}}, targets: {allNamespaces: true}}}`,
		`{apiVersion: apps.kruise.io/v1alpha1, kind: EphemeralJob, metadata: {name: mine}, spec: {selector: {matchLabels: {app: small}}, template: {ephemeralContainers: [{name: e, image: "evil:1"}]}}}`,
		`{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: mine}, data: {a: b}, revision: 1}`,
	} {
		m.make(ctx, object(o))
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		for _, namespace := range []string{peacefulNamespace, "kube-system", "kruise-system", "kruise-daemon-config"} {
			o := of(kind, "mine")
			o.SetNamespace(namespace)
			m.make(ctx, o)
		}
		o := of(kind, "mine")
		o.SetNamespace(m.namespace)
		status := client.RawPatch(types.MergePatchType, []byte(`{"status": {"observedGeneration": 99}}`))
		_ = m.Status().Patch(ctx, o, status)
	}
	for _, o := range m.w.victim.around {
		m.patches(ctx, o, `{"metadata": {"labels": {"mine": "yes"}}}`)
	}
	set := &appsv1beta1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: peacefulNamespace, Name: small}}
	m.patches(ctx, set, `{"spec": {"replicas": 0}}`)
	_ = m.Delete(ctx, set)
	_ = m.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(peacefulNamespace))
	return nil
}

// refused fails the test if anything was accepted.
func refused(t *testing.T, m *tenant) {
	t.Helper()
	if n, text := m.accepted(); n > 0 {
		t.Errorf("not everything was refused: %s", text)
	}
}

// owner returns a reference of a controller.
func owner(kind, name string, uid types.UID) []metav1.OwnerReference {
	yes := true
	version := "apps.kruise.io/v1beta1"
	switch kind {
	case "Deployment":
		version = "apps/v1"
	case "Node":
		version = "v1"
	}
	return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, UID: uid, Controller: &yes, BlockOwnerDeletion: new(bool)}}
}

func foreignOwners(ctx context.Context, m *tenant) error {
	var set appsv1beta1.CloneSet
	if err := m.w.kube.Get(ctx, client.ObjectKey{Namespace: peacefulNamespace, Name: small}, &set); err != nil {
		return err
	}
	kinds := []string{"CloneSet", "StatefulSet", "DaemonSet", "BroadcastJob", "UnitedDeployment", "SidecarSet", "Node", "Deployment", "PersistentPodState"}
	each(ctx, 250, 8, func(i int) {
		kind := kinds[i%len(kinds)]
		o := object(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: small-%d}, spec: {nodeName: node-0, containers: [{name: c, image: "small:1"}]}}`, i))
		switch {
		case i >= 200:
			o = of("ImagePullJob", fmt.Sprintf("small-%d", i))
		case i >= 150:
			o = object(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: small-%d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, i))
		}
		o.SetLabels(map[string]string{"app": small, "controller-revision-hash": set.Status.UpdateRevision, "apps.kruise.io/cloneset-instance-id": "x"})
		o.SetOwnerReferences(owner(kind, small, set.UID))
		m.make(ctx, o)
	})
	return nil
}

func selectsEverything(ctx context.Context, m *tenant) error {
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		m.make(ctx, of(kind, small))
	}
	for i, selector := range []string{"{}", "{matchExpressions: [{key: app, operator: Exists}]}", "{matchExpressions: [{key: never, operator: DoesNotExist}]}"} {
		m.makes(ctx, `{apiVersion: policy.kruise.io/v1beta1, kind: PodUnavailableBudget, metadata: {name: all-%d}, spec: {maxUnavailable: 0, selector: %s}}`, i, selector)
		m.makes(ctx, `{apiVersion: apps.kruise.io/v1alpha1, kind: PodProbeMarker, metadata: {name: all-%d}, spec: {selector: %s,
			probes: [{name: p, containerName: c, podConditionType: example.com/p, probe: {exec: {command: ["true"]}}}]}}`, i, selector)
		m.makes(ctx, `{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: all-%d}, spec: {replicas: 1, selector: %s, template: `+fmt.Sprintf(pod, small)+`}}`, i, selector)
		m.makes(ctx, `{apiVersion: apps.kruise.io/v1beta1, kind: DaemonSet, metadata: {name: all-%d}, spec: {selector: %s, template: `+fmt.Sprintf(pod, small)+`}}`, i, selector)
		m.makes(ctx, `{apiVersion: apps.kruise.io/v1beta1, kind: ImagePullJob, metadata: {name: all-%d}, spec: {image: "i:%d", podSelector: %s, completionPolicy: {}}}`, i, i, selector)
	}
	m.makes(ctx, `{apiVersion: apps.kruise.io/v1beta1, kind: WorkloadSpread, metadata: {name: theirs}, spec: {
		targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: %s}, subsets: [{name: a, maxReplicas: 0}]}}`, small)
	return nil
}

func adoption(ctx context.Context, m *tenant) error {
	each(ctx, 160, 8, func(i int) {
		switch {
		case i < 50:
			o := of("CloneSet", fmt.Sprintf("set-%d", i))
			with(o, "spec.selector", map[string]any{"matchLabels": map[string]any{"app": "everybody"}})
			with(o, "spec.template.metadata.labels", map[string]any{"app": "everybody"})
			m.make(ctx, with(o, "spec.replicas", int64(2)))
		case i < 60:
			o := of("DaemonSet", fmt.Sprintf("set-%d", i))
			with(o, "spec.selector", map[string]any{"matchLabels": map[string]any{"app": "everybody"}})
			m.make(ctx, with(o, "spec.template.metadata.labels", map[string]any{"app": "everybody"}))
		default:
			m.makes(ctx, `{apiVersion: v1, kind: Pod, metadata: {name: orphan-%d, labels: {app: everybody}}, spec: {containers: [{name: c, image: "i:1"}]}}`, i)
		}
	})
	return nil
}

func finalizers(ctx context.Context, m *tenant) error {
	names := slices.Sorted(maps.Keys(kinds))
	each(ctx, 5*len(names), 8, func(i int) {
		name := fmt.Sprintf("held-%d", i/len(names))
		o := of(names[i%len(names)], name)
		o.SetFinalizers([]string{"example.com/never"})
		if o.GetKind() == "CloneSet" || o.GetKind() == "StatefulSet" {
			with(o, "spec.replicas", int64(2))
			with(o, "spec.template.metadata.finalizers", []any{"example.com/never"})
		}
		m.make(ctx, o)
	})
	each(ctx, 20, 8, func(i int) {
		m.makes(ctx, `{apiVersion: v1, kind: Pod, metadata: {name: held-pod-%d, labels: {app: held-%d}, finalizers: [example.com/never]}, spec: {containers: [{name: c, image: "i:1"}]}}`, i, i%5)
	})
	if err := m.hasPods(ctx, 25); err != nil {
		return err
	}
	each(ctx, 5*len(names), 8, func(i int) {
		o := of(names[i%len(names)], fmt.Sprintf("held-%d", i/len(names)))
		o.SetNamespace(m.namespace)
		_ = m.Delete(ctx, o)
	})
	for _, pod := range m.pods(ctx) {
		_ = m.Delete(ctx, &pod)
	}
	return nil
}

func longNames(ctx context.Context, m *tenant) error {
	labels := map[string]string{}
	for i := range 100 {
		labels[fmt.Sprintf("%s.example.com/%063d", strings.Repeat("x", 200), i)] = strings.Repeat("v", 63)
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		for _, length := range []int{253, 63, 52, 40} {
			n, _ := m.accepted()
			o := of(kind, "small")
			o.SetName(strings.Repeat("n", length))
			o.SetLabels(labels)
			if kind == "CloneSet" || kind == "StatefulSet" {
				with(o, "spec.replicas", int64(2))
			}
			m.make(ctx, o)
			if now, _ := m.accepted(); now > n {
				break
			}
		}
	}
	return nil
}

func protection(ctx context.Context, m *tenant) error {
	for i := range 10 {
		o := of("CloneSet", fmt.Sprintf("kept-%d", i))
		o.SetLabels(map[string]string{"policy.kruise.io/delete-protection": "Always"})
		m.make(ctx, with(o, "spec.replicas", int64(2)))
		m.make(ctx, of("PodUnavailableBudget", fmt.Sprintf("kept-%d", i)))
		o = of("CloneSet", fmt.Sprintf("cascading-%d", i))
		o.SetLabels(map[string]string{"policy.kruise.io/delete-protection": "Cascading"})
		m.make(ctx, with(o, "spec.replicas", int64(2)))
	}
	if err := m.hasPods(ctx, 40); err != nil {
		return err
	}
	pods := m.pods(ctx)
	m.again(ctx, 8, func(loop, i int) {
		if loop%2 == 0 {
			o := of("CloneSet", fmt.Sprintf("kept-%d", i%10))
			o.SetNamespace(m.namespace)
			_ = m.Delete(ctx, o)
			return
		}
		_ = m.Delete(ctx, pods[i%len(pods)].DeepCopy())
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answers[http.StatusForbidden]+m.answers[http.StatusTooManyRequests] == 0 {
		return errors.New("no deletion was refused")
	}
	return nil
}
