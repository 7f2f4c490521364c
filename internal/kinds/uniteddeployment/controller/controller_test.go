package controller

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

var update = flag.Bool("update", false, "write the narratives anew")

var played = []uniteddeployment.Kind{uniteddeployment.CloneSet, uniteddeployment.Deployment, uniteddeployment.StatefulSet}

func adaptive(reserve bool) appsv1beta1.UnitedDeploymentScheduleStrategy {
	return appsv1beta1.UnitedDeploymentScheduleStrategy{Type: "Adaptive", Adaptive: &appsv1beta1.AdaptiveUnitedDeploymentStrategy{ReserveUnschedulablePods: reserve}}
}

func (w *world) expect(what, want string) {
	w.t.Helper()
	if got := fmt.Sprint(w.split()); got != want {
		w.t.Fatalf("%s: %s instead of %s\n%s", what, got, want, w.describe())
	}
}

// now lets all act, without time passing, and some time pass before.
func (w *world) now(after time.Duration) {
	w.Pass(after)
	w.Queue.Add()
	w.quiet()
}

// UD-001, UD-003 (part), UD-066, UD-164 (part): a child of one kind for each subset; another kind takes the
// place of the first at once.
func TestSubsetsHaveChildren(t *testing.T) {
	w := newWorld(t, 1, played, united(t, uniteddeployment.CloneSet, 5, "a", "b"))
	w.rest()
	w.expect("created", "[2 3]")
	for _, write := range w.Writes {
		if write.Key.Kind == "Pod" {
			t.Errorf("UD-003: %+v", write)
		}
	}
	w.Edit(func(u *appsv1beta1.UnitedDeployment) {
		u.Spec.Template = template(t, uniteddeployment.Deployment, "one")
	})
	w.Events(1 << 10)
	w.Manage()
	for _, c := range w.children() {
		if c.Kind != uniteddeployment.Deployment {
			t.Errorf("%s is left", c)
		}
	}
	w.rest()
	w.expect("exchanged", "[2 3]")
}

// UD-060, UD-162, UD-061: neither children of others nor orphans elsewhere matter; an orphan of the subset is
// adopted, and what the selector loses is released.
func TestOnlyOrphansOfTheSubsetAreAdopted(t *testing.T) {
	w := newWorld(t, 1, played, united(t, uniteddeployment.CloneSet, 4, "a", "b"))
	w.Namespaces = false
	orphan := func(namespace, name, subset string, labels map[string]string) {
		child := &appsv1beta1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
		if subset != "" {
			labels[uniteddeployment.SubsetName] = subset
		}
		child.Spec.Replicas = new(int32(1))
		w.Store(simulation.Key{Kind: "CloneSet", Name: name}, child)
	}
	orphan("elsewhere", "far", "a", map[string]string{"app": "web"})
	orphan("shop", "mine", "b", map[string]string{"app": "web"})
	orphan("shop", "plain", "", map[string]string{"app": "web"})
	orphan("shop", "other", "b", map[string]string{"app": "other"})
	w.Deliver(1 << 10)
	w.rest()
	owner := func(name string) string {
		return string(uniteddeployment.OwnerOf(w.Get(simulation.Key{Kind: "CloneSet", Name: name})))
	}
	if got, want := owner("mine"), string(w.united().UID); got != want {
		t.Fatalf("owner of mine: got %q, want %q\n%s", got, want, w.describe())
	}
	if got := owner("far") + owner("plain") + owner("other"); got != "" {
		t.Fatalf("owners: got %q, want %q\n%s", got, "", w.describe())
	}
	if got := len(w.children()); got != 5 {
		t.Fatalf("number of children: got %d, want 5\n%s", got, w.describe())
	}
	w.Change(simulation.Key{Kind: "CloneSet", Name: "mine"}, func(o client.Object) {
		labels := o.GetLabels()
		labels["app"] = "other"
		o.SetLabels(labels)
	})
	w.rest()
	if owner("mine") != "" {
		t.Error("what the selector does not match is kept")
	}
}

// UD-064, UD-067: children are created by name, in batches of 1, 2, 4; the batch in which one fails is the
// last; and one whose creation was not answered is not created again.
func TestChildrenAreCreatedInGrowingBatches(t *testing.T) {
	w := newWorld(t, 1, played, united(t, uniteddeployment.CloneSet, 9, "g", "f", "e", "d", "c", "b", "a"))
	w.Deliver(1 << 10)
	refused := ""
	var asked []string
	w.Answer = func(r *simulation.Request) error {
		if r.Verb != "create" || r.Key.Kind != "CloneSet" {
			return nil
		}
		subset := r.Object.GetLabels()[uniteddeployment.SubsetName]
		asked = append(asked, subset)
		if subset == refused {
			return apierrors.NewForbidden(appsv1beta1.GroupVersion.WithResource("clonesets").GroupResource(), r.Key.Name, errors.New("a quota"))
		}
		return nil
	}
	refused = "b"
	w.Manage()
	if got := strings.Join(asked, ""); got != "abc" {
		t.Errorf("%q are created", got)
	}
	// UD-141, UD-144 (part), UD-145, UD-146, UD-169: the error is a condition and an event, once.
	for range 5 {
		w.Pass(time.Minute)
		w.Queue.Add()
		w.Deliver(1 << 10)
		w.Manage()
	}
	failed := 0
	for _, event := range w.Recorded {
		if strings.Contains(event, "FailedUpdateSubset: ") && strings.Contains(event, "a quota") {
			failed++
		}
		if reason := strings.Fields(event)[1]; !strings.HasSuffix(reason, ":") {
			t.Errorf("UD-145: %s", event)
		}
	}
	conditions := fmt.Sprintf("%+v", w.united().Status.Conditions)
	if failed != 1 {
		t.Errorf("failed: got %d, want 1\n%q", failed, w.Recorded)
	}
	if !strings.Contains(conditions, "Type:SubsetProvisioned Status:False") {
		t.Errorf("conditions: got %q, want it to contain %q\n%q", conditions, "Type:SubsetProvisioned Status:False", w.Recorded)
	}
	if !strings.Contains(conditions, "a quota") {
		t.Errorf("conditions: got %q, want it to contain %q\n%q", conditions, "a quota", w.Recorded)
	}
	refused = ""
	w.Faults.Lose = 1
	w.now(time.Minute)
	w.Faults.Lose = 0
	w.rest()
	if got := len(w.children()); got != 7 {
		t.Errorf("number of children: got %d, want 7\n%s", got, w.describe())
	}
	sum := int32(0)
	for _, n := range w.split() {
		sum += n
	}
	if sum != 9 {
		t.Errorf("sum: got %d, want 9\n%v", sum, w.split())
	}
}

// UD-174, UD-068 (part): what somebody changes of a child comes back.
func TestChildrenEditedByHand(t *testing.T) {
	w := newWorld(t, 1, played, united(t, uniteddeployment.CloneSet, 4, "a", "b"))
	w.Edit(func(u *appsv1beta1.UnitedDeployment) {
		u.Spec.UpdateStrategy.ManualUpdate = &appsv1beta1.ManualUpdate{Partitions: map[string]int32{"a": 1}}
	})
	w.rest()
	a := w.children()[0]
	w.Change(w.keyOf(a), func(o client.Object) {
		set := o.(*appsv1beta1.CloneSet)
		set.Spec.Replicas, set.Spec.UpdateStrategy.RollingUpdate.Partition.IntVal = new(int32(7)), 0
		set.Labels[uniteddeployment.RevisionHash], set.Annotations[uniteddeployment.SubsetPatch] = "x", "{}"
		set.Labels["mine"] = "yes"
		set.Generation++
	})
	w.rest()
	b := w.children()[0]
	if b.Replicas != 2 {
		t.Errorf("replicas: got %d, want 2\n%s", b.Replicas, w.describe())
	} else if *b.Partition != 1 {
		t.Errorf("partition: got %d, want 1\n%s", *b.Partition, w.describe())
	} else if want := w.united().Status.UpdatedRevision; b.Revision != want {
		t.Errorf("revision: got %q, want %q\n%s", b.Revision, want, w.describe())
	} else if b.Patch != "" {
		t.Errorf("patch: got %q, want %q\n%s", b.Patch, "", w.describe())
	} else if b.Object.GetLabels()["mine"] != "yes" {
		t.Errorf("label mine: got %q, want %q\n%s", b.Object.GetLabels()["mine"], "yes", w.describe())
	}
}

// UD-015: an object that no webhook has completed is worked on.
func TestObjectsWithoutDefaults(t *testing.T) {
	u := united(t, uniteddeployment.CloneSet, 4, "a", "b")
	u.Spec.Replicas = nil
	u.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web"}}}}
	u.Spec.Topology.Subsets[0].Replicas, u.Spec.Topology.Subsets[1].Replicas = number(2), number(3)
	w := newWorld(t, 1, played, u)
	w.rest()
	w.expect("absent replicas are the sum", "[2 3]")
	w.Edit(func(u *appsv1beta1.UnitedDeployment) {
		u.Spec.Topology.Subsets[0].Replicas, u.Spec.Topology.Subsets[1].Replicas = nil, nil
	})
	w.rest()
	w.expect("or 1", "[0 1]")
}

// UD-110, UD-123, UD-124, UD-099, UD-164: whole stories, as plans.
func TestNarratives(t *testing.T) {
	minute := time.Minute
	for title, tell := range map[string]func(t *testing.T) *world{
		"adaptive, a full zone": func(t *testing.T) *world {
			u := united(t, uniteddeployment.CloneSet, 10, "a", "b")
			u.Spec.Topology.ScheduleStrategy, u.Spec.Topology.Subsets[0].MaxReplicas = adaptive(false), number(5)
			w := newWorld(t, 1, played, u)
			w.room["a"] = 0
			w.now(0)
			w.expect("begin", "[5 5]")
			w.now(31 * time.Second)
			w.expect("a is full", "[0 10]")
			delete(w.room, "a")
			w.now(6 * minute)
			w.expect("a has recovered", "[0 10]")
			w.Edit(func(u *appsv1beta1.UnitedDeployment) { u.Spec.Replicas = new(int32(12)) })
			w.now(0)
			w.expect("growing", "[2 10]")
			return w
		},
		"substitutes": func(t *testing.T) *world {
			u := united(t, uniteddeployment.CloneSet, 3, "a", "b", "c")
			u.Spec.Topology.ScheduleStrategy = adaptive(true)
			w := newWorld(t, 1, played, u)
			w.room["a"], w.room["b"] = 0, 0
			w.now(0)
			w.expect("begin", "[3 0 0]")
			w.now(31 * time.Second)
			w.expect("a is full", "[3 3 0]")
			w.now(31 * time.Second)
			w.expect("b is full", "[3 3 3]")
			w.room["b"] = 3
			w.free()
			w.now(minute)
			w.expect("b has room", "[3 3 3]")
			w.now(5 * minute)
			w.expect("b has proved healthy", "[3 3 0]")
			w.room["a"] = 2
			w.free()
			w.now(6 * minute)
			w.expect("two of a", "[3 1 0]")
			w.room["a"] = 3
			w.free()
			w.now(6 * minute)
			w.expect("all of a", "[3 0 0]")
			return w
		},
		"substitutes and maxima": func(t *testing.T) *world {
			u := united(t, uniteddeployment.CloneSet, 6, "a", "b", "c")
			u.Spec.Topology.ScheduleStrategy = adaptive(true)
			u.Spec.Topology.Subsets[0].MaxReplicas, u.Spec.Topology.Subsets[1].MaxReplicas = number(2), number(2)
			w := newWorld(t, 1, played, u)
			w.room["b"] = 0
			w.now(0)
			w.expect("begin", "[2 2 2]")
			w.now(31 * time.Second)
			w.expect("b is full", "[2 2 4]")
			w.room["b"] = 1
			w.free()
			w.now(0)
			w.now(6 * minute)
			w.expect("one of b", "[2 2 3]")
			w.room["b"] = 2
			w.free()
			w.now(0)
			w.now(6 * minute)
			w.expect("both", "[2 2 2]")
			return w
		},
	} {
		t.Run(title, func(t *testing.T) {
			w := tell(t)
			simulationtest.Golden(t, title, strings.Join(w.plans, "\n"), w.Recorded, *update)
		})
	}
}

// UD-067 (part): with many subsets as with few a pass looks at each once.
func TestAPassLooksAtEachSubsetOnce(t *testing.T) {
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint("s", i))
	}
	w := newWorld(t, 1, played, united(t, uniteddeployment.CloneSet, 100, names...))
	w.rest()
	split := w.split()
	if slices.Max(split) != 1 {
		t.Errorf("largest part: got %d, want 1\n%v", slices.Max(split), split)
	}
	if slices.Min(split) != 1 {
		t.Errorf("smallest part: got %d, want 1\n%v", slices.Min(split), split)
	}
}
