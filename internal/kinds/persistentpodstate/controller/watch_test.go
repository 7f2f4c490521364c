package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

// stateOf is a PersistentPodState of a workload, with a place of pods if they have names.
func stateOf(name, apiVersion, kind, target string, pods ...string) *appsv1beta1.PersistentPodState {
	s := &appsv1beta1.PersistentPodState{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "u-1"}}
	s.Spec.TargetRef = appsv1beta1.PersistentPodStateTarget{APIVersion: apiVersion, Kind: kind, Name: target}
	s.Spec.RequiredPersistentTopology = &appsv1beta1.NodeTopologyTerm{Keys: []string{"zone"}}
	for _, pod := range pods {
		if s.Status.PodStates == nil {
			s.Status.PodStates = map[string]appsv1beta1.PodState{}
		}
		s.Status.PodStates[pod] = appsv1beta1.PodState{NodeName: "a", NodeTopologyLabels: map[string]string{"zone": "z1"}}
	}
	return s
}

func podBy(name, apiVersion, kind, owner string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: owner, UID: "w", Controller: new(true)}}}}
}

// apiServer is what watches read live: objects, or an error.
func apiServer(t *testing.T, answer func(ctx context.Context) error, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(appsv1beta1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if answer != nil {
				if err := answer(ctx); err != nil {
					return err
				}
			}
			return c.Get(ctx, key, o, options...)
		}}).Build()
}

// watchOf follows some states as its cache has them.
func watchOf(live client.Reader, cached ...*appsv1beta1.PersistentPodState) *Watch {
	list, _ := workloadspread.ParseListAt(persistentpodstate.AllowListKey, `{"workloads":[{"Group":"games.example.com","Kind":"Game"}]}`)
	w := newWatch(live, func() workloadspread.AllowList { return list }, func() bool { return true }, logr.Discard(), time.Now)
	w.Absent()
	for _, state := range cached {
		w.OnAdd(state, false)
	}
	return w
}

// PPS-011, PPS-012 (part), PPS-030 (part), PPS-031 (part): for which pods something is remembered, whatever
// version their owner is of.
func TestWhosePlacesAreRemembered(t *testing.T) {
	native, advanced, game := stateOf("native", "apps/v1", "StatefulSet", "web", "web-0"), stateOf("advanced", "apps.kruise.io/v1beta1", "StatefulSet", "web", "web-0"),
		stateOf("game", "games.example.com/v1", "Game", "chess", "chess-0")
	other, leaving := stateOf("match", "other.example.com/v1", "Match", "chess", "chess-0"), stateOf("leaving", "apps/v1", "StatefulSet", "db", "db-0")
	now := metav1.Now()
	leaving.DeletionTimestamp, leaving.Finalizers = &now, []string{"x"}
	w := watchOf(apiServer(t, nil, native.DeepCopy(), advanced.DeepCopy(), game.DeepCopy(), other.DeepCopy(), leaving.DeepCopy()), native, advanced, game, other, leaving)
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"of Kubernetes":                      {podBy("web-0", "apps/v1beta2", "StatefulSet", "web"), "native"},
		"of the other group, any version":    {podBy("web-0", "apps.kruise.io/v1alpha1", "StatefulSet", "web"), "advanced"},
		"a listed kind":                      {podBy("chess-0", "games.example.com/v7", "Game", "chess"), "game"},
		"a kind that is not listed":          {podBy("chess-0", "other.example.com/v1", "Match", "chess"), ""},
		"another workload":                   {podBy("db-1", "apps/v1", "StatefulSet", "shop"), ""},
		"one that is being deleted":          {podBy("db-0", "apps/v1", "StatefulSet", "db"), ""},
		"no controller":                      {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}}, ""},
		"no name":                            {podBy("", "apps/v1", "StatefulSet", "web"), ""},
		"a name without a number":            {podBy("web-x", "apps/v1", "StatefulSet", "web"), ""},
		"a pod of which nothing is recorded": {podBy("web-7", "apps/v1", "StatefulSet", "web"), "native"},
	} {
		got, err := w.Of(t.Context(), test.pod, "shop")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if test.want == "" && got != nil || test.want != "" && (got == nil || got.Name != test.want) {
			t.Errorf("%s: got %v, want %q", name, got, test.want)
		}
	}
	if got, err := w.Of(t.Context(), podBy("web-0", "apps/v1", "StatefulSet", "web"), "elsewhere"); got != nil {
		t.Errorf("in another namespace: got %+v, want nil\n%v", got, err)
	} else if err != nil {
		t.Errorf("in another namespace: unexpected error: %v\n%v", err, got)
	}
	text := w.Creations()
	if strings.Contains(text, "elsewhere") {
		t.Errorf("w.Creations(): got %q, want it not to contain %q", text, "elsewhere")
	}
	if !strings.Contains(text, "request.namespace in ['shop']") {
		t.Errorf("w.Creations(): got %q, want it to contain %q", text, "request.namespace in ['shop']")
	}
	if !strings.Contains(text, "'Game', 'Match', 'StatefulSet'") {
		t.Errorf("w.Creations(): got %q, want it to contain %q", text, "'Game', 'Match', 'StatefulSet'")
	}
	w.OnDelete(native)
	if got, err := w.Of(t.Context(), podBy("web-0", "apps/v1", "StatefulSet", "web"), "shop"); got != nil {
		t.Errorf("after its deletion: got %+v, want nil\n%v", got, err)
	} else if err != nil {
		t.Errorf("after its deletion: unexpected error: %v\n%v", err, got)
	}
}

// PPS-038, PPS-039: of two replicas the one whose cache lags gives a pod what the other has recorded, also
// where its cache has an earlier place. Where the API server does not answer, what the cache has counts;
// without that, a preference starts anywhere, and a must refuses the pod.
func TestEitherReplicaGivesWhatIsRecorded(t *testing.T) {
	pod := podBy("web-0", "apps/v1", "StatefulSet", "web")
	none, recorded := stateOf("places", "apps/v1", "StatefulSet", "web"), stateOf("places", "apps/v1", "StatefulSet", "web", "web-0")
	moved := recorded.DeepCopy()
	moved.Status.PodStates["web-0"] = appsv1beta1.PodState{NodeName: "b", NodeTopologyLabels: map[string]string{"zone": "z2"}}
	preferred := none.DeepCopy()
	preferred.Spec.RequiredPersistentTopology = nil
	down := func(context.Context) error { return errors.New("no answer") }
	for name, test := range map[string]struct {
		cached, live *appsv1beta1.PersistentPodState
		answer       func(context.Context) error
		zone         string
		refused      bool
	}{
		"the cache is up to date":              {cached: recorded, live: recorded, zone: "z1"},
		"the cache has no entry":               {cached: none, live: recorded, zone: "z1"},
		"the cache has an earlier place":       {cached: recorded, live: moved, zone: "z2"},
		"it was deleted":                       {cached: recorded},
		"no answer, and an entry":              {cached: recorded, live: moved, answer: down, zone: "z1"},
		"no answer, no entry, and a must":      {cached: none, live: recorded, answer: down, refused: true},
		"no answer, no entry and a preference": {cached: preferred, live: preferred, answer: down},
	} {
		t.Run(name, func(t *testing.T) {
			var live []client.Object
			if test.live != nil {
				live = append(live, test.live.DeepCopy())
			}
			got, err := watchOf(apiServer(t, test.answer, live...), test.cached.DeepCopy()).Of(t.Context(), pod, "shop")
			if (err != nil) != test.refused {
				t.Fatalf("err != nil: got %t, want %t\n%v\n%v", err != nil, test.refused, got, err)
			}
			zone := ""
			if got != nil {
				zone = got.Status.PodStates["web-0"].NodeTopologyLabels["zone"]
			}
			if zone != test.zone {
				t.Errorf("zone: got %q, want %q\n%v", zone, test.zone, got)
			}
		})
	}
}

// PPS-038 (part): many pods of one workload share reads, those of many workloads make a bounded number at
// once, and none waits for long.
func TestReadsForPodsAreBounded(t *testing.T) {
	var reads, atOnce, most atomic.Int32
	block := make(chan struct{})
	live := apiServer(t, func(ctx context.Context) error {
		reads.Add(1)
		for now := atOnce.Add(1); ; {
			if seen := most.Load(); now <= seen || most.CompareAndSwap(seen, now) {
				break
			}
		}
		defer atOnce.Add(-1)
		select {
		case <-block:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	var states []*appsv1beta1.PersistentPodState
	for i := range 100 {
		states = append(states, stateOf(fmt.Sprint("s", i), "apps/v1", "StatefulSet", fmt.Sprint("set", i)))
	}
	w := watchOf(live, states...)
	w.deadline, w.reads.Limit = 300*time.Millisecond, 300*time.Millisecond
	done := make(chan error, 1000)
	for i := range 1000 {
		go func() {
			_, err := w.Of(context.Background(), podBy("x-0", "apps/v1", "StatefulSet", fmt.Sprint("set", i%100)), "shop")
			done <- err
		}()
	}
	for range 1000 {
		if err := <-done; err == nil {
			t.Fatal("a must was broken")
		}
	}
	if got := most.Load(); got > readOfNamespace {
		t.Errorf("most.Load(): got %d, want at most %d", got, readOfNamespace)
	}
	if got := reads.Load(); got > 200 {
		t.Errorf("reads.Load(): got %d, want at most 200", got)
	}
}

// PPS-030 (part): a replica that does not know a PersistentPodState yet, of which the API server has begun to
// send pods, reads it.
func TestRecentPersistentPodStatesAreRead(t *testing.T) {
	w := watchOf(apiServer(t, nil, stateOf("places", "apps/v1", "StatefulSet", "web", "web-0")))
	pod := podBy("web-0", "apps/v1", "StatefulSet", "web")
	if got, err := w.Of(t.Context(), pod, "shop"); got != nil {
		t.Fatalf("w.Of(t.Context(), pod, \"shop\"): got %+v, want nil\n%v", got, err)
	} else if err != nil {
		t.Fatalf("unexpected error: %v\n%v", err, got)
	}
	if err := w.Learn(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	if got, err := w.Of(t.Context(), pod, "shop"); got == nil {
		t.Errorf("w.Of(t.Context(), pod, \"shop\"): got nil, want a value\n%v", err)
	} else if err != nil {
		t.Errorf("unexpected error: %v\n%v", err, got)
	}
	text := Asks(stateOf("s", "x.example.com/v1", "Odd'Kind", "web"))
	if strings.Contains(text, "Odd") {
		t.Errorf(`Asks(stateOf("s", "x.example.com/v1", "Odd'Kind", "web")): got %q, want it not to contain %q`, text, "Odd")
	}
	if !strings.Contains(text, "o.controller") {
		t.Errorf(`Asks(stateOf("s", "x.example.com/v1", "Odd'Kind", "web")): got %q, want it to contain %q`, text, "o.controller")
	}
}

// PPS-015 (part): a pod of a custom kind that comes before the list is known waits for it; those of
// StatefulSets do not.
func TestPodsWaitForTheList(t *testing.T) {
	w := watchOf(apiServer(t, nil, stateOf("game", "games.example.com/v1", "Game", "chess", "chess-0"), stateOf("places", "apps/v1", "StatefulSet", "web", "web-0")),
		stateOf("game", "games.example.com/v1", "Game", "chess", "chess-0"), stateOf("places", "apps/v1", "StatefulSet", "web", "web-0"))
	w.listsRead = func() bool { return false }
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, err := w.Of(ctx, podBy("chess-0", "games.example.com/v1", "Game", "chess"), "shop"); err == nil {
		t.Errorf("before the lists are read: got %v, want an error", got)
	}
	if got, err := w.Of(t.Context(), podBy("web-0", "apps/v1", "StatefulSet", "web"), "shop"); err != nil {
		t.Errorf("unexpected error: %v\n%v", err, got)
	} else if got == nil {
		t.Errorf("got nil, want a value\n%v", err)
	}
}

// PPS-038 (part): a must was missed by pods that were created right after their PersistentPodState had been
// replaced by one of another name: to the cache that lagged the former one was still there.
func TestAPodThatCameAfterItsPersistentPodStateWasReplacedStartedAnywhere(t *testing.T) {
	former, next := stateOf("former", "apps/v1", "StatefulSet", "web", "web-0"), stateOf("next", "apps/v1", "StatefulSet", "web", "web-0")
	former.CreationTimestamp, next.CreationTimestamp, next.UID = metav1.Unix(1, 0), metav1.Unix(2, 0), "u-2"
	leaving := former.DeepCopy()
	leaving.DeletionTimestamp, leaving.Finalizers = new(metav1.Unix(3, 0)), []string{"x"}
	for name, live := range map[string][]client.Object{"it is gone": {next.DeepCopy()}, "it is being deleted": {leaving, next.DeepCopy()}} {
		w := watchOf(apiServer(t, nil, live...), former, next)
		if got, err := w.Of(t.Context(), podBy("web-0", "apps/v1", "StatefulSet", "web"), "shop"); err != nil {
			t.Errorf("%s: unexpected error: %v\n%v", name, err, got)
		} else if got == nil {
			t.Errorf("%s: got nil, want a value\n%v", name, err)
		} else if got.Name != "next" {
			t.Errorf("%s: got.Name: got %q, want %q\n%v\n%v", name, got.Name, "next", got, err)
		}
	}
}
