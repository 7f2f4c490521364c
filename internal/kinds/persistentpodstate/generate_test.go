package persistentpodstate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
)

// asking is a workload that asks for a PersistentPodState.
func asking(change func(map[string]string)) *Workload {
	annotated := map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.RequiredPersistentTopology: " zone , ,rack",
		pub.PreferredPersistentTopology: "host", pub.PersistentPodAnnotations: "ip, mac"}
	if change != nil {
		change(annotated)
	}
	return &Workload{Reference: Reference{GroupKind: workloadkind.AdvancedStatefulSet, Name: "web"}, APIVersion: "apps.kruise.io/v1beta1", UID: "now", Annotations: annotated}
}

// generated is what is kept for asking.
func generated(change func(*appsv1beta1.PersistentPodState)) *appsv1beta1.PersistentPodState {
	o := Generate(&Asked{Workload: asking(nil)}).Create.DeepCopy()
	if change != nil {
		change(o)
	}
	return o
}

// PPS-070, PPS-071, PPS-072: what is generated, for which annotations, and for each kind of workload.
func TestWhatIsGenerated(t *testing.T) {
	want := &appsv1beta1.PersistentPodState{ObjectMeta: metav1.ObjectMeta{Name: "web",
		Annotations:     map[string]string{pub.GeneratedPersistentPodState: "StatefulSet.apps.kruise.io/web"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Name: "web", UID: "now", Controller: new(true)}}}}
	want.Spec.TargetRef = appsv1beta1.PersistentPodStateTarget{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Name: "web"}
	want.Spec.RequiredPersistentTopology = &appsv1beta1.NodeTopologyTerm{Keys: []string{"zone", "rack"}}
	want.Spec.PreferredPersistentTopology = []appsv1beta1.PreferredTopologyTerm{{Weight: 100, Preference: appsv1beta1.NodeTopologyTerm{Keys: []string{"host", "row"}}}}
	want.Spec.PersistentPodAnnotations = []appsv1beta1.PersistentPodAnnotation{{Key: "ip"}, {Key: "mac"}}
	if want.OwnerReferences[0].BlockOwnerDeletion != nil {
		t.Fatal("it would hold up the deletion of its workload")
	}
	several := func(a map[string]string) { a[pub.PreferredPersistentTopology] = "host,, row " }
	if diff := cmp.Diff(Generation{Create: want}, Generate(&Asked{Workload: asking(several)})); diff != "" {
		t.Errorf("Generate(&Asked{Workload: asking(several)}) (-want +got):\n%s", diff)
	}
	for name, test := range map[string]struct {
		auto, required, preferred string
		want                      bool
	}{
		"both":               {"true", "zone", "host", true},
		"a must alone":       {"true", "zone", "", true},
		"a preference alone": {"true", "", "host", true},
		"no topology":        {"true", "", "", false},
		"not asked for":      {"", "zone", "host", false},
		"False":              {"false", "zone", "host", false},
		"another spelling":   {"True", "zone", "host", false},
		"1":                  {"1", "zone", "host", false},
	} {
		annotated := map[string]string{}
		for key, value := range map[string]string{pub.AutoGeneratePersistentPodState: test.auto, pub.RequiredPersistentTopology: test.required, pub.PreferredPersistentTopology: test.preferred} {
			if value != "" {
				annotated[key] = value
			}
		}
		for kind, version := range map[schema.GroupKind]string{workloadkind.StatefulSet: "apps/v1", workloadkind.AdvancedStatefulSet: "apps.kruise.io/v1beta1", {Group: "games.example.com", Kind: "Game"}: "games.example.com/v2"} {
			workload := &Workload{Reference: Reference{GroupKind: kind, Name: "web"}, APIVersion: version, UID: "now", Annotations: annotated}
			g := Generate(&Asked{Workload: workload})
			if (g.Create != nil) != test.want {
				t.Errorf("%s, %s: g.Create != nil: got %t, want %t\n%+v", name, kind, g.Create != nil, test.want, g)
			}
			if g.Create == nil {
				continue
			}
			owner := metav1.OwnerReference{APIVersion: version, Kind: kind.Kind, Name: "web", UID: "now", Controller: new(true)}
			target := appsv1beta1.PersistentPodStateTarget{APIVersion: version, Kind: kind.Kind, Name: "web"}
			if g.Create.Name != "web" {
				t.Errorf("%s, %s: g.Create.Name: got %q, want %q\n%+v", name, kind, g.Create.Name, "web", g.Create)
			}
			if g.Create.Spec.TargetRef != target {
				t.Errorf("%s, %s: g.Create.Spec.TargetRef: got %+v, want %+v\n%+v", name, kind, g.Create.Spec.TargetRef, target, g.Create)
			}
			if got := cmp.Diff([]metav1.OwnerReference{owner}, g.Create.OwnerReferences); got != "" {
				t.Errorf("%s, %s: cmp.Diff([]metav1.OwnerReference{owner}, g.Create.OwnerReferences): got %q, want %q\n%+v", name, kind, got, "",
					g.Create)
			}
			if (g.Create.Spec.RequiredPersistentTopology != nil) != (test.required != "") {
				t.Errorf("%s, %s: g.Create.Spec.RequiredPersistentTopology != nil: got %t, want %t\n%+v", name, kind,
					g.Create.Spec.RequiredPersistentTopology != nil, test.required != "", g.Create.Spec)
			} else if len(g.Create.Spec.PreferredPersistentTopology) != len(test.preferred)/len("host") {
				t.Errorf("%s, %s: len(g.Create.Spec.PreferredPersistentTopology): got %d, want %d\n%+v", name, kind,
					len(g.Create.Spec.PreferredPersistentTopology), len(test.preferred)/len("host"), g.Create.Spec)
			}
		}
	}
}

// PPS-073 (part): all annotations that say what is generated ask for another look.
func TestAnnotationsThatAskForAnotherLook(t *testing.T) {
	a := asking(nil).Annotations
	for _, key := range annotations {
		b := asking(func(b map[string]string) { b[key] = "x" }).Annotations
		if SameAsked(a, b) {
			t.Errorf("SameAsked(a, b): got true, want false; %s does not matter", key)
		}
		if !SameAsked(b, b) {
			t.Errorf("SameAsked(b, b): got false, want true; %s does not matter", key)
		}
	}
}

// PPS-074, PPS-075, PPS-076, PPS-077, PPS-078, PPS-079, PPS-100, PPS-108 (part): what becomes of what is
// there.
func TestWhatBecomesOfWhatIsThere(t *testing.T) {
	owned := func(kind, name string) func(*appsv1beta1.PersistentPodState) {
		return func(o *appsv1beta1.PersistentPodState) {
			o.OwnerReferences[0].Kind, o.OwnerReferences[0].Name, o.OwnerReferences[0].UID = kind, name, "former"
			o.Status.PodStates = entries{"web-0": on("a")}
		}
	}
	orphaned := func(o *appsv1beta1.PersistentPodState) {
		o.OwnerReferences, o.Status.PodStates = nil, entries{"web-0": on("a")}
	}
	changed := func(s *appsv1beta1.PersistentPodState) {
		s.Spec.RequiredPersistentTopology = nil
		s.Spec.PersistentPodAnnotations = nil
		s.Spec.PersistentPodStateRetentionPolicy = appsv1beta1.RetainWhenDeleted
	}
	without := func(keys ...string) func(map[string]string) {
		return func(a map[string]string) {
			for _, key := range keys {
				delete(a, key)
			}
		}
	}
	set := func(key, value string) func(map[string]string) { return func(a map[string]string) { a[key] = value } }
	byHand := state(func(s *appsv1beta1.PersistentPodState) { s.Name = "web" })
	other := state(func(s *appsv1beta1.PersistentPodState) { s.Name = "by-hand" })
	now := metav1.Now()
	policy := func(policy appsv1beta1.PersistentPodStateRetentionPolicyType) *appsv1beta1.PersistentPodState {
		return generated(func(o *appsv1beta1.PersistentPodState) { o.Spec.PersistentPodStateRetentionPolicy = policy })
	}
	for name, test := range map[string]struct {
		workload *Workload
		object   *appsv1beta1.PersistentPodState
		others   []*appsv1beta1.PersistentPodState
		kept     bool
		want     string
		spec     *appsv1beta1.PersistentPodState
	}{
		"it is there":                          {workload: asking(nil), object: generated(nil)},
		"it was changed, the policy is kept":   {workload: asking(nil), object: generated(changed), want: "update", spec: policy("WhenDeleted")},
		"the annotation says the policy":       {workload: asking(set(pub.PersistentPodStateRetentionPolicy, "WhenScaled")), object: generated(changed), want: "update", spec: policy("WhenScaled")},
		"the annotation of the policy is none": {workload: asking(set(pub.PersistentPodStateRetentionPolicy, "Never")), object: generated(changed), want: "invalid"},
		"annotations of pods change":           {workload: asking(without(pub.PersistentPodAnnotations)), object: generated(nil), want: "update"},
		"a key that is none":                   {workload: asking(set(pub.RequiredPersistentTopology, "a b")), want: "invalid"},
		"too many keys":                        {workload: asking(set(pub.RequiredPersistentTopology, strings.Repeat("k,", 40))), want: "invalid"},
		"both topologies are empty": {workload: asking(func(a map[string]string) {
			a[pub.RequiredPersistentTopology], a[pub.PreferredPersistentTopology] = " ,", ""
		}), object: generated(nil)},
		"both topologies are empty, nothing there": {workload: asking(without(pub.RequiredPersistentTopology, pub.PreferredPersistentTopology))},
		"it is not asked for any more":             {workload: asking(without(pub.AutoGeneratePersistentPodState)), object: generated(nil), want: "delete"},
		"it is asked for in another way":           {workload: asking(set(pub.AutoGeneratePersistentPodState, "True")), object: generated(nil), want: "delete"},
		"not asked for, and by hand":               {workload: asking(without(pub.AutoGeneratePersistentPodState)), object: byHand},
		"not asked for, and of an earlier one":     {workload: asking(without(pub.AutoGeneratePersistentPodState)), object: generated(owned("StatefulSet", "web"))},
		"by hand":                                  {workload: asking(nil), object: byHand, want: "conflict"},
		"by hand, with other names":                {workload: asking(nil), others: []*appsv1beta1.PersistentPodState{other}, want: "conflict"},
		"of another workload":                      {workload: asking(nil), object: generated(owned("StatefulSet", "db")), want: "conflict"},
		"of another kind":                          {workload: asking(nil), object: generated(owned("Game", "web")), want: "conflict"},
		"of an earlier workload":                   {workload: asking(nil), object: generated(owned("StatefulSet", "web")), want: "empty update"},
		"of an earlier workload, with its pods":    {workload: asking(nil), object: generated(owned("StatefulSet", "web")), kept: true, want: "update"},
		"orphaned":                                 {workload: asking(nil), object: generated(orphaned), want: "empty update"},
		"orphaned with the pods":                   {workload: asking(nil), object: generated(orphaned), kept: true, want: "update"},
		"one of other releases without the mark":   {workload: asking(nil), object: generated(func(o *appsv1beta1.PersistentPodState) { o.Annotations = nil }), want: "update"},
		"it is being deleted":                      {workload: asking(nil), object: generated(func(o *appsv1beta1.PersistentPodState) { o.DeletionTimestamp = &now })},
		"the workload is being deleted":            {workload: func() *Workload { w := asking(nil); w.Terminating = true; return w }()},
	} {
		t.Run(name, func(t *testing.T) {
			g := Generate(&Asked{Workload: test.workload, Object: test.object, Others: test.others, Kept: test.kept})
			var does []string
			for what, is := range map[string]bool{"create": g.Create != nil, "delete": g.Delete, "conflict": g.Conflict != "", "invalid": g.Invalid != ""} {
				if is {
					does = append(does, what)
				}
			}
			if g.Empty {
				does = append(does, "empty")
			}
			if g.Update != nil {
				does = append(does, "update")
				if owner := metav1.GetControllerOf(g.Update); owner == nil {
					t.Errorf("metav1.GetControllerOf(g.Update): got nil, want a value\n%+v", g.Update)
				} else if owner.UID != "now" {
					t.Errorf("uid: got %q, want %q\n%+v", owner.UID, "now", g.Update)
				} else if len(g.Update.OwnerReferences) != 1 {
					t.Errorf("len(g.Update.OwnerReferences): got %d, want 1\n%+v", len(g.Update.OwnerReferences), g.Update)
				} else if g.Update.Annotations[pub.GeneratedPersistentPodState] == "" {
					t.Errorf("g.Update.Annotations[pub.GeneratedPersistentPodState]: got nothing, want some text\n%+v", g.Update)
				}
				again := Generate(&Asked{Workload: test.workload, Object: g.Update, Kept: test.kept})
				if diff := cmp.Diff(Generation{}, again); diff != "" {
					t.Errorf("again (-want +got):\n%s", diff)
				}
			}
			if got := strings.Join(does, " "); got != test.want {
				t.Errorf("does: got %q, want %q\n%+v", got, test.want, g)
			}
			if test.spec != nil && cmp.Diff(test.spec.Spec, g.Update.Spec) != "" {
				t.Errorf("spec that is written (-want +got):\n%s", cmp.Diff(test.spec.Spec, g.Update.Spec))
			}
		})
	}
}

// PPS-077 (part): a controller whose objects are of a listed kind made one for its StatefulSet, as its own;
// it was deleted whenever it was there.
func TestWhatAnOperatorMadeForItsStatefulSetWasDeleted(t *testing.T) {
	operator := asking(func(a map[string]string) { clear(a) })
	operator.GroupKind, operator.APIVersion = schema.GroupKind{Group: "games.example.com", Kind: "Game"}, "games.example.com/v1"
	made := generated(func(o *appsv1beta1.PersistentPodState) { // of StatefulSet web
		o.Annotations, o.OwnerReferences[0].APIVersion, o.OwnerReferences[0].Kind = nil, "games.example.com/v1", "Game"
	})
	g := Generate(&Asked{Workload: operator, Object: made})
	if g.Delete {
		t.Errorf("delete: got true, want false\n%+v", g)
	}
	if g.Update != nil {
		t.Errorf("update: got %+v, want nil\n%+v", g.Update, g)
	}
}
