package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// denying refuses requests about some objects, as a policy does.
type denying struct {
	pod, claim, deletion func(name string) bool
}

func (d denying) answer(r *simulation.Request) error {
	refuses := d.pod
	switch {
	case r.Verb == "delete" && r.Key.Kind == "Pod":
		refuses = d.deletion
	case r.Verb == "patch" && r.Key.Kind == "PersistentVolumeClaim":
		refuses = d.claim
	case r.Verb != "patch" || r.Key.Kind != "Pod" || !strings.Contains(string(r.Body), `"image"`) && !strings.Contains(string(r.Body),
		pub.SpecifiedDelete):
		return nil
	}
	if refuses == nil || !refuses(r.Key.Name) {
		return nil
	}
	return apierrors.NewForbidden(corev1.Resource(strings.ToLower(r.Key.Kind)+"s"), r.Key.Name,
		errors.New("admission webhook denied the request"))
}

func only(name string) func(string) bool { return func(other string) bool { return other == name } }

// advance lets everybody act for that time.
func (s *simulated) advance(d time.Duration) {
	for end := s.Now().Add(d); s.Now().Before(end); s.Pass(250 * time.Millisecond) {
		for range 4 {
			s.Round()
		}
	}
}

// TestOneRefusedPodDoesNotHoldUpTheOthers: a policy refuses the update of one pod. Others are updated all the
// same, whichever place in the order it has (IPU-173, IPU-184 (part)).
func TestOneRefusedPodDoesNotHoldUpTheOthers(t *testing.T) {
	for _, policy := range []appsv1beta1.CloneSetPodUpdatePolicy{appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy,
		appsv1beta1.ReCreateCloneSetPodUpdatePolicy} {
		for i := range 3 {
			s := atRest(t, clonesettest.Set(3, clonesettest.Rolling(func(r *appsv1beta1.RollingUpdateCloneSetStrategy) { r.PodUpdatePolicy = policy })),
				cloneset.Features{})
			refused := s.active()[i].Name
			s.Answer = denying{pod: only(refused)}.answer
			s.Edit(clonesettest.Image("nginx:2"))
			s.advance(time.Minute)
			status := s.set().Status
			if status.UpdatedAvailableReplicas != 2 {
				t.Errorf("%s, pod %d is refused, and %d others are updated: %s", policy, i, status.UpdatedAvailableReplicas, s.describe())
			}
			if c := cloneset.Condition(&status, appsv1beta1.CloneSetConditionFailedUpdate); c == nil {
				t.Errorf("%s: c: got nil, want a value", policy)
			} else if !strings.Contains(c.Message, refused) {
				t.Errorf("%s: message: got %q, want it to contain %q; condition %+v", policy, c.Message, refused, c)
			}
		}
	}
}

// TestOneRefusedDeletionDoesNotHoldUpTheOthers: three pods are to be replaced one at a time, and a policy
// protects one of them. The others are replaced (CS-132 (part)).
func TestOneRefusedDeletionDoesNotHoldUpTheOthers(t *testing.T) {
	for i := range 3 {
		s := atRest(t, clonesettest.Set(3), cloneset.Features{})
		protected := s.active()[i].Name
		s.Answer = denying{deletion: only(protected)}.answer
		for _, pod := range s.active() {
			s.Change(podKey(pod.Name), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
		}
		s.advance(time.Minute)
		for _, pod := range s.active() {
			if _, specified := pod.Labels[pub.SpecifiedDelete]; specified != (pod.Name == protected) {
				t.Errorf("pod %d is protected: %s", i, s.describe())
			}
		}
	}
}

// TestOneRefusedClaimDoesNotHoldUpTheOthers: one claim of three cannot grow, because its volume was made by
// hand. The others do (CS-338 (part)).
func TestOneRefusedClaimDoesNotHoldUpTheOthers(t *testing.T) {
	for i := range 3 {
		set := clonesettest.Set(3, clonesettest.Claims("1Gi"))
		set.Annotations = map[string]string{pub.ResizeClaims: "true"}
		s := atRest(t, set, cloneset.Features{})
		refused := "data-" + s.active()[i].Name
		s.Answer = denying{claim: only(refused)}.answer
		s.Edit(clonesettest.Claims("2Gi"))
		s.advance(time.Minute)
		for _, o := range s.List("PersistentVolumeClaim", false) {
			size := o.(*corev1.PersistentVolumeClaim).Spec.Resources.Requests.Storage().String()
			if (size == "2Gi") == (o.GetName() == refused) {
				t.Errorf("claim %d is refused: %s has %s", i, o.GetName(), size)
			}
		}
	}
}

// TestRelabelledPodDoesNotTakeAnothersClaims: somebody gives a pod the instance ID of another one, and it is
// scaled in. It has the claims that its name says (CS-061 (part), CS-137 (part)).
func TestRelabelledPodDoesNotTakeAnothersClaims(t *testing.T) {
	for _, reuse := range []bool{true, false} {
		set := clonesettest.Set(2, clonesettest.Claims("1Gi"))
		set.Spec.ScaleStrategy.EnablePVCReuse = reuse
		s := atRest(t, set, cloneset.Features{})
		wrong, other := s.active()[0], s.active()[1]
		s.Change(podKey(wrong.Name), func(o client.Object) {
			o.GetLabels()[pub.CloneSetInstanceID] = other.Labels[pub.CloneSetInstanceID]
			o.GetLabels()[pub.SpecifiedDelete] = "true"
		})
		s.Edit(func(set *appsv1beta1.CloneSet) { one := int32(1); set.Spec.Replicas = &one })
		if err := s.Settle(300); err != nil {
			t.Errorf("scaling to 1: %v", err)
		}
		if s.Get(claimKey("data-"+other.Name)) == nil {
			t.Errorf("reuse %t: the claim of pod %s went with pod %s", reuse, other.Name, wrong.Name)
		}
		if s.Get(claimKey("data-"+wrong.Name)) != nil {
			t.Errorf("reuse %t: the claim of pod %s is left", reuse, wrong.Name)
		}
	}
}

// TestUnlabelledPodTakesItsClaims: a pod that lost its instance ID is scaled in, and takes its claims along:
// a later pod must not get old data (CS-061 (part)).
func TestUnlabelledPodTakesItsClaims(t *testing.T) {
	for _, reuse := range []bool{true, false} {
		set := clonesettest.Set(2, clonesettest.Claims("1Gi"))
		set.Spec.ScaleStrategy.EnablePVCReuse = reuse
		s := atRest(t, set, cloneset.Features{})
		pod := s.active()[0].Name
		s.Change(podKey(pod), func(o client.Object) {
			delete(o.GetLabels(), pub.CloneSetInstanceID)
			o.GetLabels()[pub.SpecifiedDelete] = "true"
		})
		s.Edit(func(set *appsv1beta1.CloneSet) { one := int32(1); set.Spec.Replicas = &one })
		if err := s.Settle(300); err != nil {
			t.Errorf("scaling to 1: %v", err)
		}
		if s.Get(claimKey("data-"+pod)) != nil {
			t.Errorf("reuse %t: the claim of pod %s is left", reuse, pod)
		}
	}
}

// TestAConflictHidesNoRefusal: claims of two pods that somebody deleted are to be handed to them. One has
// just been changed by somebody else, the other is protected by a policy, which the condition says
// (CS-225 (part)).
func TestAConflictHidesNoRefusal(t *testing.T) {
	set := clonesettest.Set(3, clonesettest.Claims("1Gi"))
	set.Spec.ScaleStrategy.EnablePVCReuse = false
	s := atRest(t, set, cloneset.Features{})
	changed, protected := s.active()[0].Name, s.active()[1].Name
	s.Node.Frozen = map[string]bool{changed: true, protected: true}
	policy := denying{claim: only("data-" + protected)}
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "patch" && r.Key == claimKey("data-"+changed) {
			return apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), r.Key.Name, errors.New("another version"))
		}
		return policy.answer(r)
	}
	s.EndGracefully(podKey(changed))
	s.EndGracefully(podKey(protected))
	s.advance(10 * time.Second)
	status := s.set().Status
	if c := cloneset.Condition(&status, appsv1beta1.CloneSetConditionFailedScale); c == nil {
		t.Error("c: got nil, want a value")
	} else if !strings.Contains(c.Message, "data-"+protected) {
		t.Errorf("message: got %q, want it to contain %q; condition %+v", c.Message, "data-"+protected, c)
	}
}

// TestClaimsOfAProtectedPod: a policy refuses to let a pod go that is to be deleted, whose claims are made
// its own before. They stay its own, and are not taken back and handed over again at each attempt
// (CS-061 (part)).
func TestClaimsOfAProtectedPod(t *testing.T) {
	s := atRest(t, clonesettest.Set(2, clonesettest.Claims("1Gi")), cloneset.Features{})
	protected, changes := s.active()[0].Name, 0
	s.Answer = denying{deletion: only(protected)}.answer
	s.AfterWrite = func(w simulation.Write) {
		if w.Key.Kind == "PersistentVolumeClaim" {
			changes++
		}
	}
	s.Change(podKey(protected), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
	s.advance(20 * time.Second)
	if owner := metav1.GetControllerOf(s.Get(claimKey("data-" + protected))); owner == nil {
		t.Errorf(`owner of the claim of the protected pod: got nil, want a value; %d changes of claims, the owner is %+v`,
			changes, owner)
	} else if owner.Name != protected {
		t.Errorf("name of the owner: got %q, want %q; %d changes of claims, the owner is %+v", owner.Name,
			protected, changes, owner)
	} else if changes != 1 {
		t.Errorf("changes: got %d, want 1; %d changes of claims, the owner is %+v", changes, changes, owner)
	}
}

// TestEndedPodThatMayNotBeDeleted: a pod that was evicted leaves its name and its claims to its successor,
// but a policy refuses to delete it. After a minute a pod with a new name takes its place (CS-335 (part)).
func TestEndedPodThatMayNotBeDeleted(t *testing.T) {
	s := atRest(t, clonesettest.Set(2, clonesettest.Claims("1Gi")), cloneset.Features{})
	protected := s.active()[0].Name
	s.Answer = denying{deletion: only(protected)}.answer
	s.Node.Fail(protected)
	s.advance(50 * time.Second)
	if n := len(s.active()); n != 1 {
		t.Errorf("%d active pods before its time", n)
	}
	s.advance(20 * time.Second)
	if n := len(s.active()); n != 2 {
		t.Errorf("%d active pods after it", n)
	}
}

// TestRefusedPodThatIsDownIsTriedAgain: the update of the only pod that may be updated, since it is down, is
// refused for a while. It is tried again soon, although the partition lets no more pods move than wait before
// it (IPU-184 (part)).
func TestRefusedPodThatIsDownIsTriedAgain(t *testing.T) {
	s := atRest(t, clonesettest.Set(3, clonesettest.Rolling(func(r *appsv1beta1.RollingUpdateCloneSetStrategy) { r.Partition = new(intstr.FromInt32(1)) })), cloneset.Features{})
	down := s.active()[0].Name
	s.Node.Crash(down)
	s.Node.Frozen = map[string]bool{down: true}
	s.Answer = denying{pod: only(down)}.answer
	s.Edit(clonesettest.Image("nginx:2"))
	s.advance(5 * time.Second)
	s.Answer = nil
	s.advance(time.Minute)
	if pod := s.Get(podKey(down)).(*corev1.Pod); pod.Spec.Containers[0].Image != "nginx:2" {
		t.Errorf("it was not tried again: %s", s.describe())
	}
}

// TestARevisionThatIsRefusedIsTold: a quota refuses the ControllerRevision of a new template. The status says
// so for the new generation, and attempts become rare.
func TestARevisionThatIsRefusedIsTold(t *testing.T) {
	s := atRest(t, clonesettest.Set(2), cloneset.Features{})
	attempts := 0
	s.Answer = func(r *simulation.Request) error {
		if r.Verb != "create" || r.Key.Kind != "ControllerRevision" {
			return nil
		}
		attempts++
		return apierrors.NewForbidden(corev1.Resource("controllerrevisions"), r.Key.Name, errors.New("exceeded quota"))
	}
	s.Edit(clonesettest.Image("nginx:2"))
	s.advance(10 * time.Minute)
	set := s.set()
	if c := cloneset.Condition(&set.Status, appsv1beta1.CloneSetConditionFailedUpdate); c == nil {
		t.Errorf("c: got nil, want a value; %d attempts, status %+v", attempts, set.Status)
	} else if !strings.Contains(c.Message, "exceeded quota") {
		t.Errorf("message: got %q, want it to contain %q; %d attempts, status %+v", c.Message, "exceeded quota",
			attempts, set.Status)
	} else if set.Status.ObservedGeneration != set.Generation {
		t.Errorf("observed generation: got %d, want %d; %d attempts, status %+v", set.Status.ObservedGeneration,
			set.Generation,
			attempts, set.Status)
	} else if set.Status.AvailableReplicas != 2 {
		t.Errorf("available replicas: got %d, want 2; %d attempts, status %+v", set.Status.AvailableReplicas,
			attempts, set.Status)
	} else if attempts > 50 {
		t.Errorf("attempts: got %d, want at most 50; %d attempts, status %+v", attempts, attempts, set.Status)
	}
	s.Answer = nil
	s.advance(20 * time.Minute)
	if got := s.set().Status.UpdatedAvailableReplicas; got != 2 {
		t.Errorf("updated and available replicas: got %d, want 2\n%s", got, s.describe())
	}
}
