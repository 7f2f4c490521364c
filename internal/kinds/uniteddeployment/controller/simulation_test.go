package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// changeSpec lets a user want something else.
func (w *world) changeSpec() {
	r := w.Rand
	w.Edit(func(u *appsv1beta1.UnitedDeployment) {
		subsets := &u.Spec.Topology.Subsets
		switch r.IntN(8) {
		case 0, 1:
			u.Spec.Replicas = new(int32(r.IntN(10)))
		case 2:
			kind, _ := uniteddeployment.TemplateOf(&u.Spec.Template)
			u.Spec.Template = template(w.t, kind.Kind, fmt.Sprint("v", r.IntN(4)))
		case 3:
			if r.IntN(4) == 0 && (u.Spec.Topology.ScheduleStrategy.Adaptive == nil) {
				u.Spec.Template = template(w.t, w.kinds[r.IntN(len(w.kinds))], "one")
			}
		case 4:
			u.Spec.UpdateStrategy.ManualUpdate = &appsv1beta1.ManualUpdate{Partitions: map[string]int32{(*subsets)[0].Name: int32(r.IntN(4))}}
		case 5:
			r.Shuffle(len(*subsets), func(i, j int) { (*subsets)[i], (*subsets)[j] = (*subsets)[j], (*subsets)[i] })
			w.stretch(u)
		case 6:
			if len(*subsets) > 1 {
				*subsets = slices.Delete(*subsets, 0, 1)
			}
			w.stretch(u)
		case 7:
			name := string(rune('a' + r.IntN(5)))
			if !slices.ContainsFunc(*subsets, func(s appsv1beta1.Subset) bool { return s.Name == name }) {
				*subsets = slices.Insert(*subsets, r.IntN(len(*subsets)+1), appsv1beta1.Subset{Name: name})
			}
			w.stretch(u)
		}
	})
}

// stretch gives the subsets bounds: all but the last a maximum perhaps.
func (w *world) stretch(u *appsv1beta1.UnitedDeployment) {
	for i := range u.Spec.Topology.Subsets {
		s := &u.Spec.Topology.Subsets[i]
		s.Replicas, s.MinReplicas, s.MaxReplicas = nil, nil, nil
		if w.Rand.IntN(2) == 0 {
			s.MinReplicas = number(int32(w.Rand.IntN(3)))
		}
		if i < len(u.Spec.Topology.Subsets)-1 && w.Rand.IntN(2) == 0 {
			s.MaxReplicas = number(int32(2 + w.Rand.IntN(4)))
		}
	}
	if u.Spec.Topology.ScheduleStrategy.Type == "" && w.Rand.IntN(2) == 0 {
		for i := range u.Spec.Topology.Subsets {
			u.Spec.Topology.Subsets[i].MinReplicas, u.Spec.Topology.Subsets[i].MaxReplicas = nil, nil
		}
		if len(u.Spec.Topology.Subsets) > 1 {
			half := intstr.FromString("40%")
			u.Spec.Topology.Subsets[0].Replicas = &half
		}
	}
}

// zones lets zones fill and become free.
func (w *world) zones() {
	name := string(rune('a' + w.Rand.IntN(5)))
	if w.Rand.IntN(3) == 0 {
		delete(w.room, name)
		w.free()
		return
	}
	w.room[name] = w.Rand.IntN(6)
}

// hand lets somebody edit a child, or delete it.
func (w *world) hand() {
	children := w.children()
	if len(children) == 0 {
		return
	}
	c := children[w.Rand.IntN(len(children))]
	if w.Rand.IntN(4) == 0 {
		w.EndGracefully(w.keyOf(c))
		return
	}
	w.Change(w.keyOf(c), func(o client.Object) {
		setReplicas(o, int32(w.Rand.IntN(5)))
		o.SetGeneration(o.GetGeneration() + 1)
	})
}

func play(t *testing.T, seed uint64, strategy *appsv1beta1.UnitedDeploymentScheduleStrategy) {
	flavour := []uniteddeployment.Kind{uniteddeployment.StatefulSet, uniteddeployment.AdvancedStatefulSet}[seed%2]
	kinds := []uniteddeployment.Kind{uniteddeployment.CloneSet, uniteddeployment.Deployment, flavour}
	kind := kinds[seed%3]
	reserve := strategy.Adaptive != nil && strategy.Adaptive.ReserveUnschedulablePods
	if reserve {
		kind = kinds[seed%2]
	}
	u := united(t, kind, int32(seed%8), "a", "b", "c")
	u.Spec.Topology.ScheduleStrategy = *strategy
	w := newWorld(t, seed, kinds, u)
	for range 3 {
		w.Faults = simulation.Faults{Refuse: 0.05, Lose: 0.05, Die: 0.03}
		for range 60 {
			switch w.Rand.IntN(12) {
			case 0:
				w.changeSpec()
			case 1:
				w.zones()
			case 2:
				w.hand()
			case 3:
				w.Pass(time.Duration(w.Rand.IntN(20_000)) * time.Millisecond)
			case 4, 5, 6:
				w.environmentStep()
			default:
				w.Events(w.Rand.IntN(8))
				w.Manage()
			}
			if w.Dead() {
				w.Start()
			}
		}
		w.settled()
		if t.Failed() {
			t.Fatalf("the simulated cluster failed:\n%s", w.describe())
		}
	}
}

// settled comes to rest, and checks what holds then.
func (w *world) settled() {
	u := w.united()
	delete(w.room, u.Spec.Topology.Subsets[len(u.Spec.Topology.Subsets)-1].Name) // there is room somewhere
	if u.Spec.Topology.ScheduleStrategy.Type == "" {
		clear(w.room)
	}
	w.free()
	w.rest()
	w.still = true
	defer func() { w.still = false }()
	w.quiet()
	writes := len(w.Writes)
	w.Queue.Add()
	w.quiet()
	if len(w.Writes) > writes {
		w.t.Errorf("written at rest: %v", w.Writes[writes:])
	}
	u = w.united()
	template, _ := uniteddeployment.TemplateOf(&u.Spec.Template)
	total, seen := int32(0), map[string]bool{}
	for _, c := range w.children() {
		if c.Kind != template.Kind || seen[c.Subset] || !slices.ContainsFunc(u.Spec.Topology.Subsets, func(s appsv1beta1.Subset) bool { return s.Name == c.Subset }) {
			w.t.Errorf("%s of subset %s is left", c, c.Subset)
		}
		seen[c.Subset] = true
		total += c.Replicas
		if c.Revision != u.Status.UpdatedRevision {
			w.t.Errorf("UD-071: revision: got %q, want %q; %s is of revision %s instead of %s", c.Revision,
				u.Status.UpdatedRevision, c,
				c.Revision, u.Status.UpdatedRevision)
		}
		if got := podLabels(c.Object)[uniteddeployment.RevisionHash]; got != c.Revision {
			w.t.Errorf("UD-071: revision of the pods: got %q, want %q; %s is of revision %s instead of %s", got,
				c.Revision, c, c.Revision, u.Status.UpdatedRevision)
		}
	}
	if len(seen) != len(u.Spec.Topology.Subsets) {
		w.t.Errorf("%d children for %d subsets", len(seen), len(u.Spec.Topology.Subsets))
	}
	if want := *u.Spec.Replicas + u.Status.ReservedPods; total != want {
		w.t.Errorf("%d replicas in all instead of %d", total, want)
	}
	bound := slices.ContainsFunc(u.Spec.Topology.Subsets, func(s appsv1beta1.Subset) bool { return s.MinReplicas != nil && w.room[s.Name] < 9 })
	if u.Status.ReadyReplicas < *u.Spec.Replicas && (!bound || len(w.room) == 0) {
		w.t.Errorf("%d of %d replicas are ready, though there is room", u.Status.ReadyReplicas, *u.Spec.Replicas)
	}
	if u.Status.ObservedGeneration != u.Generation {
		w.t.Errorf("generation %d is not observed", u.Generation)
	}
}

// Whatever dies, lags, is lost, edited by hand or deleted: each subset has one child, all replicas are given,
// no child is deleted that its subset needs, and nothing is written at rest.
func TestSimulatedSubsets(t *testing.T) {
	simulationtest.Some(t, 30, 3, func(t *testing.T, seed uint64) { play(t, seed, &appsv1beta1.UnitedDeploymentScheduleStrategy{}) })
}

// The same with pods that go elsewhere.
func TestSimulatedAdaptiveSubsets(t *testing.T) {
	simulationtest.Some(t, 30, 3, func(t *testing.T, seed uint64) {
		play(t, seed, &appsv1beta1.UnitedDeploymentScheduleStrategy{Type: "Adaptive"})
	})
}

// The same with pods that have substitutes.
func TestSimulatedReservations(t *testing.T) {
	simulationtest.Some(t, 30, 3, func(t *testing.T, seed uint64) {
		play(t, seed, &appsv1beta1.UnitedDeploymentScheduleStrategy{Type: "Adaptive",
			Adaptive: &appsv1beta1.AdaptiveUnitedDeploymentStrategy{ReserveUnschedulablePods: true}})
	})
}
