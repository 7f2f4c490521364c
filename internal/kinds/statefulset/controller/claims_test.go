package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/simulation"
)

const protection = "kubernetes.io/pvc-protection"

// deleteClaim deletes a PVC as a user does: it stays as long as a pod uses it.
func (s *simulated) deleteClaim(name string) {
	if s.Get(claimKey(name)) == nil {
		return
	}
	s.Change(claimKey(name), func(o client.Object) { o.SetFinalizers([]string{protection}) })
	s.EndGracefully(claimKey(name))
}

// unprotect lets PVCs go that are being deleted and that no pod uses.
func (s *simulated) unprotect() bool {
	moved := false
	for _, claim := range s.List("PersistentVolumeClaim", false) {
		if claim.GetDeletionTimestamp() != nil && !slices.ContainsFunc(s.AllPods(), func(pod *corev1.Pod) bool {
			return pod.Spec.NodeName != "" && slices.Contains(claimsOf(pod), claim.GetName())
		}) {
			s.Remove(claimKey(claim.GetName()))
			moved = true
		}
	}
	return moved
}

// mountable tells whether all PVCs of a pod are there, so that it may come to a node.
func (s *simulated) mountable(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || !slices.ContainsFunc(claimsOf(pod), func(name string) bool {
		claim := s.Get(claimKey(name))
		return claim == nil || claim.GetDeletionTimestamp() != nil
	})
}

func claimsOf(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.Volumes {
		if claim := pod.Spec.Volumes[i].PersistentVolumeClaim; claim != nil {
			names = append(names, claim.ClaimName)
		}
	}
	return names
}

// TestADeletedClaimIsTakenUp shows that a user who is told to delete a PVC need do no more than that,
// although the PVC, which the retention policy gives no owner, does not say whose it is (ASTS-075,
// ASTS-275 (part)).
func TestADeletedClaimIsTakenUp(t *testing.T) {
	set := makeSet(2)
	set.Spec.VolumeClaimUpdateStrategy.Type = appsv1beta1.OnPodRollingUpdateStatefulSetClaimUpdate
	setClaims(set, []string{"my-data"}, "1Gi")
	s := simulate(1, set, statefulset.Features{DeleteClaims: true, ResizeClaims: true})
	s.ActFor(time.Minute)
	s.Edit(func(set *appsv1beta1.StatefulSet) {
		if err := set.Spec.VolumeClaimTemplates.UnmarshalJSON([]byte(`[{"metadata":{"name":"my-data"},"spec":{
			"accessModes":["ReadWriteMany"],"resources":{"requests":{"storage":"1Gi"}}}}]`)); err != nil {
			t.Fatal(err)
		}
		setTemplate(set, `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":"nginx:2"}]}}`)
	})
	s.ActFor(time.Minute)
	if got := s.Pod("web-1").Spec.Containers[0].Image; got != "nginx:1" {
		t.Fatal("the pod was updated before its PVC is what it shall be: ", got)
	}
	for _, name := range []string{"my-data-web-1", "my-data-web-0"} {
		s.deleteClaim(name)
		s.ActFor(time.Minute)
	}
	for _, pod := range s.AllPods() {
		claim, _ := s.Get(claimKey("my-data-" + pod.Name)).(*corev1.PersistentVolumeClaim)
		if image := pod.Spec.Containers[0].Image; image != "nginx:2" {
			t.Errorf("it stands still: image %s, want nginx:2: %s", image, s.describe())
		}
		if claim == nil || claim.Spec.AccessModes[0] != corev1.ReadWriteMany {
			t.Errorf("it stands still: claim %+v, want one for many writers: %s", claim, s.describe())
		}
	}
}

// TestARefusedGrowthIsToldInOnePlace shows that a PVC that the API server does not let grow stands in the
// condition FailedUpdatePod as long as that is so, in the pass that tries and in those that wait, and nowhere
// else; and that it ends with the growth (ASTS-277 (part), ASTS-307 (part)).
func TestARefusedGrowthIsToldInOnePlace(t *testing.T) {
	set := makeSet(1)
	set.Spec.VolumeClaimUpdateStrategy.Type = appsv1beta1.OnPodRollingUpdateStatefulSetClaimUpdate
	setClaims(set, []string{"my-data"}, "1Gi")
	s := simulate(1, set, statefulset.Features{DeleteClaims: true, ResizeClaims: true})
	s.ActFor(time.Minute)
	s.Refused = func(w simulation.Write) bool { return w.Key == claimKey("my-data-web-0") }
	s.Edit(func(set *appsv1beta1.StatefulSet) { setClaims(set, []string{"my-data"}, "2Gi") })
	told := 0
	for end := s.Now().Add(5 * time.Minute); s.Now().Before(end); {
		if !s.Round() {
			s.Queue.Wait()
		}
		for _, condition := range s.set().Status.Conditions {
			if told++; condition.Type != appsv1beta1.StatefulSetConditionFailedUpdatePod {
				t.Fatalf("condition: got %+v, want FailedUpdatePod alone", condition)
			}
		}
	}
	if told < 10 {
		t.Errorf("it was told in %d rounds", told)
	}
	if !s.said("Warning FailedResize ", "my-data-web-0") {
		t.Errorf(`FailedResize is told of my-data-web-0: got false, want true; events %q`, s.Recorded)
	}
	if s.said("Warning FailedUpdatePodInPlace ", "my-data-web-0") {
		t.Errorf(`FailedUpdatePodInPlace is told of my-data-web-0: got true, want false; events %q`, s.Recorded)
	}
	s.Refused = nil
	s.ActFor(10 * time.Minute)
	if conditions := s.set().Status.Conditions; len(conditions) > 0 {
		t.Errorf("conditions: got %v, want none", conditions)
	}
}

// TestClaimsOfANewPod shows ASTS-103: PVCs come before the pod; those that exist are left as they are; one
// that goes, and one that cannot be made, keep the pod from being made, but no other PVC, and are tried
// again.
func TestClaimsOfANewPod(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	s := simulate(1, makeSet(1, func(set *appsv1beta1.StatefulSet) { setClaims(set, names, "1Gi") }), statefulset.Features{})
	there := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a-web-0",
		Labels: map[string]string{"mine": ""}}}
	there.Spec.AccessModes, there.Status.Capacity = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, corev1.ResourceList{}
	s.Store(claimKey("a-web-0"), there)
	going := there.DeepCopy()
	going.Name, going.UID, going.Finalizers = "b-web-0", "", []string{protection}
	s.Store(claimKey("b-web-0"), going)
	s.EndGracefully(claimKey("b-web-0"))
	denied := s.Deny(func(r *simulation.Request) bool { return r.Verb == "create" && r.Key.Name == "c-web-0" })
	s.EnvironmentStep = func() bool { return false } // nobody lets the one that goes be gone
	s.ActFor(time.Minute)
	made := func() (made []string) {
		for _, w := range s.Writes {
			if w.Verb == "create" && w.Key.Kind != "ControllerRevision" {
				made = append(made, w.Key.Name)
			}
		}
		return made
	}
	got := made()
	if len(got) > 0 {
		t.Errorf("made: got %q, want none; %v is made, %v, again at %s", got, got, s.Recorded, s.Queue.Due())
	}
	if !s.said("Normal WaitingForClaims ", "web-0", "b-web-0") {
		t.Errorf(`WaitingForClaims is told of web-0: got false, want true; %v is made, %v, again at %s`, got,
			s.Recorded,
			s.Queue.Due())
	}
	if s.Queue.Due().IsZero() {
		t.Errorf("nothing is due: got true, want false; %v is made, %v, again at %s", got, s.Recorded, s.Queue.Due())
	}
	s.Remove(claimKey("b-web-0"))
	s.ActFor(time.Minute)
	if got := made(); !slices.Equal(got, []string{"b-web-0", "d-web-0"}) {
		t.Errorf("made claims: got %v, want b-web-0 and d-web-0; %v", got, s.Recorded)
	}
	if n := len(*denied); n < 2 {
		t.Errorf("attempts: got %d, want 2 at least; %v", n, s.Recorded)
	}
	if !s.said("Warning FailedCreate ", "c-web-0") {
		t.Errorf("events: got %v, want a warning about c-web-0", s.Recorded)
	}
	if said := condition(s.set(), failedCreate); !strings.Contains(said, "c-web-0") {
		t.Errorf("condition: got %q, want c-web-0 in it", said)
	}
	s.Answer = nil
	s.ActFor(2 * time.Minute)
	if got := made(); !slices.Equal(got, []string{"b-web-0", "d-web-0", "c-web-0", "web-0"}) {
		t.Errorf("%v is made", got)
	}
	if now := s.Get(claimKey("a-web-0")); now.GetResourceVersion() != there.ResourceVersion {
		t.Errorf("the one that was there is now %+v", now)
	}
	if got := len(claimsOf(s.Pod("web-0"))); got != 4 {
		t.Errorf("the pod has %d PVCs", got)
	}
}
