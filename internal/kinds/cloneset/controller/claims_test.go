package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// atRest is a set at rest.
func atRest(t *testing.T, set *appsv1beta1.CloneSet, features cloneset.Features) *simulated {
	t.Helper()
	s := simulate(1, set, features)
	if err := s.Settle(300); err != nil {
		t.Fatal(err)
	}
	return s
}

func withoutReuse(set *appsv1beta1.CloneSet) { set.Spec.ScaleStrategy.EnablePVCReuse = false }

// data are the UIDs of the claims of the active pods, by pod.
func (s *simulated) data() map[string]types.UID {
	uids := map[string]types.UID{}
	for _, pod := range s.active() {
		if claim := s.Get(claimKey("data-" + pod.Name)); claim != nil && claim.GetDeletionTimestamp() == nil {
			uids[pod.Name] = claim.GetUID()
		}
	}
	return uids
}

// managed lets the manager alone act until it comes to rest or the time is over.
func (s *simulated) managed(d time.Duration) {
	for end := s.Now().Add(d); s.Now().Before(end); {
		s.Events(1 << 20)
		if !s.Manage() {
			s.Pass(100 * time.Millisecond)
		}
	}
}

// TestDeletedPodComesBackToItsData: a pod that somebody deleted comes back under its name, with its claim,
// whether it goes at once or takes its grace period (CS-061 (part), CS-272).
func TestDeletedPodComesBackToItsData(t *testing.T) {
	for name, remove := range map[string]func(*simulated, string){
		"deleted":     func(s *simulated, name string) { s.EndGracefully(podKey(name)) },
		"by force":    func(s *simulated, name string) { s.Remove(podKey(name)) },
		"at any time": func(s *simulated, name string) { s.EndGracefully(podKey(name)); s.managed(20 * time.Second) },
		"evicted by kubelet": func(s *simulated, name string) {
			s.Change(podKey(name), func(o client.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodFailed })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := atRest(t, clonesettest.Set(3, clonesettest.Claims("1Gi")), cloneset.Features{})
			before := s.data()
			remove(s, s.active()[0].Name)
			if err := s.Settle(100); err != nil {
				t.Fatal(err)
			}
			for pod, uid := range before {
				if now := s.data()[pod]; now != uid {
					t.Errorf("pod %s has claim %q instead of %q", pod, now, uid)
				}
			}
			n := len(s.List("PersistentVolumeClaim", false))
			if n != 3 {
				t.Errorf(`number of claims: got %d, want 3`, n)
			}
			if got := len(s.active()); got != 3 {
				t.Errorf("number active: got %d, want 3", got)
			}
		})
	}
}

// TestClaimsAreNotWaitedForWithoutEnd: the successor of a pod that does not go waits until 30 s after the pod
// should be gone, and says so; then it gets a new name and a new claim. If the pod's node is lost it does so
// at once (CS-272, CS-335 (part)).
func TestClaimsAreNotWaitedForWithoutEnd(t *testing.T) {
	for name, lost := range map[string]bool{"a node that hangs": false, "a node that is lost": true} {
		t.Run(name, func(t *testing.T) {
			s := atRest(t, clonesettest.Set(2, clonesettest.Claims("1Gi")), cloneset.Features{})
			if lost {
				s.Remove(nodeKey("node"))
			}
			name, start := s.active()[0].Name, s.Now()
			s.Node.Frozen = map[string]bool{name: true}
			s.EndGracefully(podKey(name))
			for _, wait := range []time.Duration{time.Second, 28 * time.Second} {
				s.managed(wait)
				if n := len(s.active()); (n == 2) != lost {
					t.Fatalf("after %s there are %d active pods", s.Now().Sub(start), n)
				}
			}
			told := slices.ContainsFunc(s.Recorded, func(event string) bool {
				return strings.HasPrefix(event, "Normal WaitingForClaims") && strings.Contains(event, name) &&
					strings.Contains(event, "00:00:30Z")
			})
			if told == lost {
				t.Errorf("events: %q", s.Recorded)
			}
			s.managed(2 * time.Second)
			if n := len(s.active()); n != 2 {
				t.Errorf("after %s there are %d active pods", s.Now().Sub(start), n)
			}
			if err := s.Settle(100); err != nil {
				t.Fatal(err)
			}
			status := s.set().Status
			if status.AvailableReplicas != 2 {
				t.Errorf("available replicas: got %d, want 2\n%+v\n%v", status.AvailableReplicas, status, s.data())
			}
			if got := s.data()[name]; got != "" {
				t.Errorf("claim of the pod: got %q, want %q\n%+v\n%v", got, "", status, s.data())
			}
			if !slices.ContainsFunc(s.Recorded, func(event string) bool {
				return strings.HasPrefix(event, "Warning ClaimsNotReused") && strings.Contains(event, name)
			}) {
				t.Errorf("events: %q", s.Recorded)
			}
			held := s.Get(claimKey("data-" + name))
			if held == nil {
				t.Error("the claim of the former pod: held: got nil, want a value")
			} else if got := held.GetDeletionTimestamp(); got != nil {
				t.Errorf("the claim of the former pod: time of deletion: got %v, want nil\n%+v", got, held)
			} else if got, want := metav1.GetControllerOf(held).UID, s.set().UID; got != want {
				t.Errorf("the claim of the former pod: UID of the owner: got %q, want %q\n%+v", got, want, held)
			}
		})
	}
}

// TestWithoutReuseASuccessorIsNew: it has another name and another claim, at once, and the old claim goes
// with the old pod, not before it (CS-272).
func TestWithoutReuseASuccessorIsNew(t *testing.T) {
	s := atRest(t, clonesettest.Set(2, clonesettest.Claims("1Gi"), withoutReuse), cloneset.Features{})
	name, before := s.active()[0].Name, s.data()
	s.Node.Frozen = map[string]bool{name: true}
	s.EndGracefully(podKey(name))
	s.managed(time.Second)
	claim := s.Get(claimKey("data-" + name))
	if got := len(s.active()); got != 2 {
		t.Errorf("while it ends: number active: got %d, want 2; %v before, %v now, claim %+v", got, before, s.data(), claim)
	} else if got := s.data()[name]; got != "" {
		t.Errorf("while it ends: claim of the pod: got %q, want %q; %v before, %v now, claim %+v", got, "", before, s.data(), claim)
	} else if claim == nil {
		t.Errorf("while it ends: claim: got nil, want a value; %v before, %v now, claim %+v", before, s.data(), claim)
	} else if claim.GetUID() != before[name] {
		t.Errorf("while it ends: UID of the claim: got %q, want %q; %v before, %v now, claim %+v", claim.GetUID(), before[name], before,
			s.data(), claim)
	} else if got := claim.GetDeletionTimestamp(); got != nil {
		t.Errorf("while it ends: time of deletion of the claim: got %v, want nil; %v before, %v now, claim %+v", got, before, s.data(), claim)
	}
	s.Node.Frozen = nil
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	if got := s.Get(claimKey("data-" + name)); got != nil {
		t.Errorf(`when it has ended: claim of the pod: got %v, want nil; %v before, %v now`, got, before, s.data())
	} else if got := s.Get(podKey(name)); got != nil {
		t.Errorf("when it has ended: pod: got %v, want nil; %v before, %v now", got, before, s.data())
	} else if got := len(s.data()); got != 2 {
		t.Errorf("when it has ended: number of claims: got %d, want 2; %v before, %v now", got, before, s.data())
	}
}

// TestFreeClaimsAreNotHeldUp: a terminating pod holds back its own successor alone.
func TestFreeClaimsAreNotHeldUp(t *testing.T) {
	s := atRest(t, clonesettest.Set(3, clonesettest.Claims("1Gi")), cloneset.Features{})
	names := []string{s.active()[0].Name, s.active()[1].Name}
	s.Node.Frozen = map[string]bool{names[0]: true}
	s.EndGracefully(podKey(names[0]))
	s.Remove(podKey(names[1]))
	s.Edit(clonesettest.Replicas(5)) // two successors, and two more
	s.managed(time.Second)
	if got := s.data(); len(got) != 4 {
		t.Errorf("number of results: got %d, want 4\n%v", len(got), got)
	} else if got[names[1]] == "" {
		t.Errorf("claim of the second pod: got nothing, want some text\n%v", got)
	} else if got[names[0]] != "" {
		t.Errorf("claim of the first pod: got %q, want %q\n%v", got[names[0]], "", got)
	}
}

// TestClaimsOfScaledInPodsGo: whatever is refused, and whenever the manager dies, a pod that was scaled in
// takes its claims along, and no later pod gets its data (CS-061 (part), CS-273 (part)).
func TestClaimsOfScaledInPodsGo(t *testing.T) {
	for name, disturb := range map[string]func(*simulated){
		"claims cannot be written for some seconds": func(s *simulated) {
			start := s.Now()
			s.Refused = func(w simulation.Write) bool {
				return w.Key.Kind == "PersistentVolumeClaim" && s.Now().Sub(start) < 5*time.Second
			}
		},
		"pods cannot be deleted for some seconds": func(s *simulated) {
			start := s.Now()
			s.Refused = func(w simulation.Write) bool {
				return w.Key.Kind == "Pod" && w.Verb == "delete" && s.Now().Sub(start) < 5*time.Second
			}
		},
		"the manager dies before the pod is deleted": func(s *simulated) { s.dieAfter("patch", "PersistentVolumeClaim") },
		"the manager dies after the pod was deleted": func(s *simulated) { s.dieAfter("delete", "Pod") },
	} {
		t.Run(name, func(t *testing.T) {
			s := atRest(t, clonesettest.Set(3, clonesettest.Claims("1Gi")), cloneset.Features{})
			former := s.data()
			disturb(s)
			s.Edit(clonesettest.Replicas(2))
			for range 40 {
				if s.Dead() {
					s.kind.Features = cloneset.Features{}
					s.Start()
				}
				s.Round()
				s.Pass(200 * time.Millisecond)
				s.Queue.Add()
			}
			s.Refused = nil
			s.Edit(clonesettest.Replicas(3))
			if err := s.Settle(100); err != nil {
				t.Fatal(err)
			}
			kept := 0
			for name, uid := range s.data() {
				if former[name] == uid {
					kept++
				}
			}
			n := len(s.List("PersistentVolumeClaim", false))
			if kept != 2 {
				t.Errorf("kept: got %d, want 2", kept)
			}
			if n != 3 {
				t.Errorf(`number of claims: got %d, want 3`, n)
			}
		})
	}
}

// dieAfter lets the manager die right after its next write of that sort.
func (s *simulated) dieAfter(verb, kind string) {
	s.AfterWrite = func(w simulation.Write) {
		if w.Verb == verb && w.Key.Kind == kind {
			s.AfterWrite = nil
			s.Kill()
		}
	}
}

// TestClaimsOfPodsThatStayAfterAllStay: the deletion of a pod was begun and given up. Its claims are the
// set's again, so that a pod deleted by somebody later still leaves its data to its successor.
func TestClaimsOfPodsThatStayAfterAllStay(t *testing.T) {
	s := atRest(t, clonesettest.Set(3, clonesettest.Claims("1Gi")), cloneset.Features{})
	before := s.data()
	s.Refused = func(w simulation.Write) bool { return w.Key.Kind == "Pod" && w.Verb == "delete" }
	s.Edit(clonesettest.Replicas(2))
	for range 5 {
		s.Round()
	}
	handed := 0
	for _, claim := range s.List("PersistentVolumeClaim", false) {
		if metav1.GetControllerOf(claim).Kind == "Pod" {
			handed++
		}
	}
	if handed != 1 {
		t.Fatalf("%d claims are their pod's", handed)
	}
	s.Edit(clonesettest.Replicas(3))
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	for _, claim := range s.List("PersistentVolumeClaim", false) {
		if owner := metav1.GetControllerOf(claim); owner.UID != s.set().UID || !*owner.BlockOwnerDeletion {
			t.Errorf("owner of claim %s: got %+v, want the set, which waits for it", claim.GetName(), owner)
		}
	}
	for pod, uid := range before {
		if s.data()[pod] != uid {
			t.Errorf("pod %s lost its data", pod)
		}
	}
}

// TestClaimsOfLivingPodsAreNotDeleted: a claim without a pod in the cache is deleted only if the API server
// knows of no pod either: caches lag each by itself, answers are lost, and pods change hands (CS-064 (part)).
func TestClaimsOfLivingPodsAreNotDeleted(t *testing.T) {
	yes := true
	controlledBy := func(uid types.UID) func(client.Object) {
		return func(o client.Object) {
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "other", UID: uid,
				Controller: &yes}})
		}
	}
	t.Run("the cache of pods is behind", func(t *testing.T) {
		s := atRest(t, clonesettest.Set(2, clonesettest.Claims("1Gi"), withoutReuse), cloneset.Features{})
		before, name := s.data(), s.active()[0].Name
		s.Hide(podKey(name)) // as if it had not been delivered
		s.Edit(clonesettest.Replicas(3))
		s.managed(time.Second)
		for pod, uid := range before {
			if claim := s.Get(claimKey("data-" + pod)); claim == nil {
				t.Errorf(`claim of the pod: got nil, want a value; the claim of pod %s was deleted`, pod)
			} else if claim.GetUID() != uid {
				t.Errorf("UID of the claim: got %q, want %q; the claim of pod %s was deleted", claim.GetUID(), uid, pod)
			}
		}
	})
	t.Run("the pod belongs to somebody else now", func(t *testing.T) {
		s := atRest(t, clonesettest.Set(2, clonesettest.Claims("1Gi"), withoutReuse), cloneset.Features{})
		other := s.Store(simulation.Key{Kind: "ConfigMap", Name: "other"}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
		name := s.active()[0].Name
		s.Change(podKey(name), controlledBy(other.GetUID()))
		if err := s.Settle(100); err != nil {
			t.Fatal(err)
		}
		claim := s.Get(claimKey("data-" + name))
		if claim == nil {
			t.Error("claim: got nil, want a value")
		} else if got, want := metav1.GetControllerOf(claim).UID, s.Get(podKey(name)).GetUID(); got != want {
			t.Errorf("UID of the owner: got %q, want %q\n%+v", got, want, claim)
		}
	})
	t.Run("the answer of its creation was lost, and it comes late", func(t *testing.T) {
		s := atRest(t, clonesettest.Set(1, clonesettest.Claims("1Gi"), withoutReuse), cloneset.Features{})
		late := &lateCreation{}
		s.Answer = late.answer
		s.Edit(clonesettest.Replicas(2))
		s.managed(time.Second)
		name := late.name
		if late.pod == nil {
			t.Fatal("nothing was created")
		}
		s.managed(50 * time.Second)
		s.Answer = nil
		if err := s.Client().Create(t.Context(), late.pod); err != nil {
			t.Fatal(err)
		}
		s.Pass(20 * time.Second)
		s.Queue.Add()
		s.Manage() // the caches do not show it
		if s.Get(claimKey("data-"+name)) == nil {
			t.Errorf("the claim of pod %s was deleted under it", name)
		}
	})
}

// TestRevisionThatTheCacheLacks: a pod is not recreated because the cache of revisions is behind, as it may
// be when a manager takes over; only if the API server has no such revision either (IPU-030 (part)).
func TestRevisionThatTheCacheLacks(t *testing.T) {
	for name, short := range map[string]bool{"full names": false, "short hashes": true} {
		t.Run(name, func(t *testing.T) {
			s := atRest(t, clonesettest.Set(2), cloneset.Features{ShortHash: short})
			former := s.set().Status.UpdateRevision
			s.Hide(revisionKey(former))
			s.Edit(clonesettest.Image("nginx:2"))
			s.managed(10 * time.Second)
			for _, pod := range s.AllPods() {
				if _, specified := pod.Labels[pub.SpecifiedDelete]; specified {
					t.Errorf("specified: got true, want false; pod %s is to be recreated", pod.Name)
				}
				if pod.DeletionTimestamp != nil {
					t.Errorf("time of deletion of the pod: got %v, want nil; pod %s is to be recreated", pod.DeletionTimestamp, pod.Name)
				}
			}
			s.Change(revisionKey(former), func(client.Object) {}) // now the cache gets it
			if err := s.Settle(200); err != nil {
				t.Fatal(err)
			}
			for _, w := range s.Writes {
				if w.Key.Kind == "Pod" && w.Verb == "delete" {
					t.Errorf("pod %s was deleted", w.Key.Name)
				}
			}
			s.Remove(revisionKey(former))
			s.Remove(revisionKey(s.set().Status.UpdateRevision))
			s.Edit(clonesettest.Image("nginx:3"))
			if err := s.Settle(300); err != nil {
				t.Fatal(err)
			}
			if status := s.set().Status; status.UpdatedAvailableReplicas != 2 {
				t.Errorf("revisions are gone: %+v", status)
			}
		})
	}
}

// TestRevisionThatIsNotTheSetsAnyMore: somebody took the owner and the labels from the revision of running
// pods. They are recreated, since the set does not know it any more, although it exists (CS-057,
// IPU-030 (part)).
func TestRevisionThatIsNotTheSetsAnyMore(t *testing.T) {
	s := atRest(t, clonesettest.Set(2), cloneset.Features{})
	s.Change(revisionKey(s.set().Status.UpdateRevision), func(o client.Object) {
		o.SetOwnerReferences(nil)
		o.SetLabels(nil)
	})
	s.Edit(clonesettest.Image("nginx:2"))
	s.advance(time.Minute)
	if status := s.set().Status; status.UpdatedAvailableReplicas != 2 {
		t.Errorf("updated and available replicas: got %d, want 2\n%+v\n%s", status.UpdatedAvailableReplicas, status, s.describe())
	}
}

// TestLateCachesAreWaitedFor: what the API server has and the caches do not show is looked for once, and
// again every two seconds until they do, not by every plan (CS-073 (part)).
func TestLateCachesAreWaitedFor(t *testing.T) {
	s := atRest(t, clonesettest.Set(2), cloneset.Features{})
	former, reads := s.set().Status.UpdateRevision, 0
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "get" && r.Key.Kind == "ControllerRevision" {
			reads++
		}
		return nil
	}
	s.Hide(revisionKey(former))
	s.Edit(clonesettest.Image("nginx:2"))
	s.managed(10 * time.Second)
	if reads < 1 {
		t.Errorf("reads: got %d, want at least 1", reads)
	}
	if reads > 1+5 {
		t.Errorf("reads: got %d, want at most %d", reads, 1+5)
	}
}

// lateCreation answers that the first creation of a pod timed out, which the test carries out later, and that
// the API server is busy then.
type lateCreation struct {
	name string
	pod  client.Object
}

func (c *lateCreation) answer(r *simulation.Request) error {
	switch {
	case r.Verb != "create" || r.Key.Kind != "Pod":
		return nil
	case c.pod == nil:
		c.name, c.pod = r.Key.Name, r.Object.DeepCopyObject().(client.Object)
		return apierrors.NewTimeoutError("lost", 1)
	}
	return errors.New("the API server is busy")
}

// TestHandingOverNeedsNoFurtherRight: the API server asks for a right on pods/finalizers of whoever lets a
// claim block the deletion of its pod, which the manager has not.
func TestHandingOverNeedsNoFurtherRight(t *testing.T) {
	s := atRest(t, clonesettest.Set(2, clonesettest.Claims("1Gi")), cloneset.Features{})
	blocks := 0
	s.BeforeWrite = func(_ simulation.Write, _, after client.Object) {
		if claim, ok := after.(*corev1.PersistentVolumeClaim); ok {
			for _, owner := range claim.OwnerReferences {
				if owner.Kind == "Pod" && owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion {
					blocks++
				}
			}
		}
	}
	s.Change(podKey(s.active()[0].Name), func(o client.Object) { o.SetLabels(nil) })
	s.Edit(clonesettest.Replicas(1))
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	if blocks > 0 {
		t.Errorf("%d claims block the deletion of their pods", blocks)
	}
}

// TestFurtherOwnersStay: whoever else owns a claim goes on owning it.
func TestFurtherOwnersStay(t *testing.T) {
	s := atRest(t, clonesettest.Set(1, clonesettest.Claims("1Gi")), cloneset.Features{})
	pod := s.active()[0].Name
	backup := s.Store(simulation.Key{Kind: "ConfigMap", Name: "backup"}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "backup"}})
	s.Change(claimKey("data-"+pod), func(o client.Object) {
		o.SetOwnerReferences(append(o.GetOwnerReferences(),
			metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "backup", UID: backup.GetUID()}))
	})
	s.Change(podKey(pod), func(o client.Object) { o.SetLabels(nil) })
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	if owners := s.Get(claimKey("data-" + pod)).GetOwnerReferences(); len(owners) != 2 {
		t.Errorf("number of owners: got %d, want 2\n%+v", len(owners), owners)
	} else if owners[0].Name != "backup" {
		t.Errorf("name of the first owner: got %q, want %q\n%+v", owners[0].Name, "backup", owners)
	} else if owners[1].Name != pod {
		t.Errorf("name of the second owner: got %q, want %q\n%+v", owners[1].Name, pod, owners)
	}
}

// A StorageClass that does not let claims grow is asked again later each time, for one claim, and says so in
// the condition all the time (CS-338 (part)).
func TestARefusedGrowthIsAskedForLaterEachTime(t *testing.T) {
	s := atRest(t, clonesettest.Set(20, clonesettest.Claims("1Gi"), clonesettest.Annotated(pub.ResizeClaims, "true")), cloneset.Features{})
	refused := 0
	s.Refused = func(w simulation.Write) bool {
		grows := w.Key.Kind == "PersistentVolumeClaim" && w.Verb == "patch"
		if grows {
			refused++
		}
		return grows
	}
	s.Edit(clonesettest.Claims("2Gi"))
	events := len(s.Recorded)
	for i := range 60 { // something happens to a pod each second
		s.Change(podKey(s.active()[0].Name), func(o client.Object) { o.(*corev1.Pod).Status.PodIP = fmt.Sprint("10.0.0.", i) })
		s.managed(time.Second)
		if c := cloneset.Condition(&s.set().Status, appsv1beta1.CloneSetConditionFailedScale); i > 1 &&
			(c == nil || !strings.Contains(c.Message, "growing claim")) {
			t.Fatalf("after %d s: got condition %+v, want one about the growing claim", i, c)
		}
	}
	if refused > 7 {
		t.Errorf("refused: got %d, want at most 7", refused)
	}
	if len(s.Recorded)-events > 7 {
		t.Errorf("number of new events: got %d, want at most 7", len(s.Recorded)-events)
	}
	before := refused
	s.Edit(func(set *appsv1beta1.CloneSet) { set.Spec.MinReadySeconds++ }) // another spec: at once
	s.managed(500 * time.Millisecond)
	if refused != before+1 {
		t.Errorf("%d requests after the spec changed", refused-before)
	}
	s.Refused = nil
	if err := s.Settle(300); err != nil {
		t.Fatal(err)
	}
	for _, claim := range s.List("PersistentVolumeClaim", false) {
		if storage := claim.(*corev1.PersistentVolumeClaim).Spec.Resources.Requests.Storage(); storage.String() != "2Gi" {
			t.Errorf("claim %s asks for %s", claim.GetName(), storage)
		}
	}
}
