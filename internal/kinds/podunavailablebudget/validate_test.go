package podunavailablebudget

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	policyv1alpha1 "github.com/afloat-project/afloat/api/policy/v1alpha1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
)

func parsed[T any](t *testing.T, text string) *T {
	t.Helper()
	value := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), value); err != nil {
		t.Fatalf("reading %s: %v", text, err)
	}
	return value
}

func budget(t *testing.T, text string) *policyv1beta1.PodUnavailableBudget {
	t.Helper()
	b := parsed[policyv1beta1.PodUnavailableBudget](t, text)
	if b.Name == "" {
		b.Name = "web"
	}
	return b
}

const (
	ofWorkload = `targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}`
	ofLabels   = `selector: {matchLabels: {app: web}}`
)

func spec(parts ...string) string { return "{spec: {" + strings.Join(parts, ", ") + "}}" }

func annotated(key, value string, parts ...string) string {
	return fmt.Sprintf("{metadata: {annotations: {%s: %q}}, spec: {%s}}", key, value, strings.Join(parts, ", "))
}

// summary has types and fields of errors.
func summary(errs field.ErrorList) []string {
	var list []string
	for _, err := range errs {
		list = append(list, string(err.Type)+" "+err.Field)
	}
	return list
}

func TestValidate(t *testing.T) {
	const (
		operations = "FieldValueInvalid metadata.annotations[kruise.io/pub-protect-operations]"
		total      = "FieldValueInvalid metadata.annotations[pub.kruise.io/protect-total-replicas]"
		ignored    = "FieldValueInvalid metadata.annotations[pub.kruise.io/ignored-pod-selector]"
		one        = "maxUnavailable: 1"
	)
	bad := func(causes ...string) []string { return causes }
	good := bad()
	for name, test := range map[string]struct {
		budget string
		want   []string
	}{
		"PUB-010, PUB-011: a workload, and a percentage": {spec(ofWorkload, `maxUnavailable: 25%`), good},
		"PUB-010, PUB-011: labels, and a number":         {spec(ofLabels, `minAvailable: 2`), good},
		"PUB-014, PUB-026: everything": {spec(ofLabels, one, `protectOperations: [RESIZE, DELETE, UPDATE, EVICT], protectTotalReplicas: 5`,
			`ignoredPodSelector: {matchExpressions: [{key: a, operator: Exists}]}`), good},
		"PUB-021, PUB-024: neither": {spec(), bad("FieldValueRequired spec.selector, targetRef",
			"FieldValueRequired spec.maxUnavailable, minAvailable")},
		"PUB-021, PUB-024: both": {spec(ofLabels, ofWorkload, one, "minAvailable: 1"), bad("FieldValueRequired spec.selector, targetRef",
			"FieldValueRequired spec.maxUnavailable, minAvailable")},
		"PUB-022: nothing of a workload": {spec(one, "targetRef: {}"), bad("FieldValueRequired spec.targetRef.apiVersion",
			"FieldValueRequired spec.targetRef.kind", "FieldValueRequired spec.targetRef.name")},
		"PUB-022: no kind":       {spec(one, "targetRef: {apiVersion: v1, name: web}"), bad("FieldValueRequired spec.targetRef.kind")},
		"PUB-022: no name":       {spec(one, "targetRef: {apiVersion: v1, kind: A}"), bad("FieldValueRequired spec.targetRef.name")},
		"PUB-022: no apiVersion": {spec(one, "targetRef: {kind: A, name: web}"), bad("FieldValueRequired spec.targetRef.apiVersion")},
		"PUB-022: unparsable": {spec(one, "targetRef: {apiVersion: a/b/c, kind: A, name: web}"),
			bad("FieldValueInvalid spec.targetRef.apiVersion")},
		"PUB-023: an empty selector": {spec(one, "selector: {}"), bad("FieldValueInvalid spec.selector")},
		"PUB-023: also with empty lists": {spec(one, "selector: {matchLabels: {}, matchExpressions: []}"),
			bad("FieldValueInvalid spec.selector")},
		"PUB-023: an operator": {spec(one, "selector: {matchExpressions: [{key: a, operator: Near}]}"),
			bad("FieldValueInvalid spec.selector.matchExpressions[0].operator")},
		"PUB-023: In without values": {spec(one, "selector: {matchExpressions: [{key: a, operator: In}]}"),
			bad("FieldValueRequired spec.selector.matchExpressions[0].values")},
		"PUB-023: a label":  {spec(one, "selector: {matchLabels: {a: not a value}}"), bad("FieldValueInvalid spec.selector.matchLabels")},
		"PUB-025: negative": {spec(ofLabels, "maxUnavailable: -1"), bad("FieldValueInvalid spec.maxUnavailable")},
		"PUB-025: 0":        {spec(ofLabels, "maxUnavailable: 0"), good},
		"PUB-025: 0%":       {spec(ofLabels, "minAvailable: 0%"), good},
		"PUB-025: 100%":     {spec(ofLabels, "minAvailable: 100%"), good},
		"PUB-025: 101%":     {spec(ofLabels, "minAvailable: 101%"), bad("FieldValueInvalid spec.minAvailable")},
		"PUB-025: 99999999999999999999%": {spec(ofLabels, "maxUnavailable: 99999999999999999999%"),
			bad("FieldValueInvalid spec.maxUnavailable")},
		"PUB-025: -5%":  {spec(ofLabels, "maxUnavailable: -5%"), bad("FieldValueInvalid spec.maxUnavailable")},
		"PUB-025: '5'":  {spec(ofLabels, "maxUnavailable: '5'"), bad("FieldValueInvalid spec.maxUnavailable")},
		"PUB-025: text": {spec(ofLabels, "minAvailable: most"), bad("FieldValueInvalid spec.minAvailable")},
		"PUB-026: operations": {spec(ofLabels, one, "protectOperations: [DELETE, delete, UPDATE, CREATE]"),
			bad("FieldValueNotSupported spec.protectOperations[1]", "FieldValueNotSupported spec.protectOperations[3]")},
		"PUB-026: empty ignored pods": {spec(ofLabels, one, "ignoredPodSelector: {}"), bad("FieldValueInvalid spec.ignoredPodSelector")},
		"PUB-026: invalid ignored pods": {spec(ofLabels, one,
			"ignoredPodSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}"),
			bad("FieldValueForbidden spec.ignoredPodSelector.matchExpressions[0].values")},
		"PUB-027: no number": {annotated(pub.BudgetTotalReplicas, "many", ofLabels, one), bad(total)},
		"PUB-027: empty":     {annotated(pub.BudgetTotalReplicas, "", ofLabels, one), bad(total)},
		"PUB-027: 64 bits":   {annotated(pub.BudgetTotalReplicas, "2147483648", ofLabels, one), bad(total)},
		"PUB-027: 0":         {annotated(pub.BudgetTotalReplicas, "0", ofLabels, one), bad(total)},
		"PUB-027: 32 bits":   {annotated(pub.BudgetTotalReplicas, "2147483647", ofLabels, one), good},
		"PUB-027: equal":     {annotated(pub.BudgetTotalReplicas, "5", ofLabels, one, "protectTotalReplicas: 5"), good},
		"PUB-027: not equal": {annotated(pub.BudgetTotalReplicas, "5", ofLabels, one, "protectTotalReplicas: 6"), bad(total)},
		"PUB-027: words":     {annotated(pub.BudgetOperations, " RESIZE ,EVICT,,", ofLabels, one), good},
		"PUB-027: other words than the field has": {annotated(pub.BudgetOperations, "EVICT", ofLabels, one,
			"protectOperations: [DELETE]"), good},
		"PUB-027: an unknown word":  {annotated(pub.BudgetOperations, "DELETE,CREATE", ofLabels, one), bad(operations)},
		"PUB-122: no selector":      {annotated(pub.BudgetIgnoredPods, "a=b", ofLabels, one), bad(ignored)},
		"PUB-122: null":             {annotated(pub.BudgetIgnoredPods, "null", ofLabels, one), bad(ignored)},
		"PUB-122: an unknown field": {annotated(pub.BudgetIgnoredPods, `{"matchLabel":{"a":"b"}}`, ofLabels, one), bad(ignored)},
		"PUB-122: a selector":       {annotated(pub.BudgetIgnoredPods, `{"matchLabels":{"a":"b"}}`, ofLabels, one), good},
		"PUB-122: an empty selector, PUB-026": {annotated(pub.BudgetIgnoredPods, `{}`, ofLabels, one),
			bad("FieldValueInvalid spec.ignoredPodSelector")},
	} {
		t.Run(name, func(t *testing.T) {
			written := budget(t, test.budget)
			if strings.HasPrefix(name, "PUB-122") { // what is written in v1alpha1
				written = (&policyv1alpha1.PodUnavailableBudget{ObjectMeta: written.ObjectMeta,
					Spec: policyv1alpha1.PodUnavailableBudgetSpec{PodUnavailableBudgetSelection: written.Spec.PodUnavailableBudgetSelection}}).ToV1beta1()
			}
			if diff := cmp.Diff(test.want, summary(Validate(written, nil, nil))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// PUB-023, PUB-026: selectors are read at each event of a pod, before the events of others, and compared with
// those of all budgets of the namespace, so that they have a bound.
func TestSelectorsHaveFewTerms(t *testing.T) {
	for _, name := range []string{"selector", "ignoredPodSelector"} {
		for values, want := range map[int][]string{fieldcheck.MostSelectorTerms - 1: nil, fieldcheck.MostSelectorTerms: {"FieldValueTooMany spec." + name}} {
			text := "{matchExpressions: [{key: a, operator: In, values: [" + strings.Repeat("v, ", values) + "]}]}"
			parts := []string{"maxUnavailable: 1", name + ": " + text}
			if name != "selector" {
				parts = append(parts, ofWorkload)
			}
			if got := summary(Validate(budget(t, spec(parts...)), nil, nil)); !slices.Equal(got, want) {
				t.Errorf("%s, %d values: %v", name, values, got)
			}
		}
	}
}

// PUB-028, PUB-123: an update may change everything but what is covered. A number of pods in an annotation
// must be that of the field only if the update sets the annotation.
func TestAnUpdateMayChangeAllButWhatIsCovered(t *testing.T) {
	const one = "maxUnavailable: 1"
	stale := annotated(pub.BudgetTotalReplicas, "10", ofLabels, one, "protectTotalReplicas: 10")
	for name, test := range map[string]struct {
		old, updated string
		want         []string
	}{
		"all else": {spec(ofLabels, one), annotated(pub.BudgetOperations, "EVICT", ofLabels, "minAvailable: 10%",
			"protectOperations: [DELETE], protectTotalReplicas: 5, ignoredPodSelector: {matchLabels: {a: b}}"), nil},
		"the selector": {spec(ofLabels, one), spec("selector: {matchLabels: {app: other}}", one), []string{"FieldValueInvalid spec.selector"}},
		"the target": {spec(ofWorkload, one), spec(strings.Replace(ofWorkload, "web", "other", 1), one),
			[]string{"FieldValueInvalid spec.targetRef"}},
		"its apiVersion": {spec(ofWorkload, one), spec(strings.Replace(ofWorkload, "v1", "v2", 1), one),
			[]string{"FieldValueInvalid spec.targetRef"}},
		"from one to the other": {spec(ofWorkload, one), spec(ofLabels, one),
			[]string{"FieldValueInvalid spec.selector", "FieldValueInvalid spec.targetRef"}},
		"an empty list in the selector": {spec(ofLabels, one), spec("selector: {matchLabels: {app: web}, matchExpressions: []}", one), nil},
		"the field alone":               {stale, annotated(pub.BudgetTotalReplicas, "10", ofLabels, one, "protectTotalReplicas: 20"), nil},
		"the field is removed":          {stale, annotated(pub.BudgetTotalReplicas, "10", ofLabels, one), nil},
		"the annotation alone": {stale, annotated(pub.BudgetTotalReplicas, "20", ofLabels, one, "protectTotalReplicas: 10"),
			[]string{"FieldValueInvalid metadata.annotations[pub.kruise.io/protect-total-replicas]"}},
		"both": {stale, annotated(pub.BudgetTotalReplicas, "20", ofLabels, one, "protectTotalReplicas: 20"), nil},
		"a word that was there": {annotated(pub.BudgetOperations, "X", ofLabels, one), annotated(pub.BudgetOperations, "X", ofLabels,
			"maxUnavailable: 2"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			errs := Validate(budget(t, test.updated), budget(t, test.old), []policyv1beta1.PodUnavailableBudget{*budget(t, "{metadata: {name: b}, "+
				spec(ofLabels)[1:])})
			if diff := cmp.Diff(test.want, summary(errs)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// PUB-029.
func TestOverlap(t *testing.T) {
	expression := func(key, operator string, values ...string) string {
		return fmt.Sprintf("selector: {matchExpressions: [{key: %s, operator: %s, values: [%s]}]}", key, operator, strings.Join(values, ", "))
	}
	target := func(apiVersion, kind, name string) string {
		return fmt.Sprintf("targetRef: {apiVersion: %s, kind: %s, name: %s}", apiVersion, kind, name)
	}
	for name, test := range map[string]struct {
		a, b string
		want bool
	}{
		"the same workload":          {target("apps/v1", "Deployment", "web"), target("apps/v1", "Deployment", "web"), true},
		"in another version":         {target("apps/v1", "Deployment", "web"), target("apps/v1beta2", "Deployment", "web"), true},
		"of another group":           {target("apps/v1", "StatefulSet", "web"), target("apps.kruise.io/v1", "StatefulSet", "web"), false},
		"of another kind":            {target("apps/v1", "Deployment", "web"), target("apps/v1", "ReplicaSet", "web"), false},
		"of another name":            {target("apps/v1", "Deployment", "web"), target("apps/v1", "Deployment", "api"), false},
		"a workload and a selector":  {ofWorkload, ofLabels, false},
		"the same labels":            {ofLabels, ofLabels, true},
		"a label and In":             {ofLabels, expression("app", "In", "web", "api"), true},
		"other keys":                 {ofLabels, "selector: {matchLabels: {tier: web}}", false},
		"more keys":                  {ofLabels, "selector: {matchLabels: {app: web, tier: x}}", false},
		"In, In with a value":        {expression("a", "In", "x", "v"), expression("a", "In", "v", "z"), true},
		"In, In without":             {expression("a", "In", "x", "v"), expression("a", "In", "z"), false},
		"In, NotIn of all":           {expression("a", "In", "x", "v"), expression("a", "NotIn", "x", "v", "z"), false},
		"In, NotIn of some":          {expression("a", "In", "x", "v"), expression("a", "NotIn", "x"), true},
		"Exists, In":                 {expression("a", "Exists"), expression("a", "In", "x"), true},
		"Exists, NotIn":              {expression("a", "Exists"), expression("a", "NotIn", "x"), true},
		"Exists, Exists":             {expression("a", "Exists"), expression("a", "Exists"), true},
		"Exists, DoesNotExist":       {expression("a", "Exists"), expression("a", "DoesNotExist"), false},
		"In, DoesNotExist":           {expression("a", "In", "x"), expression("a", "DoesNotExist"), false},
		"NotIn, NotIn":               {expression("a", "NotIn", "x"), expression("a", "NotIn", "v"), true},
		"NotIn, DoesNotExist":        {expression("a", "NotIn", "x"), expression("a", "DoesNotExist"), true},
		"DoesNotExist, DoesNotExist": {expression("a", "DoesNotExist"), expression("a", "DoesNotExist"), true},
		"one key of two excludes":    {"selector: {matchLabels: {a: x, b: v}}", "selector: {matchLabels: {a: x, b: z}}", false},
		"the other one is invalid":   {ofLabels, expression("app", "Near", "web"), false},
		"the other one selects in vain": {ofLabels,
			"selector: {matchLabels: {app: web}, matchExpressions: [{key: app, operator: DoesNotExist}]}", false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, pair := range [][2]string{{test.a, test.b}, {test.b, test.a}} {
				if strings.Contains(pair[0], "Near") {
					continue
				}
				other := budget(t, "{metadata: {name: other}, "+spec(pair[1], "maxUnavailable: 1")[1:])
				written := budget(t, spec(pair[0], "maxUnavailable: 1"))
				errs := Validate(written, nil, []policyv1beta1.PodUnavailableBudget{*written, *other})
				if got := len(errs) > 0; got != test.want {
					t.Errorf("%s with %s: refused: got %t, want %t: %v", pair[0], pair[1], got, test.want, errs)
				} else if got && (len(errs) > 1 || errs[0].Type != field.ErrorTypeInvalid) {
					t.Errorf("%s with %s: got %v, want one that is invalid", pair[0], pair[1], errs)
				} else if got && !strings.Contains(errs[0].Detail, "PodUnavailableBudget other ") {
					t.Errorf("%s with %s: got %v, want the other in it", pair[0], pair[1], errs)
				}
				other.DeletionTimestamp = &metav1.Time{}
				if errs := Validate(written, nil, []policyv1beta1.PodUnavailableBudget{*other}); len(errs) > 0 {
					t.Errorf("with one that is being deleted: %v", errs)
				}
			}
		})
	}
}

// PUB-029: selectors of the same keys overlap exactly if a pod of a small world matches both; others never
// do.
func TestOverlapIsThatOfAWorld(t *testing.T) {
	all, values := []string{"a", "b"}, []string{"x", "y"}
	requirement := rapid.Custom(func(t *rapid.T) metav1.LabelSelectorRequirement {
		r := metav1.LabelSelectorRequirement{Key: rapid.SampledFrom(all).Draw(t, "key"),
			Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"}).Draw(t, "operator")}
		if r.Operator == "In" || r.Operator == "NotIn" {
			r.Values = rapid.SliceOfNDistinct(rapid.SampledFrom(values), 1, 2, rapid.ID[string]).Draw(t, "values")
		}
		return r
	})
	any := rapid.Custom(func(t *rapid.T) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: rapid.MapOfN(rapid.SampledFrom(all), rapid.SampledFrom(values), 0, 2).Draw(t, "labels"),
			MatchExpressions: rapid.SliceOfN(requirement, 0, 2).Draw(t, "expressions")}
	})
	var world []labels.Set
	for _, a := range []string{"", "x", "y", "z"} {
		for _, b := range []string{"", "x", "y", "z"} {
			pod := labels.Set{"a": a, "b": b}
			for key, value := range pod {
				if value == "" {
					delete(pod, key)
				}
			}
			world = append(world, pod)
		}
	}
	named := func(s *metav1.LabelSelector) string {
		names := slices.Collect(func(yield func(string) bool) {
			for key := range s.MatchLabels {
				if !yield(key) {
					return
				}
			}
			for _, e := range s.MatchExpressions {
				if !yield(e.Key) {
					return
				}
			}
		})
		slices.Sort(names)
		return strings.Join(slices.Compact(names), " ")
	}
	rapid.Check(t, func(t *rapid.T) {
		one, two := any.Draw(t, "one"), any.Draw(t, "two")
		if fieldcheck.SelectorTerms(one) == 0 {
			t.Skip("refused before")
		}
		first, err := metav1.LabelSelectorAsSelector(one)
		if err != nil {
			t.Fatal(err)
		}
		second, err := metav1.LabelSelectorAsSelector(two)
		if err != nil {
			t.Fatal(err)
		}
		want := named(one) == named(two) &&
			slices.ContainsFunc(world, func(pod labels.Set) bool { return first.Matches(pod) && second.Matches(pod) })
		of := func(name string, selector *metav1.LabelSelector) policyv1beta1.PodUnavailableBudget {
			b := policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Name: name}}
			b.Spec.Selector = selector
			return b
		}
		written := of("one", one)
		errs := validateOverlap(&written, []policyv1beta1.PodUnavailableBudget{of("two", two)}, field.NewPath("spec"))
		if len(errs) > 0 != want {
			t.Fatalf("overlap %t: %v", want, errs)
		}
	})
}

// PUB-012, PUB-013: a field wins over its annotation, which wins over the default; v1alpha1 has annotations
// alone.
func TestWhatFieldsAndAnnotationsSay(t *testing.T) {
	defaults := []policyv1beta1.PodUnavailableBudgetOperation{"DELETE", "EVICT", "UPDATE"}
	for text, want := range map[string][]policyv1beta1.PodUnavailableBudgetOperation{
		spec():                                                                   defaults,
		annotated(pub.BudgetOperations, ""):                                      defaults,
		annotated(pub.BudgetOperations, " , ,"):                                  defaults,
		annotated(pub.BudgetOperations, "RESIZE,X"):                              defaults, // admission refuses it
		annotated(pub.BudgetOperations, "RESIZE , EVICT"):                        {"EVICT", "RESIZE"},
		annotated(pub.BudgetOperations, "RESIZE", "protectOperations: []"):       {"RESIZE"},
		annotated(pub.BudgetOperations, "RESIZE", "protectOperations: [DELETE]"): {"DELETE"},
		spec("protectOperations: [DELETE, RESIZE, UPDATE, EVICT]"):               {"DELETE", "EVICT", "RESIZE", "UPDATE"},
	} {
		if diff := cmp.Diff(want, sets.List(Operations(budget(t, text)))); diff != "" {
			t.Errorf("%s: operations (-want +got):\n%s", text, diff)
		}
	}
	for text, want := range map[string]int32{
		spec():                                  0,
		spec("protectTotalReplicas: 7"):         7,
		annotated(pub.BudgetTotalReplicas, "5"): 5,
		annotated(pub.BudgetTotalReplicas, "5", "protectTotalReplicas: 7"): 7,
		annotated(pub.BudgetTotalReplicas, "many"):                         0,
		annotated(pub.BudgetTotalReplicas, "0"):                            0,
	} {
		got, set := TotalOverride(budget(t, text))
		if got != want {
			t.Errorf("%s: total of the annotation: got %d, want %d", text, got, want)
		}
		if set != (want > 0) {
			t.Errorf("%s: set: got %t, want %t", text, set, want > 0)
		}
	}
}

// PUB-012 (part), PUB-013 (part), PUB-050 (part), PUB-051 (part): who writes a budget is told that it never
// allows anything, and which annotations decide.
func TestWarnings(t *testing.T) {
	const most, least = "spec.maxUnavailable: ", "spec.minAvailable: "
	for text, want := range map[string][]string{
		spec("maxUnavailable: 0"):                                     {most + "0"},
		spec("maxUnavailable: 0%"):                                    {most + "0%"},
		spec("maxUnavailable: 1"):                                     nil,
		spec("maxUnavailable: 1%"):                                    nil, // rounded up
		spec("minAvailable: 100%"):                                    {least + "100%"},
		spec("minAvailable: 99%"):                                     nil,
		spec("minAvailable: 0"):                                       nil,
		spec("minAvailable: 0%"):                                      nil,
		spec("minAvailable: 100000"):                                  nil, // the workload may grow
		spec("minAvailable: 5", "protectTotalReplicas: 4"):            {least + "5"},
		spec("minAvailable: 4", "protectTotalReplicas: 4"):            {least + "4"},
		spec("minAvailable: 3", "protectTotalReplicas: 4"):            nil,
		spec("minAvailable: 75%", "protectTotalReplicas: 4"):          nil,
		spec("minAvailable: 76%", "protectTotalReplicas: 4"):          {least + "76%"}, // rounded up
		spec("minAvailable: 98%", "protectTotalReplicas: 2147483647"): nil,
		annotated(pub.BudgetTotalReplicas, "4", "minAvailable: 4"):    {least + "4", "annotation pub.kruise.io/protect-total-replicas"},
		annotated(pub.BudgetOperations, "EVICT", "maxUnavailable: 1"): {"annotation kruise.io/pub-protect-operations"},
		annotated(pub.BudgetOperations, "EVICT", "maxUnavailable: 1", "protectOperations: [DELETE]"): nil,
		annotated(pub.BudgetOperations, ",", "maxUnavailable: 1"):                                    nil,
	} {
		got := Warnings(budget(t, text))
		if len(got) != len(want) {
			t.Errorf("warnings for %s: got %q, want %q", text, got, want)
			continue
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]+" ") {
				t.Errorf("%s: result: got %q, want it to begin with %q\n%v", text, got[i], want[i]+" ", got)
			}
		}
	}
}
