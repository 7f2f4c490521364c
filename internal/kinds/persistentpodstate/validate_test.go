package persistentpodstate

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

// state is a valid PersistentPodState of StatefulSet web of Kubernetes.
func state(change func(*appsv1beta1.PersistentPodState)) *appsv1beta1.PersistentPodState {
	s := &appsv1beta1.PersistentPodState{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "places"}}
	s.Spec.TargetRef = appsv1beta1.PersistentPodStateTarget{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web"}
	s.Spec.RequiredPersistentTopology = &appsv1beta1.NodeTopologyTerm{Keys: []string{"zone"}}
	s.Spec.PreferredPersistentTopology = []appsv1beta1.PreferredTopologyTerm{{Weight: 80, Preference: appsv1beta1.NodeTopologyTerm{Keys: []string{"host"}}}}
	if change != nil {
		change(s)
	}
	return s
}

// PPS-010 (part), PPS-011 (part), PPS-012 (part), PPS-013 (part), PPS-020, PPS-021, PPS-022, PPS-023,
// PPS-024, PPS-025, PPS-026, PPS-027: what is refused, at which field, and what is not. All faults are told
// together.
func TestValidate(t *testing.T) {
	listed, err := workloadspread.ParseListAt(AllowListKey, `{"workloads":[{"group":"games.example.com","VERSION":"v1","Kind":"Game"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	target := func(apiVersion, kind, name string) func(*appsv1beta1.PersistentPodState) {
		return func(s *appsv1beta1.PersistentPodState) {
			s.Spec.TargetRef = appsv1beta1.PersistentPodStateTarget{APIVersion: apiVersion, Kind: kind, Name: name}
		}
	}
	required := func(keys ...string) func(*appsv1beta1.PersistentPodState) {
		return func(s *appsv1beta1.PersistentPodState) { s.Spec.RequiredPersistentTopology.Keys = keys }
	}
	weight := func(weight int32) func(*appsv1beta1.PersistentPodState) {
		return func(s *appsv1beta1.PersistentPodState) { s.Spec.PreferredPersistentTopology[0].Weight = weight }
	}
	policy := func(policy appsv1beta1.PersistentPodStateRetentionPolicyType) func(*appsv1beta1.PersistentPodState) {
		return func(s *appsv1beta1.PersistentPodState) { s.Spec.PersistentPodStateRetentionPolicy = policy }
	}
	annotated := func(keys ...string) func(*appsv1beta1.PersistentPodState) {
		return func(s *appsv1beta1.PersistentPodState) {
			for _, key := range keys {
				s.Spec.PersistentPodAnnotations = append(s.Spec.PersistentPodAnnotations, appsv1beta1.PersistentPodAnnotation{Key: key})
			}
		}
	}
	other := func(change func(*appsv1beta1.PersistentPodState)) *appsv1beta1.PersistentPodState {
		return state(func(s *appsv1beta1.PersistentPodState) {
			s.Name = "other"
			change(s)
		})
	}
	many := strings.Split(strings.Repeat("k ", 40), " ")[:40]
	now := metav1.Now()
	for name, test := range map[string]struct {
		change func(*appsv1beta1.PersistentPodState)
		old    *appsv1beta1.PersistentPodState
		other  *appsv1beta1.PersistentPodState
		errors []string
		list   error
	}{
		"all is well": {},
		"an Advanced StatefulSet, whatever the version": {change: target("apps.kruise.io/v1alpha1", "StatefulSet", "web")},
		"a listed kind": {change: target("games.example.com/v7", "Game", "web")},
		"the list cannot be read, and is not needed": {list: errors.New("broken")},
		"the list cannot be read": {change: target("games.example.com/v1", "Game", "web"), list: errors.New("broken"),
			errors: []string{"InternalError spec.targetRef"}},
		"a kind that is not listed":      {change: target("games.example.com/v1", "Match", "web"), errors: []string{"FieldValueInvalid spec.targetRef"}},
		"a StatefulSet of another group": {change: target("x.example.com/v1", "StatefulSet", "web"), errors: []string{"FieldValueInvalid spec.targetRef"}},
		"a Deployment":                   {change: target("apps/v1", "Deployment", "web"), errors: []string{"FieldValueInvalid spec.targetRef"}},
		"no version":                     {change: target("", "StatefulSet", "web"), errors: []string{"FieldValueInvalid spec.targetRef"}},
		"no kind":                        {change: target("apps/v1", "", "web"), errors: []string{"FieldValueInvalid spec.targetRef"}},
		"no name":                        {change: target("apps/v1", "StatefulSet", ""), errors: []string{"FieldValueInvalid spec.targetRef"}},
		"a version that is none":         {change: target("a/b/c", "StatefulSet", "web"), errors: []string{"FieldValueInvalid spec.targetRef"}},
		"the version alone changes":      {change: target("apps/v2", "StatefulSet", "web"), old: state(nil)},
		"another name":                   {change: target("apps/v1", "StatefulSet", "db"), old: state(nil), errors: []string{"FieldValueForbidden spec.targetRef"}},
		"another group":                  {change: target("apps.kruise.io/v1", "StatefulSet", "web"), old: state(nil), errors: []string{"FieldValueForbidden spec.targetRef"}},
		"all but the target may change":  {change: policy("WhenDeleted"), old: state(annotated("a"))},
		"another one is of the workload": {other: other(func(*appsv1beta1.PersistentPodState) {}), errors: []string{"FieldValueInvalid spec.targetRef"}},
		"another one of the other group": {other: other(target("apps.kruise.io/v1beta1", "StatefulSet", "web"))},
		"another one that is leaving":    {other: other(func(s *appsv1beta1.PersistentPodState) { s.DeletionTimestamp = &now })},
		"no topology": {change: func(s *appsv1beta1.PersistentPodState) {
			s.Spec.RequiredPersistentTopology, s.Spec.PreferredPersistentTopology = nil, nil
		}, errors: []string{"FieldValueInvalid spec"}},
		"no keys":                              {change: required(), errors: []string{"FieldValueInvalid spec.requiredPersistentTopology.keys"}},
		"an empty key":                         {change: required("zone", ""), errors: []string{"FieldValueInvalid spec.requiredPersistentTopology.keys[1]"}},
		"a key with blanks":                    {change: required(" zone"), errors: []string{"FieldValueInvalid spec.requiredPersistentTopology.keys[0]"}},
		"two keys in one":                      {change: required("zone,host"), errors: []string{"FieldValueInvalid spec.requiredPersistentTopology.keys[0]"}},
		"preferences without keys":             {change: func(s *appsv1beta1.PersistentPodState) { s.Spec.PreferredPersistentTopology[0].Preference.Keys = nil }, errors: []string{"FieldValueInvalid spec.preferredPersistentTopology[0].preference.keys"}},
		"more keys than are remembered":        {change: required(many...), errors: []string{"FieldValueTooMany spec"}},
		"the least weight":                     {change: weight(1)},
		"the greatest weight":                  {change: weight(100)},
		"no weight":                            {change: weight(0), errors: []string{"FieldValueInvalid spec.preferredPersistentTopology[0].weight"}},
		"too much weight":                      {change: weight(101), errors: []string{"FieldValueInvalid spec.preferredPersistentTopology[0].weight"}},
		"a policy":                             {change: policy("WhenScaled")},
		"a policy that is none":                {change: policy("Never"), errors: []string{"FieldValueNotSupported spec.persistentPodStateRetentionPolicy"}},
		"an empty annotation":                  {change: annotated("a", ""), errors: []string{"FieldValueInvalid spec.persistentPodAnnotations[1].key"}},
		"more annotations than are remembered": {change: annotated(many[:20]...), errors: []string{"FieldValueTooMany spec.persistentPodAnnotations"}},
		"several faults": {change: func(s *appsv1beta1.PersistentPodState) {
			required("")(s)
			weight(0)(s)
			policy("x")(s)
		}, errors: []string{"FieldValueInvalid spec.requiredPersistentTopology.keys[0]", "FieldValueInvalid spec.preferredPersistentTopology[0].weight",
			"FieldValueNotSupported spec.persistentPodStateRetentionPolicy"}},
	} {
		t.Run(name, func(t *testing.T) {
			env := Environment{Listed: listed, ListError: test.list}
			if test.other != nil {
				env.Others = append(env.Others, test.other, state(nil))
			}
			var got []string
			for _, err := range Validate(state(test.change), test.old, env) {
				if at := string(err.Type) + " " + err.Field; len(got) == 0 || got[len(got)-1] != at {
					got = append(got, at)
				}
				if test.other != nil && !strings.Contains(err.Detail, "other") {
					t.Errorf("detail: got %q, want it to contain %q\n%v", err.Detail, "other", err)
				}
			}
			if diff := cmp.Diff(test.errors, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

// PPS-026 (part), PPS-030 (part): of two that were made at the same time one acts, the same one for
// everybody; none that is being deleted.
func TestOneActsForAWorkload(t *testing.T) {
	at := func(name string, second int64, leaving bool) *appsv1beta1.PersistentPodState {
		return state(func(s *appsv1beta1.PersistentPodState) {
			s.Name, s.CreationTimestamp = name, metav1.Unix(second, 0)
			if leaving {
				s.DeletionTimestamp = &s.CreationTimestamp
			}
		})
	}
	a, b, c, gone := at("a", 2, false), at("b", 1, false), at("c", 1, false), at("d", 0, true)
	for _, states := range [][]*appsv1beta1.PersistentPodState{{a, b, c, gone}, {gone, c, b, a}, {b}} {
		if of := Of(TargetOf(a), states); of != b {
			t.Errorf("Of(TargetOf(a), states): got %+v, want %+v", of, b)
		}
	}
	if of := Of(Reference{GroupKind: workloadkind.AdvancedStatefulSet, Name: "web"}, []*appsv1beta1.PersistentPodState{a, b}); of != nil {
		t.Errorf("of: got %+v, want nil", of)
	}
}
