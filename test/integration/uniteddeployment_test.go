//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
)

// unitedPods is a pod template with what the API server completes, rewrites and leaves out.
const unitedPods = `template: {metadata: {labels: {app: NAME}, creationTimestamp: null}, spec: {hostNetwork: false, tolerations: [],
	serviceAccountName: default, containers: [{name: main, image: "app:v1", ports: [{containerPort: 80}], env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}],
	resources: {limits: {cpu: 1000m, memory: 1024Mi}, requests: {cpu: "0.5"}}, readinessProbe: {httpGet: {path: /, port: 80}}}],
	volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: token}}]}}, {name: e, emptyDir: {}}]}}`

// children are the workloads of a UnitedDeployment by subset, as they are stored.
func unitedChildren(t *testing.T, kind uniteddeployment.Kind, name string) map[string]*unstructured.Unstructured {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(kind.APIVersion())
	list.SetKind(kind.Name() + "List")
	if err := kube.List(t.Context(), list, client.InNamespace("default"), client.MatchingLabels{"app": name}); err != nil {
		t.Fatal(err)
	}
	children := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		children[list.Items[i].GetLabels()[uniteddeployment.SubsetName]] = &list.Items[i]
	}
	return children
}

// united waits until the status of a UnitedDeployment is of its spec, and fits.
func united(t *testing.T, name string, fits func(*appsv1beta1.UnitedDeployment) error) *appsv1beta1.UnitedDeployment {
	t.Helper()
	u := &appsv1beta1.UnitedDeployment{}
	if err := wait(func() error {
		if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, u); err != nil {
			return err
		}
		if u.Status.ObservedGeneration != u.Generation || len(u.Status.SubsetStatuses) == 0 {
			return fmt.Errorf("%+v", u.Status)
		}
		if fits != nil {
			return fits(u)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return u
}

// UD-002, UD-018, UD-069 (part), UD-071 (part), UD-163: workloads of all kinds are created from one template,
// scaled, and updated; what the API server completes or rewrites of them is no difference, so that nothing is
// written at rest.
func TestWorkloadsOfUnitedDeployments(t *testing.T) {
	for kind, extra := range map[uniteddeployment.Kind]string{
		uniteddeployment.StatefulSet: `serviceName: s, persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete},
			volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1024Mi}}}}], `,
		uniteddeployment.AdvancedStatefulSet: `serviceName: s, `,
		uniteddeployment.CloneSet:            ``,
		uniteddeployment.Deployment:          `minReadySeconds: 3, strategy: {rollingUpdate: {maxSurge: 2}}, `,
	} {
		t.Run(string(kind), func(t *testing.T) {
			name := map[uniteddeployment.Kind]string{uniteddeployment.StatefulSet: "sts", uniteddeployment.AdvancedStatefulSet: "asts",
				uniteddeployment.CloneSet: "cs", uniteddeployment.Deployment: "deploy"}[kind] + "-united"
			spec := extra + "selector: {matchLabels: {app: NAME}}, " + unitedPods
			object := document(t, strings.ReplaceAll(`{apiVersion: apps.kruise.io/v1beta1, kind: UnitedDeployment, metadata: {name: NAME, namespace: default}, spec: {replicas: 3,
				selector: {matchLabels: {app: NAME}}, template: {`+string(kind)+`: {metadata: {labels: {app: NAME}, annotations: {note: one}}, spec: {`+spec+`}}},
				topology: {subsets: [{name: a, nodeSelectorTerm: {matchExpressions: [{key: zone, operator: In, values: [a]}]}, tolerations: [{key: x, operator: Exists}]},
				{name: b, patch: {spec: {containers: [{name: main, env: [{name: POOL, value: b}]}]}}}]}}}`, "NAME", name))
			if err := kube.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = kube.Delete(t.Context(), object) })
			united(t, name, nil)
			children := unitedChildren(t, kind, name)
			if len(children) != 2 || children["a"] == nil || children["b"] == nil {
				t.Fatalf("children: got %v, want one for each of the subsets a and b", children)
			}
			if kind == uniteddeployment.StatefulSet || kind == uniteddeployment.Deployment { // there are no controllers of these
				for subset, child := range children {
					n, _, _ := unstructured.NestedInt64(child.Object, "spec", "replicas")
					reported := child.DeepCopy()
					if err := unstructured.SetNestedMap(reported.Object, map[string]any{"replicas": n, "observedGeneration": child.GetGeneration()}, "status"); err != nil {
						t.Fatal(err)
					}
					if err := kube.Status().Update(t.Context(), reported); err != nil {
						t.Fatalf("status of subset %s: %v", subset, err)
					}
				}
			}
			u := united(t, name, func(u *appsv1beta1.UnitedDeployment) error { // its pods are not of the revision yet: the children are compared
				if u.Status.Replicas < 2 { // one pod after the other, if they are ordered
					return fmt.Errorf("%d replicas", u.Status.Replicas)
				}
				return nil
			})
			before := unitedChildren(t, kind, name)
			for subset, child := range before {
				if child.GetGeneration() != 1 {
					t.Errorf("subset %s is of generation %d: %s", subset, child.GetGeneration(), asJSON(t, child.Object["spec"]))
				}
			}
			scale := &autoscalingv1.Scale{}
			if err := kube.SubResource("scale").Get(t.Context(), u, scale); err != nil {
				t.Errorf("UD-018: %v", err)
			}
			if scale.Spec.Replicas != 3 {
				t.Errorf("UD-018: got %d replicas, want 3", scale.Spec.Replicas)
			}
			if want := "app=" + name; scale.Status.Selector != want {
				t.Errorf("UD-018: got selector %s, want %s", scale.Status.Selector, want)
			}
			scale.Spec.Replicas = 5
			if err := kube.SubResource("scale").Update(t.Context(), u, client.WithSubResourceBody(scale)); err != nil {
				t.Fatal(err)
			}
			united(t, name, nil)
			if err := wait(func() error {
				total := int64(0)
				for _, child := range unitedChildren(t, kind, name) {
					n, _, _ := unstructured.NestedInt64(child.Object, "spec", "replicas")
					total += n
				}
				if total != 5 {
					return fmt.Errorf("%d replicas in all", total)
				}
				return nil
			}); err != nil {
				t.Errorf("replicas after scaling: %v", err)
			}
			u = united(t, name, nil)
			patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"template":{%q:{"metadata":{"annotations":{"note":null,"more":"two"}},
				"spec":{"template":{"spec":{"terminationGracePeriodSeconds":5}}}}}}}`, string(kind)))
			if err := kube.Patch(t.Context(), u, patch); err != nil {
				t.Fatal(err)
			}
			united(t, name, nil)
			if err := wait(func() error {
				for subset, child := range unitedChildren(t, kind, name) {
					grace, _, _ := unstructured.NestedInt64(child.Object, "spec", "template", "spec", "terminationGracePeriodSeconds")
					if notes := child.GetAnnotations(); grace != 5 || notes["note"] != "" || notes["more"] != "two" {
						return fmt.Errorf("subset %s: %d, %v", subset, grace, notes)
					}
				}
				return nil
			}); err != nil {
				t.Errorf("UD-068: %v", err)
			}
		})
	}
}
