package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// stored are the images of the stored revisions of the set.
func (s *simulated) stored() string {
	var images []string
	for _, object := range s.List("ControllerRevision", false) {
		if _, after, found := strings.Cut(string(object.(*appsv1.ControllerRevision).Data.Raw), `"nginx:`); found {
			images = append(images, after[:1])
		}
	}
	slices.Sort(images)
	return strings.Join(images, " ")
}

// TestRevisionsBeyondTheLimitGo shows ASTS-086: revisions go, the oldest first, but for as many as
// revisionHistoryLimit, the current one, the update revision, and those that pods are labelled with; also in
// passes that fail.
func TestRevisionsBeyondTheLimitGo(t *testing.T) {
	limit := func(n int32) func(*appsv1beta1.StatefulSet) {
		return func(set *appsv1beta1.StatefulSet) { set.Spec.RevisionHistoryLimit = &n }
	}
	s := simulate(1, makeSet(2, limit(3), inParallel, func(set *appsv1beta1.StatefulSet) {
		set.Spec.UpdateStrategy.Type = appsv1beta1.OnDeleteStatefulSetStrategyType // so that pods and the current revision stay what they are
	}), statefulset.Features{})
	s.ActFor(time.Minute)
	to := func(change func(*appsv1beta1.StatefulSet), want string) {
		t.Helper()
		s.Edit(change)
		s.ActFor(5 * time.Minute)
		if got := s.stored(); got != want {
			t.Errorf("revisions %s, not %s", got, want)
		}
	}
	to(image("nginx:2"), "1 2")
	to(image("nginx:3"), "1 2 3")
	s.EndGracefully(podKey("web-0"))
	s.ActFor(time.Minute)
	to(image("nginx:4"), "1 2 3 4")
	s.EndGracefully(podKey("web-1"))
	s.ActFor(time.Minute)
	to(image("nginx:5"), "1 2 3 4 5")
	to(image("nginx:6"), "1 2 3 4 5 6")
	to(image("nginx:7"), "1 2 3 4 5 6 7") // 1 is the current one, and 3 and 4 are those of pods
	to(image("nginx:8"), "1 3 4 5 6 7 8") // so that 2 is the oldest of four
	to(limit(2), "1 3 4 6 7 8")           // 5 is the oldest of three
	to(image("nginx:6"), "1 3 4 6 7 8")   // which comes back, with a number of its own
	to(limit(1), "1 3 4 6 8")             // 7 is the older of two
	s.Deny(func(r *simulation.Request) bool { return r.Verb != "delete" && r.Key.Kind == "Pod" })
	s.Change(podKey("web-0"), func(o client.Object) { delete(o.GetLabels(), appsv1.StatefulSetPodNameLabel) }) // all passes fail
	s.EndGracefully(podKey("web-1"))
	to(image("nginx:9"), "1 3 6 9") // 4 and 8 are older than 6, which was raised
	if len(s.set().Status.Conditions) != 2 {
		t.Errorf("what fails is %+v", s.set().Status.Conditions)
	}
	to(limit(0), "1 3 9")
	s.Answer = nil
	to(func(set *appsv1beta1.StatefulSet) {
		set.Spec.UpdateStrategy.Type = appsv1beta1.RollingUpdateStatefulSetStrategyType
	}, "9")
}

// TestACollisionOfNames shows ASTS-084, with TestARevisionToBeAdoptedIsNoCollision: where the name of a new
// revision is taken by another content, whosever it is and whether or not the caches show it, the collision
// count is raised and another name is found.
func TestACollisionOfNames(t *testing.T) {
	first := simulate(1, makeSet(1), statefulset.Features{})
	first.ActFor(time.Minute)
	name := first.set().Status.UpdateRevision
	for kind, labels := range map[string]map[string]string{"one that the selector matches": {"app": "web"}, "one of others": nil} {
		t.Run(kind, func(t *testing.T) {
			s := simulate(1, makeSet(1), statefulset.Features{})
			s.storeRevision(name, labels)
			s.ActFor(time.Minute)
			is := s.set().Status
			if is.CollisionCount == nil {
				t.Errorf("collision count: got nil, want a value; status %+v", is)
			} else if *is.CollisionCount != 1 {
				t.Errorf("collision count: got %d, want 1; status %+v", *is.CollisionCount, is)
			} else if is.UpdateRevision == name {
				t.Errorf("update revision: got %q, want another value; status %+v", is.UpdateRevision, is)
			} else if !strings.HasPrefix(is.UpdateRevision, "web-") {
				t.Errorf("update revision: got %q, want it to begin with %q; status %+v", is.UpdateRevision, "web-", is)
			} else if is.UpdatedAvailableReplicas != 1 {
				t.Errorf("updated and available replicas: got %d, want 1; status %+v", is.UpdatedAvailableReplicas, is)
			}
			made, _ := s.Get(revisionKey(is.UpdateRevision)).(*appsv1.ControllerRevision)
			if made == nil {
				t.Error("made: got nil, want a value")
			} else if !strings.Contains(string(made.Data.Raw), "nginx:1") {
				t.Errorf("data: got %q, want it to contain %q\n%+v", string(made.Data.Raw), "nginx:1", made)
			} else if "web-"+made.Labels["controller.kubernetes.io/hash"] != made.Name {
				t.Errorf("name of the revision: got %q, want %q, by its hash\n%+v",
					made.Name, "web-"+made.Labels["controller.kubernetes.io/hash"], made)
			}
			if other := s.Get(revisionKey(name)).(*appsv1.ControllerRevision); !strings.Contains(string(other.Data.Raw), name) {
				t.Errorf("the other one is %s", other.Data.Raw)
			}
		})
	}
}

// TestARevisionToBeAdoptedIsNoCollision shows that a set which is handed over keeps its revision although the
// caches do not show yet that the former owner gave it up: the pods keep their labels (ASTS-071 (part),
// ASTS-084 (part)).
func TestARevisionToBeAdoptedIsNoCollision(t *testing.T) {
	s := started(t, makeSet(2), statefulset.Features{})
	name := s.set().Status.UpdateRevision
	for _, key := range []simulation.Key{revisionKey(name), podKey("web-0"), podKey("web-1")} {
		s.Change(key, func(o client.Object) { o.SetOwnerReferences(nil) })
	}
	s.Remove(setKey)
	s.Store(setKey, makeSet(2))
	s.kind.Features = statefulset.Features{}
	s.Start()
	s.Hide(revisionKey(name))
	s.ActFor(time.Minute)
	is := s.set().Status
	if is.UpdateRevision != name {
		t.Errorf("update revision: got %q, want %q\n%+v\n%s", is.UpdateRevision, name, is, s.describe())
	} else if is.CollisionCount != nil {
		t.Errorf("collision count: got a value, want nil\n%+v\n%s", is, s.describe())
	} else if got := len(s.List("ControllerRevision", false)); got != 1 {
		t.Errorf("number of revisions: got %d, want 1\n%+v\n%s", got, is, s.describe())
	} else if is.AvailableReplicas != 2 {
		t.Errorf("available replicas: got %d, want 2\n%+v\n%s", is.AvailableReplicas, is, s.describe())
	}
}
