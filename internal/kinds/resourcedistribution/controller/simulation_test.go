package controller

import (
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/resourcedistribution"
	build "github.com/afloat-project/afloat/internal/kinds/resourcedistribution/resourcedistributiontest"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

var spaces = []string{"a", "b", "c", "d", metav1.NamespaceSystem}

func (w *world) some() string { return spaces[w.Rand.IntN(len(spaces))] }

func (w *world) pairs() map[string]string {
	return map[string]string{"team": []string{"x", "y"}[w.Rand.IntN(2)]}
}

// author creates or changes a ResourceDistribution.
func (w *world) author(name string) {
	options := []build.Option{build.Document(w.document([]string{"1", "2"}[w.Rand.IntN(2)]))}
	switch w.Rand.IntN(4) {
	case 0:
		options = append(options, build.All)
	case 1:
		options = append(options, build.To(w.some(), w.some()))
	default:
		options = append(options, build.Labelled("team", "x"), build.To(w.some()))
	}
	if w.Chance(0.3) {
		options = append(options, build.Not(w.some()))
	}
	w.put(build.Distribution(name, options...))
}

// users let somebody do something, in namespaces of theirs, or as administrators.
func (w *world) users() {
	name := w.some()
	key := w.key(name)
	space := simulation.Key{Kind: "Namespace", Name: name}
	there := w.Get(key) != nil
	switch n := w.Rand.IntN(16); {
	case n == 0:
		w.author("a")
	case n == 1:
		w.author("rival")
	case n == 2:
		w.Remove(simulation.Key{Kind: resourcedistribution.Name, Name: []string{"a", "rival"}[w.Rand.IntN(2)]})
	case n == 3 && w.Get(space) == nil:
		w.space(name, w.pairs())
	case n == 4 && w.Get(space) != nil:
		w.Change(space, func(o client.Object) { o.SetLabels(w.pairs()) })
	case n == 5 && w.Get(space) != nil && name != metav1.NamespaceSystem:
		w.EndGracefully(space)
	case n == 6 && !there && w.Get(space) != nil:
		w.foreign(name, []types.UID{"", "forged"}[w.Rand.IntN(2)])
	case n == 7 && !there && w.Get(space) != nil:
		if rd := w.rd("a"); rd != nil { // of the right one
			w.foreign(name, rd.UID)
		}
	case there && n < 10:
		w.EndGracefully(key)
	case there && n == 10:
		w.Change(key, func(o client.Object) { o.SetOwnerReferences(nil) })
	case there && n == 11:
		w.Change(key, func(o client.Object) { o.SetFinalizers([]string{"users.example/hold"}) })
	case there && n == 12:
		w.Change(key, func(o client.Object) { o.SetLabels(map[string]string{"mine": "x"}); o.SetAnnotations(nil) })
	case there && n == 13:
		w.Change(key, func(o client.Object) { o.SetFinalizers(nil) })
	case there:
		w.Change(key, func(o client.Object) {
			switch o := o.(type) {
			case *corev1.Secret:
				if o.Immutable == nil {
					o.Data, o.StringData = map[string][]byte{"key": []byte("users"), "more": nil}, nil
				}
				if n == 15 {
					o.Immutable = new(true)
				}
			case *corev1.ConfigMap:
				if o.Immutable == nil {
					o.Data = map[string]string{"more": "users"}
				}
				if n == 15 {
					o.Immutable = new(true)
				}
			}
		})
	}
}

// TestSimulatedDistributions (RD-003, RD-042 (part), RD-044 (part), RD-052 (part), RD-059 (part),
// RD-070 (part)): whatever dies, lags, is lost, or is done by users of namespaces, nothing of others is
// written, and in the end each target has its copy, or is told as the one that cannot have it; and nothing is
// written at rest.
func TestSimulatedDistributions(t *testing.T) {
	simulationtest.Seeds(t, 300, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed)
		for _, name := range spaces {
			w.space(name, w.pairs())
		}
		w.author("a")
		for range 3 {
			w.Faults = simulation.Faults{Refuse: 0.05, Lose: 0.05, Die: 0.03}
			for range 40 {
				switch w.Rand.IntN(6) {
				case 0, 1:
					w.users()
				case 2:
					w.Pass(time.Duration(w.Rand.IntN(3000)) * time.Millisecond)
				case 3:
					w.collect()
				default:
					w.Events(w.Rand.IntN(6))
					w.Manage()
				}
				if w.Dead() {
					w.start()
				}
			}
			if w.Dead() {
				w.start()
			}
			w.settle()
			w.judge()
			if t.Failed() {
				t.Fatalf("the simulated cluster failed:\n%s", w.describe())
			}
		}
	})
}

// judge says what holds at rest.
func (w *world) judge() {
	writes := len(w.Writes)
	w.Queue.Add()
	w.quiet()
	if len(w.Writes) > writes {
		w.t.Errorf("written at rest: %v", w.Writes[writes:])
	}
	for _, name := range []string{"a", "rival"} {
		if rd := w.rd(name); rd != nil {
			w.judgeOne(rd)
		}
	}
}

func (w *world) judgeOne(rd *appsv1beta1.ResourceDistribution) {
	resource, err := resourcedistribution.Read(rd)
	if err != nil {
		w.t.Fatal(err)
	}
	targets, err := resourcedistribution.TargetsOf(rd)
	if err != nil {
		w.t.Fatal(err)
	}
	var tally resourcedistribution.Tally
	names := maps.Clone(targets.Included())
	if names == nil {
		names = map[string]bool{}
	}
	for _, space := range w.List("Namespace", false) {
		names[space.GetName()] = true
	}
	for name := range names {
		var copied *resourcedistribution.Copy
		if object := w.Get(w.key(name)); object != nil {
			copied = resourcedistribution.CopyOf(object)
		}
		ns := resourcedistribution.Namespace{Name: name}
		if space := w.Get(simulation.Key{Kind: "Namespace", Name: name}); space != nil {
			ns = namespaceOf(name, space)
		}
		verdict := resourcedistribution.Decide(&resourcedistribution.Snapshot{Resource: resource, Targets: targets, Owner: rd.UID, Namespace: ns, Copy: copied})
		if verdict.Action != resourcedistribution.Keep {
			w.t.Errorf("%s in %s is left to do: %s", rd.Name, name, verdict.Action)
		}
		tally.Set(name, verdict.Outcome)
	}
	want := tally.Status(&rd.Status, rd.Generation, w.Now())
	if !equality.Semantic.DeepEqual(want, rd.Status) {
		w.t.Errorf("status of %s:\n%s\nwant\n%s", rd.Name, fmt.Sprint(rd.Status), fmt.Sprint(want))
	}
}
