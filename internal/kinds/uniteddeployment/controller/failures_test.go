package controller

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
	"github.com/afloat-project/afloat/internal/simulation"
)

func TestASelectorThatMatchesNoChild(t *testing.T) {
	kind := uniteddeployment.CloneSet
	u := united(t, kind, 3, "a")
	if err := json.Unmarshal([]byte(`{"cloneSetTemplate":{"spec":{"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":"one"}]}}}}}`), &u.Spec.Template); err != nil {
		t.Fatal(err)
	}
	u.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web"}}}}
	w := newWorld(t, 1, []uniteddeployment.Kind{kind}, u)
	w.rest()
	if n := len(w.children()); n > 0 {
		t.Errorf("%d children are made: %s", n, w.describe())
	}
	if c := conditionOf(w.united(), appsv1beta1.SubsetUpdated); c == nil {
		t.Error("the condition does not say why: condition about updated subsets: got nil, want a value")
	} else if c.Status != corev1.ConditionFalse {
		t.Errorf("the condition does not say why: status: got %q, want %q\n%v", c.Status, corev1.ConditionFalse, c)
	} else if !strings.Contains(c.Message, "spec.selector") {
		t.Errorf("the condition does not say why: message: got %q, want it to contain %q\n%v", c.Message,
			"spec.selector", c)
	}
}

func conditionOf(u *appsv1beta1.UnitedDeployment, of appsv1beta1.UnitedDeploymentConditionType) *appsv1beta1.UnitedDeploymentCondition {
	for i := range u.Status.Conditions {
		if u.Status.Conditions[i].Type == of {
			return &u.Status.Conditions[i]
		}
	}
	return nil
}

func TestARefusedSubsetHoldsUpNoOther(t *testing.T) {
	for _, verb := range []string{"create", "patch"} {
		kind := uniteddeployment.Deployment
		w := newWorld(t, 1, []uniteddeployment.Kind{kind}, united(t, kind, 3, "a", "b", "c"))
		refused := func(write simulation.Write) bool {
			return write.Verb == verb && strings.HasPrefix(write.Key.Name, "web-a-") && write.Key.Kind == kind.Name()
		}
		if verb == "patch" {
			w.rest()
			w.Edit(func(u *appsv1beta1.UnitedDeployment) { u.Spec.Replicas = new(int32(9)) })
		}
		w.Refused = refused
		w.rest()
		got, want := w.split(), *w.united().Spec.Replicas/3
		if got[1] != want || got[2] != want {
			t.Errorf("%s: subsets have %v, want %d each", verb, got, want)
		}
		if c := conditionOf(w.united(), map[string]appsv1beta1.UnitedDeploymentConditionType{"create": appsv1beta1.SubsetProvisioned,
			"patch": appsv1beta1.SubsetUpdated}[verb]); c == nil {
			t.Errorf("%s: c: got nil, want a value", verb)
		} else if c.Status != corev1.ConditionFalse {
			t.Errorf("%s: status: got %q, want %q; the condition does not tell: %v", verb, c.Status,
				corev1.ConditionFalse, c)
		}
	}
}

func TestMadeAgainWithItsOrphans(t *testing.T) {
	kind := uniteddeployment.CloneSet
	w := newWorld(t, 1, []uniteddeployment.Kind{kind}, united(t, kind, 3, "a", "b", "c"))
	w.rest()
	pods := podNames(w)
	w.still = true
	for _, of := range []string{kind.Name(), "ControllerRevision"} {
		for _, o := range w.List(of, false) {
			w.Change(w.KeyOf(of, o), func(o client.Object) { o.SetOwnerReferences(nil) })
		}
	}
	w.Remove(key)
	w.quiet()
	w.Store(key, united(t, kind, 3, "a", "b", "c"))
	w.still = false
	w.rest()
	if after := podNames(w); !slices.Equal(pods, after) {
		t.Errorf("pods %v became %v\n%s", pods, after, w.describe())
	}
	for _, o := range w.List("ControllerRevision", false) {
		if uniteddeployment.OwnerOf(o) != w.united().UID {
			t.Errorf("revision %s has no owner", o.GetName())
		}
	}
}

func podNames(w *world) (names []string) {
	for _, o := range w.List("Pod", false) {
		names = append(names, o.GetName())
	}
	return names
}

func TestChildrenWithoutSubsetAreToldOnce(t *testing.T) {
	kind := uniteddeployment.Deployment
	w := newWorld(t, 1, []uniteddeployment.Kind{kind}, united(t, kind, 2, "a", "b"))
	w.rest()
	for _, name := range []string{"x", "y", "z"} {
		o := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{uniteddeployment.OwnerReference(w.united())}}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(0))}}
		w.Store(w.KeyOf(kind.Name(), o), o)
	}
	for range 5 {
		w.Queue.Add()
		w.rest()
	}
	told := slices.DeleteFunc(slices.Clone(w.Recorded), func(text string) bool { return !strings.Contains(text, uniteddeployment.EventWithoutSubset) })
	if len(told) != 1 {
		t.Errorf("told %d times: %v", len(told), told)
	}
}

func TestRefusedNumbersForgetNothing(t *testing.T) {
	for _, reserve := range []bool{false, true} {
		kind := uniteddeployment.Deployment
		u := united(t, kind, 4, "a", "b")
		u.Spec.Topology.Subsets[0].MaxReplicas, u.Spec.Topology.Subsets[0].MinReplicas = number(3), new(intstr.FromString("50%"))
		u.Spec.Topology.ScheduleStrategy = appsv1beta1.UnitedDeploymentScheduleStrategy{Type: "Adaptive",
			Adaptive: &appsv1beta1.AdaptiveUnitedDeploymentStrategy{ReserveUnschedulablePods: reserve}}
		w := newWorld(t, 1, []uniteddeployment.Kind{kind}, u)
		w.room["a"] = 1
		w.quiet()
		w.Pass(31 * time.Second)
		w.Queue.Add()
		w.rest()
		before := w.united().Status.DeepCopy()
		if c := before.SubsetStatuses[0].Conditions; len(c) != 1 {
			t.Fatalf("number of conditions: got %d, want 1\n%s", len(c), w.describe())
		} else if c[0].Status != corev1.ConditionFalse {
			t.Fatalf("status of the first condition: got %q, want %q\n%s", c[0].Status, corev1.ConditionFalse,
				w.describe())
		}
		w.Edit(func(u *appsv1beta1.UnitedDeployment) { u.Spec.Replicas = new(int32(10)) }) // 50 % are more than 3
		w.quiet()
		after := w.united().Status
		if c := after.SubsetStatuses[0].Conditions; len(c) != 1 {
			t.Errorf("number of conditions: got %d, want 1; reserve %t: %v became %v", len(c), reserve,
				before.SubsetStatuses[0].Conditions, c)
		} else if c[0] != before.SubsetStatuses[0].Conditions[0] {
			t.Errorf("first condition: got %+v, want %+v; reserve %t: %v became %v", c[0],
				before.SubsetStatuses[0].Conditions[0], reserve,
				before.SubsetStatuses[0].Conditions, c)
		}
		if after.ReservedPods != before.ReservedPods {
			t.Errorf("reserved pods: got %d, want %d; reserve %t: %d replicas and %d reserved became %d and %d",
				after.ReservedPods,
				before.ReservedPods, reserve, before.Replicas, before.ReservedPods, after.Replicas, after.ReservedPods)
		}
		if after.Replicas != before.Replicas {
			t.Errorf("replicas: got %d, want %d; reserve %t: %d replicas and %d reserved became %d and %d",
				after.Replicas,
				before.Replicas, reserve, before.Replicas, before.ReservedPods, after.Replicas, after.ReservedPods)
		}
	}
}

func TestShortWindowsDoNotWriteForEver(t *testing.T) {
	kind := uniteddeployment.CloneSet
	u := united(t, kind, 4, "a", "b")
	u.Spec.Topology.Subsets[0].MinReplicas = number(3)
	u.Spec.Topology.ScheduleStrategy = appsv1beta1.UnitedDeploymentScheduleStrategy{Type: "Adaptive",
		Adaptive: &appsv1beta1.AdaptiveUnitedDeploymentStrategy{UnschedulableDuration: new(int32(0)), RescheduleCriticalSeconds: new(int32(0))}}
	w := newWorld(t, 1, []uniteddeployment.Kind{kind}, u)
	w.room["a"] = 1
	w.rest()
	writes, begin := len(w.Writes), w.Now()
	for w.Now().Sub(begin) < 10*time.Minute && w.Queue.Wait() {
		w.quiet()
	}
	if n := len(w.Writes) - writes; n > 20 {
		t.Errorf("%d writes in ten minutes", n)
	}
}

func TestAPodSeenBeforeItsReplicaSet(t *testing.T) {
	kind := uniteddeployment.Deployment
	u := united(t, kind, 1, "a", "b")
	u.Spec.Topology.ScheduleStrategy.Type = "Adaptive"
	w := newWorld(t, 1, []uniteddeployment.Kind{kind}, u)
	w.room["a"] = 0
	w.quiet()
	set := w.List("ReplicaSet", false)[0]
	w.still = true
	w.Hide(w.KeyOf("ReplicaSet", set))
	w.Pass(time.Minute)
	w.Queue.Add()
	w.quiet() // without the ReplicaSet it sees no pod
	if got := w.split(); got[0] != 1 {
		t.Fatalf("first result: got %d, want 1\n%s", got[0], w.describe())
	}
	w.Show(w.KeyOf("ReplicaSet", set), set)
	w.delivered(nil, set)
	w.quiet()
	if got := w.split(); got[0] != 0 {
		t.Errorf("the pod is overlooked: first result: got %d, want 0\n%v", got[0], got)
	} else if got[1] != 1 {
		t.Errorf("the pod is overlooked: second result: got %d, want 1\n%v", got[1], got)
	}
}

func TestMaxUnavailableIsRestored(t *testing.T) {
	for _, kind := range []uniteddeployment.Kind{uniteddeployment.Deployment, uniteddeployment.CloneSet} {
		w := newWorld(t, 1, []uniteddeployment.Kind{kind}, united(t, kind, 4, "a"))
		w.rest()
		raised := intstr.FromInt32(4)
		child := w.children()[0]
		w.Change(w.keyOf(child), func(o client.Object) {
			switch o := o.(type) {
			case *appsv1.Deployment:
				o.Spec.Strategy = appsv1.DeploymentStrategy{Type: "RollingUpdate", RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &raised}}
			case *appsv1beta1.CloneSet:
				o.Spec.UpdateStrategy.RollingUpdate = &appsv1beta1.RollingUpdateCloneSetStrategy{MaxUnavailable: &raised}
			}
		})
		w.rest()
		w.Edit(func(u *appsv1beta1.UnitedDeployment) { u.Spec.Template = template(t, kind, "two") })
		w.rest()
		if got := w.children()[0].MaxUnavailable; got == nil {
			t.Errorf("%s: max unavailable of the first of the children: got nil, want a value", kind)
		} else if got.Type != intstr.String {
			t.Errorf("%s: type: got %d, want %d; maxUnavailable is %v", kind, got.Type, intstr.String, got)
		}
	}
}

func TestTheLabelOfTheSubsetIsEdited(t *testing.T) {
	for _, kind := range uniteddeployment.Kinds {
		for _, label := range []string{"b", "", "gone"} {
			w := newWorld(t, 1, []uniteddeployment.Kind{kind}, united(t, kind, 4, "a", "b"))
			w.rest()
			pods := podNames(w)
			w.Change(w.keyOf(w.children()[0]), func(o client.Object) {
				if o.GetLabels()[uniteddeployment.SubsetName] = label; label == "gone" {
					delete(o.GetLabels(), uniteddeployment.SubsetName)
				}
			})
			w.rest()
			if after := podNames(w); !slices.Equal(pods, after) {
				t.Errorf("%s, label %q: pods %v became %v", kind, label, pods, after)
			}
			if got := w.children()[0].Object.GetLabels()[uniteddeployment.SubsetName]; got != "a" {
				t.Errorf("%s, label %q: it is %q now", kind, label, got)
			}
		}
	}
}

// UD-071 (part), UD-174 (part): an image that somebody sets on a child, for all kinds of children, does not
// stay behind a status that says that all is updated. It comes back also if nobody ran when it was set.
func TestAnImageSetByHandOnAChildComesBack(t *testing.T) {
	for _, kind := range uniteddeployment.Kinds {
		w := newWorld(t, 1, []uniteddeployment.Kind{kind}, united(t, kind, 4, "a", "b"))
		w.rest()
		child := w.keyOf(w.children()[0])
		w.Change(child, func(o client.Object) {
			switch o := o.(type) {
			case *appsv1.Deployment:
				o.Spec.Template.Spec.Containers[0].Image = "mine"
			case *appsv1.StatefulSet:
				o.Spec.Template.Spec.Containers[0].Image = "mine"
			case *appsv1beta1.CloneSet:
				edited(t, &o.Spec.Template)
			case *appsv1beta1.StatefulSet:
				edited(t, &o.Spec.Template)
			}
			o.SetGeneration(o.GetGeneration() + 1)
		})
		w.rest()
		text := stored(t, w.Get(child))
		if strings.Contains(text, "mine") {
			t.Errorf("%s: what is stored: got %q, want it not to contain %q", kind, text, "mine")
		}
		if !strings.Contains(text, `"one"`) {
			t.Errorf("%s: what is stored: got %q, want it to contain %q", kind, text, `"one"`)
		}
	}
}

func stored(t *testing.T, o client.Object) string {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// edited sets the image of a template.
func edited(t *testing.T, of json.Unmarshaler) {
	t.Helper()
	text, err := json.Marshal(of)
	if err == nil {
		err = of.UnmarshalJSON([]byte(strings.ReplaceAll(string(text), `"one"`, `"mine"`)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// UD-001 (part), UD-046 (part), UD-070 (part): making a UnitedDeployment again with its orphans is how a
// subset gets other nodes.
func TestMadeAgainWithItsOrphansOnOtherNodes(t *testing.T) {
	kind := uniteddeployment.Deployment
	w := newWorld(t, 1, []uniteddeployment.Kind{kind}, united(t, kind, 4, "a", "b"))
	w.rest()
	w.still = true
	for _, of := range []string{kind.Name(), "ControllerRevision"} {
		for _, o := range w.List(of, false) {
			w.Change(w.KeyOf(of, o), func(o client.Object) { o.SetOwnerReferences(nil) })
		}
	}
	w.Remove(key)
	w.quiet()
	again := united(t, kind, 4, "a", "b")
	again.Spec.Topology.Subsets[0].NodeSelectorTerm.MatchExpressions = []corev1.NodeSelectorRequirement{
		{Key: "pool", Operator: corev1.NodeSelectorOpExists}, {Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"new"}}}
	again.Spec.Topology.Subsets[0].Tolerations = []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpExists}}
	w.Store(key, again)
	w.still = false
	w.rest()
	for _, c := range w.children() {
		pod := w.Get(w.keyOf(c)).(*appsv1.Deployment).Spec.Template.Spec
		terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		bound := len(terms) == 1 && len(terms[0].MatchExpressions) == 2 && terms[0].MatchExpressions[1].Values[0] == "new"
		if bound != (c.Subset == "a") {
			t.Errorf("bound: got %t, want %t; subset %s is bound to %v with %v", bound, c.Subset == "a", c.Subset, terms, pod.Tolerations)
		}
		if (len(pod.Tolerations) == 1) != (c.Subset == "a") {
			t.Errorf("there is one toleration of the pod: got %t, want %t; subset %s is bound to %v with %v",
				len(pod.Tolerations) == 1, c.Subset == "a",
				c.Subset, terms, pod.Tolerations)
		}
	}
}
