package pod

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/inject"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/booking"
)

// spreadWorld matches each pod with one WorkloadSpread, and its fields decide about bookings.
type spreadWorld struct {
	spread    *appsv1beta1.WorkloadSpread
	namespace string
	matchErr  error
	decide    func(workloadspread.Creation) workloadspread.Decision
	bookErr   error
	created   []workloadspread.Creation
	deleted   []workloadspread.Deletion
	released  []workloadspread.Creation
}

func (w *spreadWorld) Release(ctx context.Context, _ *appsv1beta1.WorkloadSpread, pod workloadspread.Creation) error {
	w.released = append(w.released, pod)
	return ctx.Err()
}

func (w *spreadWorld) Match(_ context.Context, _ *corev1.Pod, namespace string) (*appsv1beta1.WorkloadSpread, error) {
	w.namespace = namespace
	return w.spread, w.matchErr
}

func (w *spreadWorld) Create(_ context.Context, _ *appsv1beta1.WorkloadSpread, pod workloadspread.Creation,
	prepare func(workloadspread.Decision) error) (workloadspread.Decision, error) {
	w.created = append(w.created, pod)
	if w.bookErr != nil {
		return workloadspread.Decision{}, w.bookErr
	}
	d := w.decide(pod)
	if d.Subset == nil {
		return d, nil
	}
	return d, prepare(d)
}

func (w *spreadWorld) Delete(_ context.Context, _ *appsv1beta1.WorkloadSpread,
	pod workloadspread.Deletion) (workloadspread.Decision, error) {
	w.deleted = append(w.deleted, pod)
	return workloadspread.Decision{Booked: true}, w.bookErr
}

func (w *spreadWorld) spreads(now func() time.Time, recorder events.EventRecorder) *Spreads {
	known := func(key types.NamespacedName) *appsv1beta1.WorkloadSpread {
		if w.spread != nil && key == (types.NamespacedName{Namespace: "d", Name: w.spread.Name}) {
			return w.spread
		}
		return nil
	}
	return NewSpreads(SpreadOptions{Matcher: w, Booker: w, Known: known, Versioned: workloadspread.ParseVersioned("deployment"),
		Recorder: reconcile.NewRecorder(recorder), Log: logr.Discard(), Now: now})
}

func shopSpread(t *testing.T) *appsv1beta1.WorkloadSpread {
	t.Helper()
	spread := &appsv1beta1.WorkloadSpread{}
	if err := yaml.UnmarshalStrict(
		[]byte(`{metadata: {name: shop, namespace: d, uid: u}, spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: shop},
		subsets: [{name: a, maxReplicas: 2, patch: {metadata: {labels: {pool: a}}}}, {name: bad, patch: [1]}]}}`), spread); err != nil {
		t.Fatal(err)
	}
	return spread
}

const shopPod = `{"metadata":{%s"labels":{"pod-template-hash":"h1"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"shop-h1","controller":true}]},"spec":{"containers":[{"name":"app"}]}}`

func TestSpreads(t *testing.T) {
	spread := shopSpread(t)
	into := func(i int, booked bool) func(workloadspread.Creation) workloadspread.Decision {
		return func(workloadspread.Creation) workloadspread.Decision {
			return workloadspread.Decision{Subset: &spread.Spec.Subsets[i], Booked: booked}
		}
	}
	full := func(workloadspread.Creation) workloadspread.Decision { return workloadspread.Decision{Reason: "full"} }
	for name, test := range map[string]struct {
		world   *spreadWorld
		request Request
		// want is the placement, or an error; created is the key that was booked.
		want, created string
		counted       string
	}{
		"WS-076: booked by its name": {&spreadWorld{spread: spread, decide: into(0, true)},
			Request{Raw: []byte(fmt.Sprintf(shopPod, `"name":"p",`))}, `{"name":"shop","subset":"a"}`, "p h1", "a"},
		"WS-076: or by an id": {&spreadWorld{spread: spread, decide: into(0, true)},
			Request{Raw: []byte(fmt.Sprintf(shopPod, `"generateName":"p-",`))}, `{"name":"shop","subset":"a","uid":"ID"}`, "ID h1", "a"},
		"WS-075: not booked": {&spreadWorld{spread: spread, decide: into(0, false)},
			Request{Raw: []byte(fmt.Sprintf(shopPod, ``))}, `{"name":"shop","subset":"a"}`, "ID h1", "a"},
		"WS-050: a dry run": {&spreadWorld{spread: spread, decide: into(0, true)},
			Request{DryRun: true, Raw: []byte(fmt.Sprintf(shopPod, ``))}, "", "", ""},
		"by the other entry": {&spreadWorld{spread: spread, decide: into(0, true)},
			Request{Again: true, Raw: []byte(fmt.Sprintf(shopPod, ``))}, "", "", ""},
		"WS-054: no match": {&spreadWorld{}, Request{Raw: []byte(fmt.Sprintf(shopPod, ``))}, "", "", ""},
		"WS-053: an owner is missing": {
			&spreadWorld{matchErr: apierrors.NewNotFound(schema.GroupResource{Resource: "replicasets"}, "r")},
			Request{Raw: []byte(fmt.Sprintf(shopPod, ``))}, "error", "", ""},
		"WS-077: no place": {&spreadWorld{spread: spread, decide: full},
			Request{Raw: []byte(fmt.Sprintf(shopPod, `"name":"p",`))}, "", "p h1", "-"},
		"WS-113: gone": {&spreadWorld{spread: spread,
			decide: func(workloadspread.Creation) workloadspread.Decision { return workloadspread.Decision{Gone: true} }},
			Request{Raw: []byte(fmt.Sprintf(shopPod, `"name":"p",`))}, "", "p h1", ""},
		"WS-112: not booked, so refused": {&spreadWorld{spread: spread, bookErr: booking.ErrNotBooked},
			Request{Raw: []byte(fmt.Sprintf(shopPod, `"name":"p",`))}, "error", "p h1", ""},
		"WS-094: a patch that cannot be applied": {&spreadWorld{spread: spread, decide: into(1, false)},
			Request{Raw: []byte(fmt.Sprintf(shopPod, `"name":"p",`))}, "error", "p h1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			spreads := test.world.spreads(time.Now, events.NewFakeRecorder(1))
			test.request.Namespace = "d"
			chain := NewChain(spreads.Step())
			changes, _, err := chain.Mutate(t.Context(), test.request)
			got, created := "", ""
			for _, change := range changes {
				if m, ok := change.Value.(map[string]any); ok && m[pub.MatchedWorkloadSpread] != nil {
					got = m[pub.MatchedWorkloadSpread].(string)
				}
			}
			for _, pod := range test.world.created {
				created = pod.Key + " " + pod.Version
				if pod.Generated {
					got, created = strings.ReplaceAll(got, pod.Key, "ID"), "ID "+pod.Version
				}
			}
			var internal *InternalError
			if errors.As(err, &internal) {
				got = "error"
			}
			if got != test.want || created != test.created {
				t.Errorf("%q booked %q, want %q %q: %v", got, created, test.want, test.created, err)
			}
			if !test.request.DryRun && !test.request.Again && test.world.namespace != "d" {
				t.Errorf("namespace %q", test.world.namespace)
			}
			for _, subset := range []string{"a", "bad", ""} {
				want := 0.0
				if subset == test.counted || subset == "" && test.counted == "-" {
					want = min(1, float64(len(test.counted)))
				}
				if got := testutil.ToFloat64(spreads.pods.WithLabelValues("d", "shop", subset)); got != want {
					t.Errorf("%q is counted %v times", subset, got)
				}
			}
			spreads.Forget(spread)
			if n := testutil.CollectAndCount(spreads.Metric()); n != 0 {
				t.Errorf("series of what is gone: got %d, want none", n)
			}
			if n := len(spreads.left); n != 0 {
				t.Errorf("remembered of what is gone: got %d, want none", n)
			}
		})
	}
}

// The pod has the labels of its subset when selectors of SidecarSets are applied.
func TestSidecarSetsSeeTheLabelsOfSubsets(t *testing.T) {
	spread := shopSpread(t)
	world := &spreadWorld{spread: spread, decide: func(workloadspread.Creation) workloadspread.Decision {
		return workloadspread.Decision{Subset: &spread.Spec.Subsets[0]}
	}}
	seen := &seenLabels{}
	chain := NewChain(world.spreads(time.Now, nil).Step(), NewSidecars(seen, false, time.Now).Step())
	_, _, err := chain.Mutate(t.Context(), Request{Raw: []byte(fmt.Sprintf(shopPod, ``)), Namespace: "d"})
	if err != nil {
		t.Errorf("admission of the pod: %v", err)
	}
	if seen.labels["pool"] != "a" {
		t.Errorf("labels that sidecars are chosen by: got %v, want pool a", seen.labels)
	}
}

type seenLabels struct{ labels map[string]string }

func (s *seenLabels) Choose(_ context.Context, pod *corev1.Pod, _ string) ([]*inject.Template, error) {
	s.labels = pod.Labels
	return nil, nil
}

// WS-077: the first pod without a subset is reported at once, and those of a burst together.
func TestPodsWithoutASubsetAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := events.NewFakeRecorder(10)
		world := &spreadWorld{spread: shopSpread(t), decide: func(workloadspread.Creation) workloadspread.Decision {
			return workloadspread.Decision{Reason: "a has 2 pods"}
		}}
		chain := NewChain(world.spreads(time.Now, recorder).Step())
		events := func(n int, during time.Duration) (got []string) {
			for range n {
				changes, _, err := chain.Mutate(t.Context(), Request{Raw: []byte(fmt.Sprintf(shopPod, ``)),
					Namespace: "d"})
				if err != nil {
					t.Errorf("admission of the pod: %v", err)
				}
				if len(changes) != 0 {
					t.Errorf("changes of the pod: got %v, want none", changes)
				}
			}
			time.Sleep(during) // by the clock of the synctest bubble
			synctest.Wait()
			for len(recorder.Events) > 0 {
				got = append(got,
					strings.TrimPrefix(<-recorder.Events, "Warning NoSuitableSubset Pods created without the rules of a subset: "))
			}
			return got
		}
		for _, step := range []struct {
			pods   int
			during time.Duration
			want   []string
		}{
			{1, time.Second, []string{"1; a has 2 pods"}},
			{40, time.Second, nil},
			{2, reportEvery - 3*time.Second, nil},
			{0, time.Second, []string{"42; a has 2 pods"}}, // although no further pod comes
			{0, 10 * reportEvery, nil},
			{1, time.Second, []string{"1; a has 2 pods"}},
		} {
			if diff := cmp.Diff(step.want, events(step.pods, step.during)); diff != "" {
				t.Errorf("%d pods: %s", step.pods, diff)
			}
		}
	})
}

// WS-101, WS-102, WS-106: what is booked when a pod is removed; no failure refuses the removal.
func TestRemovalsAreBookedAndNeverRefused(t *testing.T) {
	const placed = `annotations: {apps.kruise.io/matched-workloadspread: '{"name":"shop","subset":"a"}'}`
	const of = `labels: {pod-template-hash: h1}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: shop-h1, controller: true}]`
	going := shopSpread(t)
	going.DeletionTimestamp = new(metav1.Now())
	for name, test := range map[string]struct {
		spread *appsv1beta1.WorkloadSpread
		pod    string
		dry    bool
		err    error
		want   []workloadspread.Deletion
	}{
		"booked": {shopSpread(t), `{metadata: {name: p, namespace: d, ` + placed + `, ` + of + `}}`, false,
			nil, []workloadspread.Deletion{{Name: "p", Version: "h1", Subset: "a"}}},
		"WS-106: the booking fails": {shopSpread(t), `{metadata: {name: p, namespace: d, ` + placed + `, ` + of + `}}`, false,
			booking.ErrNotBooked, []workloadspread.Deletion{{Name: "p", Version: "h1", Subset: "a"}}},
		"WS-101: a dry run": {shopSpread(t), `{metadata: {name: p, namespace: d, ` + placed + `, ` + of + `}}`, true,
			nil, nil},
		"WS-102: no annotation": {shopSpread(t), `{metadata: {name: p, namespace: d, ` + of + `}}`, false, nil, nil},
		"WS-102: an unreadable annotation": {shopSpread(t),
			`{metadata: {name: p, namespace: d, annotations: {apps.kruise.io/matched-workloadspread: "{"}, ` + of + `}}`, false, nil, nil},
		"WS-102: not active": {shopSpread(t), `{metadata: {name: p, namespace: d, ` + placed + `, ` + of +
			`}, status: {phase: Succeeded}}`, false, nil, nil},
		"WS-102: ending already": {shopSpread(t),
			`{metadata: {name: p, namespace: d, deletionTimestamp: "2026-01-01T00:00:00Z", ` + placed + `, ` + of + `}}`, false, nil, nil},
		"WS-102: no controller":     {shopSpread(t), `{metadata: {name: p, namespace: d, ` + placed + `}}`, false, nil, nil},
		"WS-102: no WorkloadSpread": {nil, `{metadata: {name: p, namespace: d, ` + placed + `, ` + of + `}}`, false, nil, nil},
		"WS-102: one of another namespace": {shopSpread(t), `{metadata: {name: p, namespace: e, ` + placed + `, ` + of + `}}`, false,
			nil, nil},
		"WS-102: of another workload": {shopSpread(t), `{metadata: {name: p, namespace: d, ` + placed +
			`, ownerReferences: [{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: former, controller: true}]}}`, false, nil, nil},
		"WS-102: a terminating WorkloadSpread": {going, `{metadata: {name: p, namespace: d, ` + placed + `, ` + of + `}}`, false, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			world := &spreadWorld{spread: test.spread, bookErr: test.err}
			pod := &corev1.Pod{}
			if err := yaml.UnmarshalStrict([]byte(test.pod), pod); err != nil {
				t.Fatal(err)
			}
			chain := NewDisruptions(world.spreads(time.Now, nil).Check())
			if err := chain.Admit(t.Context(), &Disruption{Pod: pod, By: policyv1beta1.Evict, DryRun: test.dry}); err != nil {
				t.Errorf("eviction: %v", err)
			}
			if diff := cmp.Diff(test.want, world.deleted); diff != "" {
				t.Errorf("deletions that were booked (-want +got):\n%s", diff)
			}
		})
	}
}

// WS-104: what an earlier check refuses is not booked.
func TestRefusedRemovalsAreNotBooked(t *testing.T) {
	world, reason := &spreadWorld{spread: shopSpread(t)}, errors.New("too many are away")
	chain := NewDisruptions(Check{Name: "budget", Apply: func(context.Context, *Disruption) error { return reason }},
		world.spreads(time.Now, nil).Check())
	pod := &corev1.Pod{}
	if err := yaml.Unmarshal([]byte(`{metadata: {name: p, namespace: d, annotations: {apps.kruise.io/matched-workloadspread: '{"name":"shop","subset":"a"}'}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, controller: true}]}}`), pod); err != nil {
		t.Fatal(err)
	}
	err := chain.Admit(t.Context(), &Disruption{Pod: pod, By: policyv1beta1.Delete})
	if !errors.Is(err, reason) {
		t.Errorf("deletion: got %v, want %v", err, reason)
	}
	if len(world.deleted) != 0 {
		t.Errorf("deletions that were booked: got %v, want none", world.deleted)
	}
}

// What the API server refuses after the webhooks is not written into the status: a name or a label of a
// megabyte would fill the status (WS-076, WS-082).
func TestNamesThatAreNoneAreNotBooked(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, test := range map[string]struct {
		pod  string
		want int
	}{
		"as long as a name may be":  {fmt.Sprintf(shopPod, `"name":"`+long(253)+`",`), 1},
		"a longer one":              {fmt.Sprintf(shopPod, `"name":"`+long(254)+`",`), 0},
		"as long as a label may be": {strings.ReplaceAll(fmt.Sprintf(shopPod, ``), `"h1"`, `"`+long(63)+`"`), 1},
		"a longer label":            {strings.ReplaceAll(fmt.Sprintf(shopPod, ``), `"h1"`, `"`+long(1<<20)+`"`), 0},
	} {
		world := &spreadWorld{spread: shopSpread(t),
			decide: func(workloadspread.Creation) workloadspread.Decision { return workloadspread.Decision{} }}
		_, _, err := NewChain(world.spreads(time.Now, events.NewFakeRecorder(1)).Step()).Mutate(t.Context(),
			Request{Raw: []byte(test.pod), Namespace: "d"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(world.created) != test.want {
			t.Errorf("%s: booked %d times, want %d", name, len(world.created), test.want)
		}
	}
}

// WS-152: if a later step refuses a pod, its booking is released at once, unless an earlier request made it;
// and the pod does not count.
func TestPodsThatAreRefusedHereGiveTheirPlacesBack(t *testing.T) {
	spread := shopSpread(t)
	for name, test := range map[string]struct {
		pod      string
		decision workloadspread.Decision
		err      error
		admitted bool
		want     int
	}{
		"a name": {pod: `"name":"p",`, decision: workloadspread.Decision{Booked: true, Made: true}, want: 1},
		"an id": {pod: `"generateName":"p-",`, decision: workloadspread.Decision{Booked: true, Made: true},
			want: 1},
		"an id, after an answer was lost": {pod: `"generateName":"p-",`, decision: workloadspread.Decision{Booked: true}, want: 1},
		"an id, where the outcome is not known": {pod: `"generateName":"p-",`,
			err:  fmt.Errorf("%w in time", booking.ErrNotBooked),
			want: 1},
		"a name that was booked before": {pod: `"name":"p",`, decision: workloadspread.Decision{Booked: true}, want: 0},
		"not booked":                    {pod: `"name":"p",`, decision: workloadspread.Decision{}, want: 0},
		"admitted": {pod: `"name":"p",`, decision: workloadspread.Decision{Booked: true, Made: true},
			admitted: true, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			test.decision.Subset = &spread.Spec.Subsets[0]
			world := &spreadWorld{spread: spread, bookErr: test.err,
				decide: func(workloadspread.Creation) workloadspread.Decision { return test.decision }}
			spreads := world.spreads(time.Now, events.NewFakeRecorder(1))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			last := Step{Name: "last", Apply: func(context.Context, *Request) ([]operations.Operation, error) {
				if test.admitted {
					return nil, nil
				}
				cancel() // the client does not wait any more
				return nil, errors.New("no")
			}}
			_, _, err := NewChain(spreads.Step(), last).Mutate(ctx, Request{Raw: []byte(fmt.Sprintf(shopPod, test.pod)), Namespace: "d"})
			if (err == nil) != test.admitted {
				t.Fatalf("admitted: want %t, got %v", test.admitted, err)
			}
			if len(world.released) != test.want {
				t.Errorf("given back: got %+v, want %d", world.released, test.want)
			} else if test.want > 0 && world.released[0] != world.created[0] {
				t.Errorf("given back %+v, booked %+v", world.released, world.created)
			}
			counted := 0.0
			if test.admitted {
				counted = 1
			}
			if n := testutil.ToFloat64(spreads.pods.WithLabelValues("d", "shop", "a")); n != counted {
				t.Errorf("%v pods are counted", n)
			}
		})
	}
}

// WS-077: a pod that gets no subset has no annotation of one, also if its manifest was copied from a pod that
// had.
func TestPodsWithoutASubsetHaveNoAnnotation(t *testing.T) {
	world := &spreadWorld{spread: shopSpread(t),
		decide: func(workloadspread.Creation) workloadspread.Decision { return workloadspread.Decision{Reason: "full"} }}
	chain := NewChain(world.spreads(time.Now, events.NewFakeRecorder(1)).Step())
	raw := fmt.Sprintf(shopPod,
		`"name":"p","annotations":{"apps.kruise.io/matched-workloadspread":"{\"name\":\"shop\",\"subset\":\"a\"}","other":"x"},`)
	changes, _, err := chain.Mutate(t.Context(), Request{Raw: []byte(raw), Namespace: "d"})
	if err != nil {
		t.Errorf("admission of the pod: %v", err)
	}
	want := `{"op":"remove","path":"/metadata/annotations/apps.kruise.io~1matched-workloadspread"}`
	if len(changes) != 1 || changes[0].Json() != want {
		t.Errorf("changes of the pod: got %v, want %s alone", changes, want)
	}
}

// WS-077: the API server takes no event of more than 1 KiB, and a message may concern many subsets.
func TestNoEventIsTooLong(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	world := &spreadWorld{spread: shopSpread(t), decide: func(workloadspread.Creation) workloadspread.Decision {
		return workloadspread.Decision{Reason: strings.Repeat("zone has 12 pods, 0 are coming, 0 are going; ", 50)}
	}}
	chain := NewChain(world.spreads(time.Now, recorder).Step())
	if _, _, err := chain.Mutate(t.Context(), Request{Raw: []byte(fmt.Sprintf(shopPod, ``)), Namespace: "d"}); err != nil {
		t.Fatal(err)
	}
	if events := strings.TrimPrefix(<-recorder.Events, "Warning NoSuitableSubset "); len(events) > 1024 {
		t.Errorf("%d bytes", len(events))
	}
}
