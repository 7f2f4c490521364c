package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/simulation"
)

func follows(set *appsv1beta1.StatefulSet) {
	set.Spec.VolumeClaimUpdateStrategy.Type = appsv1beta1.OnPodRollingUpdateStatefulSetClaimUpdate
}

func sizedClaims(size string) func(*appsv1beta1.StatefulSet) {
	return func(set *appsv1beta1.StatefulSet) { setClaims(set, []string{"data"}, size) }
}

func (s *simulated) claim(name string) *corev1.PersistentVolumeClaim {
	claim, _ := s.Get(claimKey(name)).(*corev1.PersistentVolumeClaim)
	return claim
}

// TestClaimsGrow shows ASTS-273, with TestGrowth and TestAnUnboundClaimHoldsUpNothing, and ASTS-277: a claim
// that is too small asks for the size of its template and is annotated, no container is restarted for it, and
// what became of that is told.
func TestClaimsGrow(t *testing.T) {
	s := started(t, makeSet(2, inPlace, sizedClaims("1Gi"), follows), everything)
	s.Change(claimKey("data-web-1"), func(o client.Object) {
		claim := o.(*corev1.PersistentVolumeClaim)
		class := "gold"
		claim.Spec.StorageClassName, claim.Spec.VolumeName, claim.Annotations = &class, "pv", map[string]string{"mine": "yes"}
	})
	before := s.AllPods()
	refusals := 0
	s.Answer = func(r *simulation.Request) error {
		if r.Key.Kind == "PersistentVolumeClaim" && r.Verb == "patch" && refusals < 2 {
			refusals++
			return apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), r.Key.Name, errors.New("no expansion"))
		}
		return nil
	}
	s.Recorded = nil
	s.Edit(sizedClaims("2Gi"))
	s.onePass()
	refused := s.EventsWith("Warning FailedResize ", "claim data-web-1 of pod web-1 ", "no expansion")
	if len(refused) != 1 {
		t.Errorf("events: got %q, want one refusal of claim data-web-1", s.Recorded)
	}
	if len(s.EventsWith("web-0")) > 0 {
		t.Errorf("events: got %q, want none of web-0", s.Recorded)
	}
	s.ActFor(500 * time.Millisecond)
	if conditions := s.set().Status.Conditions; len(conditions) == 0 {
		t.Errorf("conditions: got none, want some; after %d refusals: %+v", refusals, conditions)
	} else if !strings.Contains(conditions[0].Message, "no expansion") {
		t.Errorf("message of the first condition: got %q, want it to contain %q; after %d refusals: %+v",
			conditions[0].Message, "no expansion",
			refusals, conditions)
	} else if refusals != 1 {
		t.Errorf("refusals: got %d, want 1; after %d refusals: %+v", refusals, refusals, conditions)
	}
	s.ActFor(5 * time.Minute)
	for _, pod := range before {
		claim := s.claim("data-" + pod.Name)
		if got := claim.Spec.Resources.Requests.Storage().String(); got != "2Gi" {
			t.Errorf("storage of the requests of the resources: got %q, want %q\n%+v", got, "2Gi", claim)
		}
		if claim.Annotations[pub.OwnedByStatefulSet] != "web" {
			t.Errorf("annotation owned by stateful set of the claim: got %q, want %q\n%+v",
				claim.Annotations[pub.OwnedByStatefulSet], "web", claim)
		}
		now := s.Pod(pod.Name)
		if now.UID != pod.UID {
			t.Errorf("pod %s is another one: %s", pod.Name, s.describe())
		} else if now.Status.ContainerStatuses[0].ContainerID != pod.Status.ContainerStatuses[0].ContainerID {
			t.Errorf("pod %s is restarted: %s", pod.Name, s.describe())
		}
		if got := s.EventsWith("Normal SuccessfulResize ", "claim data-"+pod.Name+" of pod "+pod.Name+" "); len(got) != 1 {
			t.Errorf("events %q", s.Recorded)
		}
	}
	claim := s.claim("data-web-1")
	if *claim.Spec.StorageClassName != "gold" {
		t.Errorf("storage class of the claim: got %q, want %q\n%+v", *claim.Spec.StorageClassName, "gold", claim)
	}
	if claim.Spec.VolumeName != "pv" {
		t.Errorf("volume of the claim: got %q, want %q\n%+v", claim.Spec.VolumeName, "pv", claim)
	}
	if claim.Annotations["mine"] != "yes" {
		t.Errorf("annotation mine of the claim: got %q, want %q\n%+v", claim.Annotations["mine"], "yes", claim)
	}
	if conditions := s.set().Status.Conditions; len(conditions) > 0 {
		t.Errorf("conditions: got %v, want none", conditions)
	}
}

// TestClaimsThatCannotGrow shows ASTS-275, with TestADeletedClaimIsTakenUp: what cannot be changed, and a
// growth that is refused, is told and is an error, and no pod is taken out of service while it stands.
func TestClaimsThatCannotGrow(t *testing.T) {
	class := func(set *appsv1beta1.StatefulSet) {
		other := "silver"
		set.Spec.VolumeClaimTemplates[0].Spec.StorageClassName = &other
	}
	modes := func(set *appsv1beta1.StatefulSet) {
		set.Spec.VolumeClaimTemplates[0].Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
	for name, tt := range map[string]struct {
		change func(*appsv1beta1.StatefulSet)
		want   string
	}{
		"another class": {class, "Warning FailedUpdatePVC claim data-web-2 "},
		"another mode":  {modes, "Warning FailedUpdatePVC claim data-web-2 "},
		"a size that is refused": {sizedClaims("2Gi"),
			"Warning FailedResize failed to grow claim data-web-2 "},
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t, makeSet(3, inPlace, sizedClaims("1Gi"), follows, parallel), everything)
			for _, pod := range s.AllPods() {
				s.Change(claimKey("data-"+pod.Name), func(o client.Object) {
					gold := "gold"
					o.(*corev1.PersistentVolumeClaim).Spec.StorageClassName = &gold
				})
			}
			s.Refused = func(w simulation.Write) bool { return w.Key.Kind == "PersistentVolumeClaim" && w.Verb == "patch" }
			s.Recorded = nil
			s.Edit(func(set *appsv1beta1.StatefulSet) { image("nginx:2")(set); tt.change(set) })
			failed := 0
			for range 60 {
				s.Round()
				s.Pass(time.Second)
				if slices.ContainsFunc(s.set().Status.Conditions, func(c appsv1beta1.StatefulSetCondition) bool {
					return strings.Contains(c.Message, "data-web-2") && c.Type == "FailedUpdatePod"
				}) {
					failed++
				}
			}
			if failed == 0 {
				t.Errorf("no pass ended with an error; events %q", s.Recorded)
			}
			if len(s.EventsWith(tt.want)) == 0 {
				t.Errorf("events: got %q, want %q", s.Recorded, tt.want)
			}
			for _, pod := range s.AllPods() {
				if image := pod.Spec.Containers[0].Image; image != "nginx:1" {
					t.Errorf("it went on: pod %s has image %s: %s", pod.Name, image, s.describe())
				}
				if len(s.EventsWith("claim data-web-0"))+len(s.EventsWith("claim data-web-1")) > 0 {
					t.Errorf("it went on: events about the other claims: %q", s.Recorded)
				}
			}
		})
	}
}
