package controller

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
	"github.com/afloat-project/afloat/internal/simulation"
)

// namesAsked are the names that handlers ask for.
func namesAsked(do func(q *requestsOf)) (names []string) {
	q := &requestsOf{names: map[types.NamespacedName]bool{}}
	do(q)
	for _, name := range q.take() {
		names = append(names, name.Name)
	}
	return names
}

// PPS-045, PPS-046: which changes of pods, nodes and workloads ask for a pass, and of what. PPS-102 (part):
// those of either group lead to their own.
func TestWhatAsksForAPass(t *testing.T) {
	w := newWorld(t, 1)
	w.write("places", "web", nil)
	w.write("injected", "db", nil)
	w.Store(key(pps, "advanced"), stateOf("advanced", "apps.kruise.io/v1beta1", "StatefulSet", "web"))
	w.Change(key(pps, "places"), func(o client.Object) {
		o.(*appsv1beta1.PersistentPodState).Status.PodStates = map[string]appsv1beta1.PodState{"web-0": {NodeName: "a", NodeTopologyLabels: map[string]string{"zone": "z1"}}}
	})
	w.Deliver(1 << 20)
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := podBy("web-0", "apps/v1", "StatefulSet", "web")
		p.Spec.NodeName, p.Annotations = "a", map[string]string{"ip": "1"}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		if change != nil {
			change(p)
		}
		return p
	}
	unready := func(p *corev1.Pod) { p.Status.Conditions = nil }
	now := metav1.Now()
	pods, nodes := &podEvents{w.r}, &nodeEvents{w.r}
	update := func(before, after *corev1.Pod) []string {
		return namesAsked(func(q *requestsOf) {
			pods.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
		})
	}
	node := func(before, after map[string]string) []string {
		named := func(labels map[string]string) *corev1.Node {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels}}
		}
		return namesAsked(func(q *requestsOf) {
			nodes.Update(t.Context(), event.UpdateEvent{ObjectOld: named(before), ObjectNew: named(after)}, q)
		})
	}
	set := func(change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "w", Generation: 1}}
		if change != nil {
			change(s)
		}
		return s
	}
	workload := func(kind schema.GroupKind, before, after client.Object) []string {
		return namesAsked(func(q *requestsOf) { add(q, w.r.ofWorkload(t.Context(), kind, before, after)) })
	}
	for name, test := range map[string]struct{ got, want []string }{
		"becomes ready":                  {update(pod(unready), pod(nil)), []string{"places"}},
		"is ready, as before":            {update(pod(nil), pod(func(p *corev1.Pod) { p.Status.Message = "x" })), nil},
		"is ready no more":               {update(pod(nil), pod(unready)), nil},
		"annotations of a ready pod":     {update(pod(nil), pod(func(p *corev1.Pod) { p.Annotations = map[string]string{"ip": "2"} })), []string{"places"}},
		"annotations of one that is not": {update(pod(unready), pod(func(p *corev1.Pod) { unready(p); p.Annotations = nil })), nil},
		"gets a deletion timestamp":      {update(pod(nil), pod(func(p *corev1.Pod) { p.DeletionTimestamp = &now })), []string{"places"}},
		"fails":                          {update(pod(nil), pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })), []string{"places"}},
		"is adopted":                     {update(pod(func(p *corev1.Pod) { p.OwnerReferences = nil }), pod(nil)), []string{"places"}},
		"of the other group":             {update(pod(unready), pod(func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "apps.kruise.io/v1beta1" })), []string{"advanced"}},
		"its annotation names another":   {update(pod(unready), pod(func(p *corev1.Pod) { p.Annotations = map[string]string{pub.InjectedPersistentPodState: "injected"} })), []string{"injected", "places"}},
		"its annotation names none":      {update(pod(unready), pod(func(p *corev1.Pod) { p.Annotations = map[string]string{pub.InjectedPersistentPodState: "gone"} })), []string{"places"}},
		"disappears":                     {namesAsked(func(q *requestsOf) { pods.Delete(t.Context(), event.DeleteEvent{Object: pod(nil)}, q) }), []string{"places"}},
		"appears, ready":                 {namesAsked(func(q *requestsOf) { pods.Create(t.Context(), event.CreateEvent{Object: pod(nil)}, q) }), []string{"places"}},
		"appears at the start": {namesAsked(func(q *requestsOf) {
			pods.Create(t.Context(), event.CreateEvent{Object: pod(nil), IsInInitialList: true}, q)
		}), nil},
		"appears":                          {namesAsked(func(q *requestsOf) { pods.Create(t.Context(), event.CreateEvent{Object: pod(unready)}, q) }), nil},
		"a label that is remembered":       {node(map[string]string{"zone": "z1"}, map[string]string{"zone": "z2"}), []string{"places"}},
		"a label that is remembered, gone": {node(map[string]string{"zone": "z1"}, nil), []string{"places"}},
		"a label that nobody asks for":     {node(map[string]string{"zone": "z1"}, map[string]string{"zone": "z1", "x": "y"}), nil},
		"a node that comes again": {namesAsked(func(q *requestsOf) {
			nodes.Create(t.Context(), event.CreateEvent{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}, q)
		}), []string{"places"}},
		"a node at the start": {namesAsked(func(q *requestsOf) {
			nodes.Create(t.Context(), event.CreateEvent{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, IsInInitialList: true}, q)
		}), nil},
		"a node that is gone": {namesAsked(func(q *requestsOf) {
			nodes.Delete(t.Context(), event.DeleteEvent{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "z", Labels: map[string]string{"zone": "z1"}}}}, q)
		}), []string{"places"}},
		"a node that kept no must, gone": {namesAsked(func(q *requestsOf) {
			nodes.Delete(t.Context(), event.DeleteEvent{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "z", Labels: map[string]string{"zone": "z9"}}}}, q)
		}), nil},
		"a workload appears":                {workload(workloadkind.StatefulSet, nil, set(nil)), []string{"places"}},
		"it disappears":                     {workload(workloadkind.StatefulSet, set(nil), nil), []string{"places"}},
		"it disappears, of the other group": {workload(workloadkind.AdvancedStatefulSet, set(nil), nil), []string{"advanced"}},
		"its spec changes":                  {workload(workloadkind.StatefulSet, set(nil), set(func(s *appsv1.StatefulSet) { s.Generation = 2 })), []string{"places"}},
		"it is being deleted":               {workload(workloadkind.StatefulSet, set(nil), set(func(s *appsv1.StatefulSet) { s.DeletionTimestamp = &now })), []string{"places"}},
		"another one of its name":           {workload(workloadkind.StatefulSet, set(nil), set(func(s *appsv1.StatefulSet) { s.UID = "v" })), []string{"places"}},
		"its status changes":                {workload(workloadkind.StatefulSet, set(nil), set(func(s *appsv1.StatefulSet) { s.Status.Replicas = 2 })), nil},
	} {
		if len(test.got) != len(test.want) {
			t.Errorf("%s: got %v, want %v", name, test.got, test.want)
		} else if n := len(test.want); n > 0 && (test.got[0] != test.want[0] || test.got[n-1] != test.want[n-1]) {
			t.Errorf("%s: got %v, want %v", name, test.got, test.want)
		}
	}
}

// PPS-073 (part), PPS-079 (part): what has a workload looked at for the PersistentPodState that it asks for.
func TestWhatAsksForGeneration(t *testing.T) {
	w := newWorld(t, 1)
	set := func(asks string, change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "w", Generation: 1,
			Annotations: map[string]string{pub.AutoGeneratePersistentPodState: asks}}}
		if change != nil {
			change(s)
		}
		return s
	}
	asking := func(before, after client.Object) (names []string) {
		for _, request := range ofAsking(t.Context(), workloadkind.StatefulSet, before, after) {
			names = append(names, request.Name)
		}
		return names
	}
	ofState := func(before, after client.Object) (names []string) {
		for _, request := range w.g.ofState(t.Context(), schema.GroupKind{}, before, after) {
			names = append(names, request.Name)
		}
		return names
	}
	state := stateOf("by-hand", "apps/v1", "StatefulSet", "web")
	changed, recorded := state.DeepCopy(), state.DeepCopy()
	changed.Generation++
	recorded.Status.ObservedGeneration++
	annotation := func(s *appsv1.StatefulSet) { s.Annotations[pub.PersistentPodAnnotations] = "ip" }
	for name, test := range map[string]struct {
		got  []string
		want int
	}{
		"appears and asks":        {asking(nil, set("true", nil)), 1},
		"appears and does not":    {asking(nil, set("no", nil)), 0},
		"asks for something else": {asking(set("true", nil), set("true", annotation)), 1},
		"asks no more":            {asking(set("true", nil), set("no", nil)), 1},
		"asks for the same":       {asking(set("true", nil), set("true", func(s *appsv1.StatefulSet) { s.Generation = 2 })), 0},
		"another one of its name": {asking(set("true", nil), set("true", func(s *appsv1.StatefulSet) { s.UID = "v" })), 1},
		"disappears":              {asking(set("true", nil), nil), 0},
		"a state changes":         {ofState(state, changed), 2},
		"a state disappears":      {ofState(state, nil), 2},
		"a state is there":        {ofState(nil, stateOf("web", "apps/v1", "StatefulSet", "web")), 1},
		"something is recorded":   {ofState(state, recorded), 0},
	} {
		if len(test.got) != test.want {
			t.Errorf("%s: len(test.got): got %d, want %d\n%v", name, len(test.got), test.want, test.got)
		}
	}
}

// PPS-082: these are all events that there are, each once, and there are no metrics.
func TestEventsOfPersistentPodStates(t *testing.T) {
	w := pinned(t)
	asks := map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.RequiredPersistentTopology: "zone"}
	w.make("web", 1, 0, nil)
	w.write("places", "web", func(s *appsv1beta1.PersistentPodState) {
		s.Spec.RequiredPersistentTopology.Keys = []string{"zone", "former"}
	})
	w.write("db", "elsewhere", nil) // PPS-077
	w.write("by-hand", "mq", nil)   // PPS-079
	w.make("db", 1, 0, asks)
	w.make("mq", 1, 0, asks)
	w.make("bad", 1, 0, map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.RequiredPersistentTopology: "a b"})
	w.settle()
	w.Remove(key("Node", "a")) // PPS-105
	w.settle()
	w.settle()
	var got []string
	for _, told := range w.told {
		about, _, _ := strings.Cut(told, ":")
		got = append(got, about)
	}
	slices.Sort(got)
	want := []string{"bad Warning PersistentPodStateInvalid", "by-hand Normal PodStateCleaned", "db Warning PersistentPodStateConflict", "mq Warning PersistentPodStateConflict",
		"places Normal PodStateCleaned", "places Warning NodeTopologyKeyMissing"}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(source), "prometheus") {
			t.Errorf("%s has metrics", file)
		}
		for _, reason := range regexp.MustCompile(`"((?:Pod|Node|Persistent)[A-Za-z]+)"`).FindAllStringSubmatch(string(source), -1) {
			reasons[reason[1]] = true
		}
	}
	for _, kind := range []string{"PersistentPodState", "Pod", "PodList", "Node"} {
		delete(reasons, kind)
	}
	if known := slices.Sorted(maps.Keys(reasons)); !slices.Equal(known, []string{"NodeTopologyKeyMissing", "PersistentPodStateConflict", "PersistentPodStateInvalid", "PodStateCleaned", "PodStatesFull"}) {
		t.Errorf("reasons of events: %q", known)
	}
}

// PPS-082 (part): a quota refused what was to be generated, and no event told why there was none.
func TestNothingToldThatWhatIsGeneratedIsRefused(t *testing.T) {
	w := pinned(t)
	w.Answer = func(r *simulation.Request) error {
		if r.Verb == "create" && r.Key.Kind == pps {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "persistentpodstates"}, "web", errors.New("exceeded quota: few"))
		}
		return nil
	}
	w.make("web", 1, 0, map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.RequiredPersistentTopology: "zone"})
	w.Events(1 << 20)
	w.Manage()
	if got := w.tells("web Warning PersistentPodStateConflict: what the annotations ask for was refused"); got != 1 {
		t.Errorf("w.tells(\"web Warning PersistentPodStateConflict: what the annotations ask for was refused\"): got %d, want 1\n%q", got,
			w.told)
	}
	if got := w.tells("exceeded quota: few"); got != 1 {
		t.Errorf("w.tells(\"exceeded quota: few\"): got %d, want 1\n%q", got, w.told)
	}
}

// PPS-017 (part), PPS-082 (part): the manager had not been granted to read what is listed. No place was
// recorded, and nothing told why but the log of the manager.
func TestNothingToldThatTheWorkloadMayNotBeRead(t *testing.T) {
	w := pinned(t)
	w.make("web", 1, 0, nil)
	w.write("places", "web", nil)
	w.Events(1 << 20)
	refusal := apierrors.NewForbidden(schema.GroupResource{Group: "games.example.com", Resource: "games"}, "web", errors.New("no rights"))
	w.r.Workloads = forbidden{refusal}
	c := w.r.controller()
	for range 3 {
		if _, err := c.Run(t.Context(), client.ObjectKeyFromObject(w.state("places")), w.state("places").UID); err == nil {
			t.Fatal("it may be read")
		}
	}
	if got := w.tells("places Warning WorkloadUnreadable: No place is recorded or forgotten: games.games.example.com \"web\" is forbidden"); got != 1 {
		t.Errorf("w.tells(\"places Warning WorkloadUnreadable: No place is recorded or forgotten: games.games.example.com \\\"web\\\" is forbidden\"): got %d, want 1\n%q",
			got, w.told)
	}
}

// forbidden are workloads that may not be read.
type forbidden struct{ err error }

// Read implements Workloads.
func (f forbidden) Read(context.Context, string, persistentpodstate.Reference, bool) (*persistentpodstate.Workload, error) {
	return nil, f.err
}

// All implements Workloads.
func (f forbidden) All() []schema.GroupKind { return nil }
