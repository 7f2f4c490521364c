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
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

// CS-002: a rollout by recreation writes pods, claims and revisions, and no object of another kind beside the
// set itself; pods and claims are controlled by the set, and its revisions hold the templates that it has
// had.
func TestPodsAndClaimsAreTheSetsOwn(t *testing.T) {
	s := atRest(t, clonesettest.Set(2, clonesettest.Claims("1Gi")), cloneset.Features{})
	s.Edit(clonesettest.Both(clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy), clonesettest.Image("nginx:2")))
	if err := s.Settle(300); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"Pod", "PersistentVolumeClaim", "ControllerRevision"} {
		objects := s.List(kind, false)
		if len(objects) != 2 {
			t.Errorf("%d objects of kind %s", len(objects), kind)
		}
		for _, o := range objects {
			if owner := metav1.GetControllerOf(o); owner == nil {
				t.Errorf("owner: got nil, want a value; %s %s is controlled by %+v", kind, o.GetName(), owner)
			} else if owner.Kind != "CloneSet" {
				t.Errorf("kind of the owner: got %q, want %q; %s %s is controlled by %+v", owner.Kind, "CloneSet", kind,
					o.GetName(), owner)
			} else if want := s.set().UID; owner.UID != want {
				t.Errorf("UID of the owner: got %q, want %q; %s %s is controlled by %+v", owner.UID, want, kind,
					o.GetName(), owner)
			}
		}
	}
	var kinds, images []string
	for _, w := range s.Writes {
		kinds = append(kinds, w.Key.Kind)
	}
	slices.Sort(kinds)
	if kinds = slices.Compact(kinds); !slices.Equal(kinds, []string{"CloneSet", "ControllerRevision", "PersistentVolumeClaim", "Pod"}) {
		t.Errorf("written were %v", kinds)
	}
	for _, o := range s.List("ControllerRevision", false) {
		for _, image := range []string{"nginx:1", "nginx:2"} {
			if strings.Contains(string(o.(*appsv1.ControllerRevision).Data.Raw), fmt.Sprintf(`"image":%q`, image)) {
				images = append(images, image)
			}
		}
	}
	if slices.Sort(images); !slices.Equal(images, []string{"nginx:1", "nginx:2"}) {
		t.Errorf("the revisions hold %v", images)
	}
}

// CS-003: names come from chance and do not count up, and no pod waits for another: all are made in one pass,
// whatever became of those before, and one in the middle that never comes up holds up neither creation nor
// the scale-in of others.
func TestPodsHaveNoOrder(t *testing.T) {
	named := func(seed uint64) []string {
		s := simulate(seed, clonesettest.Set(4), cloneset.Features{})
		s.managed(time.Second)
		var names []string
		for _, pod := range s.AllPods() {
			names = append(names, pod.Name)
		}
		return names
	}
	first, second := named(1), named(2)
	if len(first) != 4 || len(second) != 4 {
		t.Errorf("one set has pods %v, the other %v, want 4 of each", first, second)
	}
	if slices.ContainsFunc(first, func(name string) bool { return slices.Contains(second, name) }) {
		t.Errorf("one set has pods %v, the other %v, want other names", first, second)
	}
	s := atRest(t, clonesettest.Set(3), cloneset.Features{})
	s.Node.Frozen = map[string]bool{s.active()[1].Name: true}
	s.Change(podKey(s.active()[1].Name), func(o client.Object) { notReadyNow(o.(*corev1.Pod)) })
	s.Edit(clonesettest.Replicas(6))
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	status := s.set().Status
	if status.Replicas != 6 {
		t.Errorf("replicas: got %d, want 6\n%+v", status.Replicas, status)
	}
	if status.AvailableReplicas != 5 {
		t.Errorf("available replicas: got %d, want 5\n%+v", status.AvailableReplicas, status)
	}
}

// CS-136: a pod that its hook holds prepares its deletion. Any other is deleted after its claims were made
// its own, and an event says so; that it is gone already is no failure. A failure is told and does not hold
// up others, and a deletion that the server refused comes behind those for 10 minutes.
func TestDeletionOfOnePod(t *testing.T) {
	remove := func(s *simulated, names ...string) {
		for _, name := range names {
			s.Change(podKey(name), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
		}
	}
	t.Run("its hook holds it", func(t *testing.T) {
		s := atRest(t, clonesettest.Set(1, clonesettest.Claims("1Gi"), func(set *appsv1beta1.CloneSet) {
			set.Spec.Lifecycle = &pub.Lifecycle{PreDelete: &pub.LifecycleHook{LabelsHandler: map[string]string{"traffic": "on"}}}
		}, clonesettest.HookedImage("nginx:1")), cloneset.Features{})
		pod, claim := s.active()[0], s.data()[s.active()[0].Name]
		remove(s, pod.Name)
		if err := s.Settle(100); err != nil {
			t.Fatal(err)
		}
		now, _ := s.Get(podKey(pod.Name)).(*corev1.Pod)
		if now == nil {
			t.Errorf("now: got nil, want a value; %+v, events %q", now, s.Recorded)
		} else if now.UID != pod.UID {
			t.Errorf("UID: got %q, want %q; %+v, events %q", now.UID, pod.UID, now, s.Recorded)
		} else if !readiness.Active(now) {
			t.Errorf("the pod is active: got false, want true; %+v, events %q", now, s.Recorded)
		} else if now.Labels[pub.LifecycleState] != string(pub.LifecycleStatePreparingDelete) {
			t.Errorf("label lifecycle state: got %q, want %q; %+v, events %q", now.Labels[pub.LifecycleState],
				string(pub.LifecycleStatePreparingDelete), now, s.Recorded)
		} else if got := s.data()[pod.Name]; got != claim {
			t.Errorf("claim of the pod: got %q, want %q; %+v, events %q", got, claim, now, s.Recorded)
		} else if got := len(s.reported("SuccessfulDelete")); got != 0 {
			t.Errorf(`number of events SuccessfulDelete: got %d, want 0; %+v, events %q`, got, now, s.Recorded)
		}
	})
	t.Run("its claims, the pod, the event", func(t *testing.T) {
		s := atRest(t, clonesettest.Set(2, clonesettest.Claims("1Gi")), cloneset.Features{})
		name, begin := s.active()[0].Name, len(s.Writes)
		remove(s, name)
		if err := s.Settle(100); err != nil {
			t.Fatal(err)
		}
		handed := slices.Index(s.Writes[begin:], simulation.Write{Verb: "patch", Key: claimKey("data-" + name)})
		deleted := slices.Index(s.Writes[begin:], simulation.Write{Verb: "delete", Key: podKey(name)})
		if handed < 0 {
			t.Errorf("handed: got %d, want at least 0\n%+v", handed, s.Writes[begin:])
		} else if deleted < handed {
			t.Errorf("deleted: got %d, want at least %d\n%+v", deleted, handed, s.Writes[begin:])
		} else if got := s.Get(podKey(name)); got != nil {
			t.Errorf("pod: got %v, want nil\n%+v", got, s.Writes[begin:])
		} else if got := s.Get(claimKey("data-" + name)); got != nil {
			t.Errorf("claim of the pod: got %v, want nil\n%+v", got, s.Writes[begin:])
		}
		if got := s.reported("Normal SuccessfulDelete deleted pod " + name + ","); len(got) != 1 {
			t.Errorf("events: got %q, want one deletion of pod %s", s.Recorded, name)
		}
		if len(s.reported("FailedDelete")) != 0 {
			t.Errorf("events: got %q, want no deletion that failed", s.Recorded)
		}
	})
	t.Run("it is gone already", func(t *testing.T) {
		s := atRest(t, clonesettest.Set(2), cloneset.Features{})
		name := s.active()[0].Name
		s.Answer = deleting(func(pod string) error {
			s.Remove(podKey(pod))
			return apierrors.NewNotFound(corev1.Resource("pods"), pod)
		})
		remove(s, name)
		if err := s.Settle(100); err != nil {
			t.Fatal(err)
		}
		if got := len(s.reported("SuccessfulDelete deleted pod " + name)); got != 1 {
			t.Errorf("number of events SuccessfulDelete of the pod: got %d, want 1\n%q\n%+v", got, s.Recorded,
				s.set().Status)
		}
		if got := len(s.reported("FailedDelete")); got != 0 {
			t.Errorf("number of events FailedDelete: got %d, want 0\n%q\n%+v", got, s.Recorded, s.set().Status)
		}
		if got := len(s.set().Status.Conditions); got > 0 {
			t.Errorf("conditions: got %d, want none\n%q\n%+v", got, s.Recorded, s.set().Status)
		}
		if got := len(s.active()); got != 2 {
			t.Errorf("number active: got %d, want 2\n%q\n%+v", got, s.Recorded, s.set().Status)
		}
	})
	t.Run("a refusal, and who comes first then", func(t *testing.T) {
		s := atRest(t, clonesettest.Set(4, clonesettest.MaxUnavailable(2)), cloneset.Features{})
		protected, other := s.active()[0].Name, s.active()[1].Name
		var asked []string
		s.Answer = deleting(func(pod string) error {
			asked = append(asked, pod)
			if pod == protected {
				return apierrors.NewForbidden(corev1.Resource("pods"), pod, errors.New("admission webhook denied the request"))
			}
			return nil
		})
		remove(s, protected, other)
		s.advance(time.Second)
		if len(asked) == 0 {
			t.Fatal("nothing was deleted")
		}
		if got := len(s.reported("Warning FailedDelete failed to delete pod " + protected + ": ")); got == 0 {
			t.Errorf(`events FailedDelete of the protected pod: got none, want some; %s was to stay and %s to go: %q`,
				protected, other, s.Recorded)
		} else if got := s.Get(podKey(protected)); got == nil {
			t.Errorf("protected pod: got nil, want a value; %s was to stay and %s to go: %q", protected, other,
				s.Recorded)
		} else if got := s.Get(podKey(other)); got != nil {
			t.Errorf("other pod: got %v, want nil; %s was to stay and %s to go: %q", got, protected, other, s.Recorded)
		}
		plan := func(refused bool) map[string]string {
			one := s.Get(revisionKey(s.set().Status.UpdateRevision)).(*appsv1.ControllerRevision)
			pods := []*corev1.Pod{clonesettest.Pod("a", one.Name, clonesettest.Settled), clonesettest.Pod("b", one.Name, clonesettest.Settled)}
			for _, pod := range pods {
				pod.UID, pod.Labels[pub.SpecifiedDelete] = types.UID(pod.Name), ""
			}
			snapshot := cloneset.Snapshot{Set: clonesettest.Set(2),
				Snapshot: podplan.Snapshot{Pods: pods, Revisions: []*appsv1.ControllerRevision{one},
					Now: clonesettest.Now}, Random: func(int) int { return 0 }}
			if refused {
				snapshot.Refused = map[types.UID]time.Time{"a": clonesettest.Now.Add(-time.Minute)}
			}
			return clonesettest.Actions(cloneset.Make(snapshot).Verdicts)
		}
		if diff := cmp.Diff([]map[string]string{{"a": "delete: SpecifiedDelete", "b": "wait: MaxUnavailable"},
			{"a": "wait: MaxUnavailable", "b": "delete: SpecifiedDelete"}},
			[]map[string]string{plan(false), plan(true)}); diff != "" {
			t.Errorf("what is done to the pods (-want +got):\n%s", diff)
		}
	})
	t.Run("the options are the server's own", func(t *testing.T) {
		pod := clonesettest.Pod("a", "web-1")
		var sent *client.DeleteOptions
		c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
				sent = (&client.DeleteOptions{}).ApplyOptions(options)
				return errors.New("enough")
			}})
		_ = reconcile.NewAPI(c, c, slim.Any, time.Now).For("owner").Delete(t.Context(), pod)
		if sent == nil {
			t.Error("sent: got nil, want a value")
		} else if sent.GracePeriodSeconds != nil {
			t.Errorf("grace period in seconds: got a value, want nil\n%+v", sent)
		} else if sent.PropagationPolicy != nil {
			t.Errorf("propagation policy: got a value, want nil\n%+v", sent)
		} else if len(sent.DryRun) > 0 {
			t.Errorf("dry run: got %q, want none\n%+v", sent.DryRun, sent)
		} else if *sent.Preconditions.UID != pod.UID {
			t.Errorf("UID of the preconditions: got %q, want %q\n%+v", *sent.Preconditions.UID, pod.UID, sent)
		} else if *sent.Preconditions.ResourceVersion != pod.ResourceVersion {
			t.Errorf("resource version of the preconditions: got %q, want %q\n%+v",
				*sent.Preconditions.ResourceVersion, pod.ResourceVersion, sent)
		}
	})
}

// deleting answers deletions of pods.
func deleting(answer func(pod string) error) func(*simulation.Request) error {
	return func(r *simulation.Request) error {
		if r.Verb == "delete" && r.Key.Kind == "Pod" {
			return answer(r.Key.Name)
		}
		return nil
	}
}
