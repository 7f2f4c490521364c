package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestCreationIsAStream: once a creation failed no further one begins, and those that run end; after that one
// pod shows whether creation is possible again before the others follow (CS-047).
func TestCreationIsAStream(t *testing.T) {
	for _, atOnce := range []int{1, 16} {
		t.Run(fmt.Sprint(atOnce, " at once"), func(t *testing.T) {
			s := simulate(1, clonesettest.Set(100), cloneset.Features{})
			s.kind.Limit = reconcile.NewWriteLimiter(atOnce)
			requests, refusesFrom := 0, 5
			s.Answer = func(r *simulation.Request) error {
				if r.Verb == "create" && r.Key.Kind == "Pod" {
					if requests++; requests >= refusesFrom {
						return apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("over quota"))
					}
				}
				return nil
			}
			s.Events(1 << 20)
			if _, _, err := s.Once(); err == nil {
				t.Fatalf("error: got nil, want an error; %d pods after %d requests; %v", len(s.AllPods()), requests, err)
			} else if got := len(s.AllPods()); got != 4 {
				t.Fatalf("number of pods: got %d, want 4; %d pods after %d requests; %v", got, len(s.AllPods()), requests,
					err)
			} else if requests > 4+atOnce {
				t.Fatalf("requests: got %d, want at most %d; %d pods after %d requests; %v", requests, 4+atOnce, len(s.AllPods()), requests, err)
			}
			asked := requests
			s.Pass(firstAttempt)
			if _, _, err := s.Once(); err == nil {
				t.Errorf("error: got nil, want an error; %d pods are tried at the second attempt; %v", requests-asked,
					err)
			} else if requests != asked+1 {
				t.Errorf("requests: got %d, want %d; %d pods are tried at the second attempt; %v", requests, asked+1, requests-asked, err)
			}
			refusesFrom, asked = 1<<20, requests
			s.Pass(2 * firstAttempt)
			_, outcome, err := s.Once()
			if err != nil {
				t.Errorf("unexpected error: %v; %d pods are tried when it is possible again, the next after %s; %v", err, requests-asked,
					outcome.After, err)
			} else if requests != asked+1 {
				t.Errorf("requests: got %d, want %d; %d pods are tried when it is possible again, the next after %s; %v", requests, asked+1,
					requests-asked, outcome.After, err)
			} else if outcome.After > time.Millisecond {
				t.Errorf("time to the next pass: got %v, want at most %v; %d pods are tried when it is possible again, the next after %s; %v", outcome.After,
					time.Millisecond, requests-asked, outcome.After, err)
			}
			if _, _, err := s.Once(); err != nil {
				t.Errorf("unexpected error: %v; %d pods; %v", err, len(s.AllPods()), err)
			} else if got := len(s.AllPods()); got != 100 {
				t.Errorf("number of pods: got %d, want 100; %d pods; %v", got, len(s.AllPods()), err)
			}
		})
	}
}

// firstAttempt is when creation is tried again after it failed once.
const firstAttempt = time.Second

// TestEventsHoldNoSpec: messages name the object and the error, never what is in the pod (CS-236, CS-350).
func TestEventsHoldNoSpec(t *testing.T) {
	s := simulate(1, clonesettest.Set(1, clonesettest.Env("s3cr3t"), clonesettest.Claims("1Gi")), cloneset.Features{})
	s.Refused = func(w simulation.Write) bool { return w.Key.Kind == "Pod" }
	for range 5 {
		s.Round()
	}
	if len(s.Recorded) == 0 {
		t.Fatalf("events: got none, want some\n%v", s.Recorded)
	} else if !strings.Contains(s.Recorded[0], "FailedCreate failed to create pod web-") {
		t.Fatalf("first event: got %q, want it to contain %q\n%v", s.Recorded[0],
			"FailedCreate failed to create pod web-", s.Recorded)
	}
	for _, event := range s.Recorded {
		if strings.Contains(event, "s3cr3t") {
			t.Errorf("event: got %q, want it not to contain %q", event, "s3cr3t")
		}
	}
}

// TestServerRefusesAnUpdate: where the policy allows it the pod is recreated, else the server's words are
// reported (IPU-085, IPU-184, IPU-175, IPU-190).
func TestServerRefusesAnUpdate(t *testing.T) {
	for name, tt := range map[string]struct {
		policy appsv1beta1.CloneSetPodUpdatePolicy
		gone   bool
		err    error
	}{"InPlaceIfPossible": {appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy, true,
		nil}, "InPlaceOnly": {appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy, false, nil},
		"a server without resize, InPlaceIfPossible": {appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy, true,
			apierrors.NewMethodNotSupported(corev1.Resource("pods"), "QoS")},
		"a server without resize, InPlaceOnly": {appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy, false,
			apierrors.NewMethodNotSupported(corev1.Resource("pods"), "QoS")},
		"forbidden, InPlaceIfPossible": {appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy, false,
			apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("QoS"))}} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, clonesettest.Set(1, clonesettest.Policy(tt.policy), clonesettest.App("nginx:1", "a", "", clonesettest.CPU("2"))),
				cloneset.Features{InPlace: inplace.Options{Resize: true}})
			if err := s.Settle(100); err != nil {
				t.Fatal(err)
			}
			before := s.active()[0]
			s.Answer = unresizable(tt.err)
			s.Edit(clonesettest.App("nginx:1", "a", "", clonesettest.CPU("3")))
			for range 30 {
				s.Round()
			}
			if gone := s.Get(podKey(before.Name)) == nil; gone != tt.gone {
				t.Errorf("the pod is gone: %v", gone)
			}
			var told bool
			for _, event := range s.Recorded {
				told = told || strings.HasPrefix(event, "Warning FailedUpdatePodInPlace") && strings.Contains(event, "QoS") &&
					strings.Contains(event, before.Name)
			}
			if !told {
				t.Errorf("no event says so: %v", s.Recorded)
			}
			if !tt.gone {
				if c := cloneset.Condition(&s.set().Status, appsv1beta1.CloneSetConditionFailedUpdate); c == nil {
					t.Error("c: got nil, want a value")
				} else if !strings.Contains(c.Message, "QoS") {
					t.Errorf("message: got %q, want it to contain %q; condition %+v", c.Message, "QoS", c)
				}
			}
		})
	}
}

// unresizable answers a resize as a server does that finds it against the pod's QoS class, or with that
// error.
func unresizable(err error) func(*simulation.Request) error {
	return func(r *simulation.Request) error {
		switch {
		case r.Subresource != "resize" || !strings.Contains(string(r.Body), `"3"`):
			return nil
		case err != nil:
			return err
		}
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), r.Key.Name,
			field.ErrorList{field.Invalid(field.NewPath("metadata"), r.Key.Name, "Pod QoS is immutable")})
	}
}

// IPU-080: out of service, then the resize, then one write of the pod; where one of them fails none of the
// later ones is sent.
func TestStepsOfAnUpdate(t *testing.T) {
	steps := []simulation.Write{{Verb: "patch", Subresource: "status"}, {Verb: "patch", Subresource: "resize"}, {Verb: "patch"}}
	for failing := range 4 {
		s := atRest(t, clonesettest.Set(1, clonesettest.App("nginx:1", "a", "", clonesettest.CPU("2"))),
			cloneset.Features{InPlace: inplace.Options{Resize: true}})
		name, begin := s.active()[0].Name, len(s.Writes)
		refused := 0
		s.Refused = func(w simulation.Write) bool {
			if w.Key == podKey(name) && failing < 3 && w.Subresource == steps[failing].Subresource {
				refused++
				return true
			}
			return false
		}
		s.Edit(clonesettest.App("nginx:2", "a", "", clonesettest.CPU("3")))
		for range 4 {
			s.Events(1 << 20)
			s.Queue.Add()
			s.Manage() // and nobody else acts
		}
		var got []simulation.Write
		for _, w := range s.Writes[begin:] {
			if w.Key == podKey(name) {
				w.Key = simulation.Key{}
				got = append(got, w)
			}
		}
		want := steps[:failing:failing]
		switch failing {
		case 2: // the pod goes back into service until the next attempt
			want = append(want, steps[0])
		case 3:
			want = steps
		}
		if got = slices.Compact(got); !slices.Equal(want, got) {
			t.Errorf("steps: got %v, want %v; step %d fails, %d times", got, want, failing+1, refused)
		} else if refused == 0 && failing < 3 {
			t.Errorf("failing: got %d, want at least 3; step %d fails, %d times: %+v, want %+v", failing, failing+1, refused, got, want)
		}
	}
}

// TestNodeTooSmall: a resize that the server forbids because the node can never hold it replaces the pod
// (IPU-315).
func TestNodeTooSmall(t *testing.T) {
	s := simulate(1, clonesettest.Set(1, clonesettest.App("nginx:1", "a", "", clonesettest.CPU("2"))),
		cloneset.Features{InPlace: inplace.Options{Resize: true}})
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	before := s.active()[0]
	s.Answer = unresizable(apierrors.NewForbidden(corev1.Resource("pods"), before.Name,
		errors.New("node didn't have enough allocatable resources: cpu, requested: 999000, allocatable: 2000")))
	s.Edit(clonesettest.App("nginx:1", "a", "", clonesettest.CPU("3")))
	for range 30 {
		s.Round()
	}
	if s.Get(podKey(before.Name)) != nil {
		t.Errorf("the pod is still there: %v", s.Recorded)
	}
}

// TestOwnWritesAreKnownBeforeTheCacheShowsThem: a rollout goes on from the answers of its writes, and does
// nothing twice, although no cache shows any of them (CS-073 (part), IPU-086).
func TestOwnWritesAreKnownBeforeTheCacheShowsThem(t *testing.T) {
	s := simulate(1, clonesettest.Set(1), cloneset.Features{})
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	s.Edit(clonesettest.Image("nginx:2"))
	s.Events(1 << 20)
	before := len(s.Writes)
	for range 10 {
		if _, _, err := s.Once(); err != nil {
			t.Fatal(err)
		}
	}
	var written []string
	for _, w := range s.Writes[before:] {
		written = append(written, strings.TrimSpace(w.Verb+" "+w.Key.Kind+" "+w.Subresource))
	}
	want := []string{"create ControllerRevision", "patch Pod status", "patch Pod", "patch CloneSet status", "patch CloneSet status"}
	if diff := cmp.Diff(want, written); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}

// Updates started, what waits, and how long an update takes (CS-238, IPU-193).
func TestUpdatesAreMetered(t *testing.T) {
	m := podapply.NewMeters("cloneset")
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.All()...)
	s := simulate(1, clonesettest.Set(2), cloneset.Features{})
	s.Planned = func(plan *cloneset.Plan, outcome podapply.Outcome) {
		m.Observe(client.ObjectKeyFromObject(plan.Set), &plan.Plan, outcome)
	}
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	s.Edit(clonesettest.Image("nginx:2"))
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	actions, ok := m.All()[0].(*prometheus.CounterVec)
	if !ok {
		t.Fatal("no counter of actions")
	}
	if got := testutil.ToFloat64(actions.WithLabelValues(string(podplan.UpdateInPlace), string(podplan.ReasonOutdated))); got != 2 {
		t.Errorf("%v updates started", got)
	}
	for metric, want := range map[string]int{"afloat_cloneset_pods_waiting": 0, "afloat_inplace_update_duration_seconds": 1} {
		if got, err := testutil.GatherAndCount(registry, metric); err != nil {
			t.Errorf("unexpected error: %v; %d of %s at rest, %v", err, got, metric, err)
		} else if got != want {
			t.Errorf("number of series: got %d, want %d; %d of %s at rest, %v", got, want, got, metric, err)
		}
	}
}

// TestStateLivesOnThePod: whatever the manager has to remember of an update stands on the pod, so that a new
// one goes on (IPU-003).
func TestStateLivesOnThePod(t *testing.T) {
	s := simulate(1, clonesettest.Set(1), cloneset.Features{})
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	s.Edit(clonesettest.Image("nginx:2"))
	for s.active()[0].Annotations[pub.InPlaceUpdateState] == "" {
		s.Round()
	}
	s.kind.Features = cloneset.Features{}
	s.Start()
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("Normal", s.active()[0].Labels[pub.LifecycleState]); diff != "" {
		t.Errorf("label lifecycle state of the first active (-want +got):\n%s", diff)
	}
}

// IPU-116: a resize is sent as a patch of its subresource, the one verb that is granted
// (TestRightsForDaemonKinds of the roles), and nothing else is.
func TestResizeIsSentAsPatch(t *testing.T) {
	var sent []string
	record := func(what string) { sent = append(sent, what) }
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			record("get")
			return nil
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			record("patch")
			return nil
		},
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			record("update")
			return nil
		},
		SubResourceGet: func(_ context.Context, _ client.Client, name string, _ client.Object, _ client.Object,
			_ ...client.SubResourceGetOption) error {
			record("get " + name)
			return nil
		},
		SubResourceUpdate: func(_ context.Context, _ client.Client, name string, _ client.Object,
			_ ...client.SubResourceUpdateOption) error {
			record("update " + name)
			return nil
		},
		SubResourcePatch: func(_ context.Context, _ client.Client, name string, _ client.Object, patch client.Patch,
			_ ...client.SubResourcePatchOption) error {
			body, err := patch.Data(nil)
			if patch.Type() != types.StrategicMergePatchType {
				err = errors.New("of another type")
			}
			record("patch " + name + " " + string(body))
			return err
		}})
	w := reconcile.NewAPI(c, c, slim.Any, time.Now).For("owner")
	if _, err := reconcile.Patch(t.Context(), w, clonesettest.Pod("a", "web-1"), []byte(`{"spec":{}}`), "resize"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`patch resize {"spec":{}}`}, sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
}
