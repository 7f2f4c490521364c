//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/platform/apiserver"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// podBudget returns a budget of a workload of its name, merged with a manifest in YAML.
func podBudget(version, name, over string) *unstructured.Unstructured {
	base := fmt.Sprintf(`{apiVersion: policy.kruise.io/%s, kind: PodUnavailableBudget, metadata: {name: %s, namespace: default},
		spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: %s}, maxUnavailable: 1}}`, version, name, name)
	object, extra := map[string]any{}, map[string]any{}
	if err := errors.Join(yaml.Unmarshal([]byte(base), &object), yaml.Unmarshal([]byte(over), &extra)); err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: mergeInto(object, extra)}
}

// stored creates a budget, and deletes it after the test.
func stored(t *testing.T, budget *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	if err := kube.Create(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kube.Delete(context.Background(), budget) })
	return budget
}

// as reads a budget in the version.
func as(t *testing.T, version string, budget *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	got := podBudget(version, budget.GetName(), "")
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(budget), got); err != nil {
		t.Fatal(err)
	}
	return got
}

// PUB-021 to PUB-027, PUB-030 (part): what is wrong with a budget is refused with 422 and all its fields, in
// both versions unless the field is one of v1beta1.
func TestBadBudgets(t *testing.T) {
	for name, test := range map[string]struct {
		over   string
		fields []string
		beta   bool
	}{
		"neither (PUB-021, PUB-024)": {over: `{spec: {targetRef: null, maxUnavailable: null}}`,
			fields: []string{"spec.selector, targetRef", "spec.maxUnavailable, minAvailable"}},
		"both (PUB-021, PUB-024)": {over: `{spec: {selector: {matchLabels: {a: b}}, minAvailable: 1}}`,
			fields: []string{"spec.selector, targetRef", "spec.maxUnavailable, minAvailable"}},
		"a workload (PUB-022)": {over: `{spec: {targetRef: {apiVersion: a/b/c, kind: "", name: ""}}}`,
			fields: []string{"spec.targetRef.kind", "spec.targetRef.name", "spec.targetRef.apiVersion"}},
		"an empty selector (PUB-023)": {over: `{spec: {targetRef: null, selector: {}}}`, fields: []string{"spec.selector"}},
		"an operator (PUB-023)": {over: `{spec: {targetRef: null, selector: {matchExpressions: [{key: a, operator: Near}]}}}`,
			fields: []string{"spec.selector.matchExpressions[0].operator"}},
		"a negative number (PUB-025)": {over: `{spec: {maxUnavailable: -1}}`, fields: []string{"spec.maxUnavailable"}},
		"a percentage (PUB-025)":      {over: `{spec: {maxUnavailable: null, minAvailable: 101%}}`, fields: []string{"spec.minAvailable"}},
		"ignored pods (PUB-026)":      {over: `{spec: {ignoredPodSelector: {}}}`, fields: []string{"spec.ignoredPodSelector"}, beta: true},
		"an operation (PUB-026), by the schema": {over: `{spec: {protectOperations: [DELETE, CREATE]}}`,
			fields: []string{"spec.protectOperations[1]"}, beta: true},
		"no pods (PUB-013), by the schema": {over: `{spec: {protectTotalReplicas: 0}}`,
			fields: []string{"spec.protectTotalReplicas"}, beta: true},
		"words (PUB-027)": {over: `{metadata: {annotations: {kruise.io/pub-protect-operations: "DELETE,CREATE"}}}`,
			fields: []string{"metadata.annotations[kruise.io/pub-protect-operations]"}},
		"a total (PUB-027)": {over: `{metadata: {annotations: {pub.kruise.io/protect-total-replicas: "2147483648"}}}`,
			fields: []string{"metadata.annotations[pub.kruise.io/protect-total-replicas]"}},
		"two totals (PUB-027)": {over: `{metadata: {annotations: {pub.kruise.io/protect-total-replicas: "5"}}, spec: {protectTotalReplicas: 6}}`,
			fields: []string{"metadata.annotations[pub.kruise.io/protect-total-replicas]"}, beta: true},
		"a selector (PUB-122)": {over: `{metadata: {annotations: {pub.kruise.io/ignored-pod-selector: "a=b"}}}`,
			fields: []string{"metadata.annotations[pub.kruise.io/ignored-pod-selector]"}},
	} {
		for _, version := range served {
			if test.beta && version == "v1alpha1" {
				continue
			}
			t.Run(name+" "+version, func(t *testing.T) {
				err := kube.Create(t.Context(), podBudget(version, "bad", test.over), client.DryRunAll)
				if fields := refusedFields(t, err, 422); !slices.Equal(fields, test.fields) {
					t.Errorf("fields %v: %v", fields, err)
				}
			})
		}
	}
}

// PUB-028: what a budget covers does not change; everything else may, in both versions.
func TestCoveredPodsDoNotChange(t *testing.T) {
	budget := stored(t, podBudget("v1beta1", "covered", ""))
	for _, version := range served {
		change := func(patch string) error {
			return kube.Patch(t.Context(), as(t, version, budget), client.RawPatch(types.MergePatchType, []byte(patch)))
		}
		for patch, want := range map[string][]string{
			`{"spec":{"targetRef":{"name":"other"}}}`:                              {"spec.targetRef"},
			`{"spec":{"targetRef":null,"selector":{"matchLabels":{"app":"web"}}}}`: {"spec.selector", "spec.targetRef"},
		} {
			err := change(patch)
			if fields := refusedFields(t, err, 422); !slices.Equal(fields, want) {
				t.Errorf("%s, %s: got refused fields %q, want %q: %v", version, patch, fields, want, err)
			}
		}
		for _, patch := range []string{`{"spec":{"maxUnavailable":"30%"}}`, `{"spec":{"maxUnavailable":null,"minAvailable":2}}`,
			`{"metadata":{"annotations":{"kruise.io/pub-protect-operations":"EVICT","pub.kruise.io/protect-total-replicas":"7"}}}`,
			`{"metadata":{"annotations":{"kruise.io/pub-protect-operations":null,"pub.kruise.io/protect-total-replicas":null}}}`,
			`{"spec":{"maxUnavailable":1,"minAvailable":null}}`} {
			if version == "v1beta1" && strings.Contains(patch, "null,\"pub") { // what v1alpha1 has written
				patch = strings.Replace(patch, `}}}`, `}},"spec":{"protectOperations":null,"protectTotalReplicas":null}}`, 1)
			}
			if err := change(patch); err != nil {
				t.Errorf("change by %s in %s: %v", patch, version, err)
			}
		}
	}
}

// PUB-029: a second budget of a workload or of overlapping labels is refused, in either version, and names
// the first one.
func TestBudgetsDoNotOverlap(t *testing.T) {
	stored(t, podBudget("v1beta1", "taken", ""))
	stored(t, podBudget("v1alpha1", "labelled", `{spec: {targetRef: null, selector: {matchLabels: {budget: taken}}}}`))
	for _, version := range served {
		for over, want := range map[string][2]string{
			`{spec: {targetRef: {apiVersion: apps/v1beta2, name: taken}}}`: {"spec.targetRef", "PodUnavailableBudget taken "},
			`{spec: {targetRef: null, selector: {matchExpressions: [{key: budget, operator: In, values: [free, taken]}]}}}`: {
				"spec.selector", "PodUnavailableBudget labelled "},
		} {
			if err := wait(func() error { // until the cache of the webhook knows the first
				err := kube.Create(t.Context(), podBudget(version, "second", over), client.DryRunAll)
				if err == nil {
					return errors.New("accepted")
				}
				if fields := refusedFields(t, err, 422); !slices.Equal(fields, []string{want[0]}) {
					t.Errorf("a second budget: got refused fields %q, want %s", fields, want[0])
				}
				if !strings.Contains(err.Error(), want[1]) {
					t.Errorf("a second budget: refused with %q, want %q in it", err, want[1])
				}
				return nil
			}); err != nil {
				t.Errorf("a second budget in %s, %s: %v", version, over, err)
			}
		}
		for _, over := range []string{`{spec: {targetRef: {apiVersion: other/v1, name: taken}}}`,
			`{spec: {targetRef: null, selector: {matchLabels: {budget: free}}}}`,
			`{metadata: {namespace: kube-public}, spec: {targetRef: {name: taken}}}`} {
			if err := kube.Create(t.Context(), podBudget(version, "second", over), client.DryRunAll); err != nil {
				t.Errorf("a budget of other pods, %s: %v", over, err)
			}
		}
	}
}

// PUB-120 (part), PUB-121 (part), PUB-122, PUB-123 (part), PUB-124: both versions show the same budget,
// whichever was written, and a write of v1alpha1 loses nothing of v1beta1. TestConvertedKindsNameTheService
// shows the strategy.
func TestBothVersionsShowTheSameBudget(t *testing.T) {
	const (
		fields = `{spec: {protectOperations: [RESIZE, EVICT], protectTotalReplicas: 15,
			ignoredPodSelector: {matchLabels: {maintenance: "true"}}}}`
		words = `{metadata: {annotations: {kruise.io/pub-protect-operations: "RESIZE,EVICT", pub.kruise.io/protect-total-replicas: "15",
			pub.kruise.io/ignored-pod-selector: '{"matchLabels":{"maintenance":"true"}}'}}}`
	)
	for version, over := range map[string]string{"v1beta1": fields, "v1alpha1": words} {
		t.Run(version, func(t *testing.T) {
			budget := stored(t, podBudget(version, "versions", over))
			alpha, beta := as(t, "v1alpha1", budget), as(t, "v1beta1", budget)
			if diff := cmp.Diff(asYAML(t, podBudget("v1beta1", "versions", fields).Object["spec"]),
				asYAML(t, beta.Object["spec"])); diff != "" {
				t.Errorf("v1beta1 (-want +got):\n%s", diff)
			}
			want := podBudget("v1alpha1", "versions", words)
			if diff := cmp.Diff(asYAML(t, want.Object["spec"]), asYAML(t, alpha.Object["spec"])) +
				cmp.Diff(want.GetAnnotations(), alpha.GetAnnotations()); diff != "" {
				t.Errorf("v1alpha1 (-want +got):\n%s", diff)
			}
			if err := wait(func() error { // the controller writes the status meanwhile
				alpha = as(t, "v1alpha1", budget)
				alpha.SetLabels(map[string]string{"written": "again"})
				return kube.Update(t.Context(), alpha)
			}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(asYAML(t, beta.Object["spec"]), asYAML(t, as(t, "v1beta1", budget).Object["spec"])); diff != "" {
				t.Errorf("after a write of v1alpha1 (-before +after):\n%s", diff)
			}
			// PUB-123
			if err := kube.Patch(t.Context(), as(t, "v1beta1", budget),
				client.RawPatch(types.MergePatchType, []byte(`{"spec":{"protectTotalReplicas":20}}`))); err != nil {
				t.Fatal(err)
			}
			if got := as(t, "v1alpha1", budget).GetAnnotations()["pub.kruise.io/protect-total-replicas"]; got != "20" {
				t.Errorf("the field is 20, the annotation shows %q", got)
			}
		})
	}
}

// PUB-110 (part): the status is a subresource that both versions show, and what somebody writes into it is
// counted anew.
func TestStatusOfBudgets(t *testing.T) {
	budget := stored(t, podBudget("v1beta1", "counted", `{spec: {protectTotalReplicas: 7}, status: {unavailableAllowed: 9}}`))
	typed := &policyv1beta1.PodUnavailableBudget{}
	counted := func() error {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(budget), typed); err != nil {
			return err
		}
		if s := &typed.Status; s.ObservedGeneration != typed.Generation || s.TotalReplicas != 7 || s.DesiredAvailable != 6 || s.UnavailableAllowed != 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	}
	if err := wait(counted); err != nil {
		t.Fatal(err)
	}
	typed.Status.UnavailableAllowed, typed.Status.TotalReplicas = 3, 10
	if err := kube.Status().Update(t.Context(), typed); err != nil {
		t.Fatal(err)
	}
	if err := wait(counted); err != nil {
		t.Fatal(err)
	}
	for _, version := range served {
		if got, _, _ := unstructured.NestedInt64(as(t, version, budget).Object, "status", "totalReplicas"); got != 7 {
			t.Errorf("total replicas in %s: got %d, want 7", version, got)
		}
	}
}

// What a budget never allows, and which annotation decides, is told to who writes it.
func TestWarningsOfBudgets(t *testing.T) {
	warnings := &warned{}
	config := rest.CopyConfig(apiServer)
	config.WarningHandler = warnings
	warning, err := client.New(config, client.Options{Scheme: kube.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	total := `{metadata: {annotations: {pub.kruise.io/protect-total-replicas: "5"}}, spec: {maxUnavailable: null, minAvailable: 6}}`
	for over, want := range map[string]string{
		`{}`:                          "",
		`{spec: {maxUnavailable: 0}}`: "spec.maxUnavailable: 0 never",
		`{spec: {maxUnavailable: null, minAvailable: 100%}}`: "spec.minAvailable: 100% never",
		total: "spec.minAvailable: 6 never",
	} {
		for _, version := range served {
			warnings.texts = nil
			if err := warning.Create(t.Context(), podBudget(version, "warned", over), client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			if (want == "") != (len(warnings.texts) == 0) || !strings.Contains(strings.Join(warnings.texts, "\n"), want) {
				t.Errorf("warnings in %s for %s: got %q, want %q", version, over, warnings.texts, want)
			}
		}
	}
}

// resizes reports whether the API server changes resources of pods in place, and keeps resizePolicy: from Kubernetes 1.33 on.
func resizes(t *testing.T) bool {
	t.Helper()
	gates, err := features.Parse("")
	if err != nil {
		t.Fatal(err)
	}
	resizes, err := apiserver.Resizes(apiServer, gates, features.InPlaceWorkloadVerticalScaling)
	if err != nil {
		t.Fatal(err)
	}
	return resizes
}

// Both versions are found by the short name.
func TestShortNameOfBudgets(t *testing.T) {
	found, err := discovery.NewDiscoveryClientForConfig(apiServer)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range served {
		list, err := found.ServerResourcesForGroupVersion("policy.kruise.io/" + version)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for i := range list.APIResources {
			r := &list.APIResources[i]
			got += fmt.Sprintf("%s %v %t; ", r.Name, r.ShortNames, r.Namespaced)
		}
		if want := "podunavailablebudgets [pub] true; podunavailablebudgets/status [] true; "; got != want {
			t.Errorf("resources of %s: got %s, want %s", version, got, want)
		}
	}
}
