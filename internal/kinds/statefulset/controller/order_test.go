package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
)

// TestOrderOfWork shows ASTS-115: what one pass writes when there is everything to do, in this order, and
// what it leaves out under OnDelete, and while the set is being deleted.
func TestOrderOfWork(t *testing.T) {
	adoption := []string{"patch ControllerRevision left"}
	pulls := []string{"create ImagePullJob", "patch ControllerRevision"}
	claims := []string{"patch PersistentVolumeClaim data-web-9", "create PersistentVolumeClaim data-web-1"}
	growth := []string{"patch PersistentVolumeClaim data-web-8"}
	pods := []string{"patch Pod web-0", "patch Pod web-2", "patch Pod web-3", "delete Pod web-4",
		"create PersistentVolumeClaim data-web-5", "create Pod web-5", "create Pod web-6"}
	updates := []string{"patch Pod web-1 status", "patch Pod web-1"}
	end := []string{"delete ControllerRevision", "patch StatefulSet web status"}
	for name, tt := range map[string]struct {
		change func(*appsv1beta1.StatefulSet)
		want   []string
	}{
		"a rolling update": {func(*appsv1beta1.StatefulSet) {},
			slices.Concat(adoption, []string{"create ControllerRevision"}, pulls, claims, growth, pods, updates, end)},
		"OnDelete": {func(set *appsv1beta1.StatefulSet) {
			set.Spec.UpdateStrategy.Type = appsv1beta1.OnDeleteStatefulSetStrategyType
		}, slices.Concat(adoption, []string{"create ControllerRevision", "patch ControllerRevision"}, claims, pods, end)},
		"it is being deleted": {func(set *appsv1beta1.StatefulSet) {
			set.DeletionTimestamp, set.Finalizers = &metav1.Time{Time: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}, []string{"example.org/hold"}
		}, end[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, makeSet(10, inPlace, inParallel, image("nginx:0"), func(set *appsv1beta1.StatefulSet) {
				setClaims(set, []string{"data"}, "1Gi")
				set.Spec.VolumeClaimUpdateStrategy.Type = appsv1beta1.OnPodRollingUpdateStatefulSetClaimUpdate
			}), statefulset.Features{DeleteClaims: true, ResizeClaims: true, PreDownload: true})
			s.hasPullJobs(t)
			s.ActFor(time.Minute)
			s.Edit(image("nginx:1"))
			s.ActFor(10 * time.Minute)
			s.Pass(time.Second) // it is younger than the others of its number
			s.storeRevision("left", map[string]string{"app": "web"})
			s.Change(podKey("web-0"), func(o client.Object) { o.SetOwnerReferences(nil) })
			s.Change(podKey("web-1"), func(o client.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodPending })
			s.Remove(claimKey("data-web-1"))
			s.Change(podKey("web-2"), func(o client.Object) { delete(o.GetLabels(), appsv1.StatefulSetPodNameLabel) })
			s.Change(podKey("web-3"), func(o client.Object) { o.GetLabels()["app"] = "debug" })
			s.Node.Fail("web-4")
			s.Remove(podKey("web-5"))
			s.Remove(claimKey("data-web-5"))
			s.Remove(podKey("web-6"))
			s.Node.Crash("web-8")
			s.Edit(func(set *appsv1beta1.StatefulSet) {
				one := int32(1)
				set.Spec.RevisionHistoryLimit = &one
				image("nginx:2")(set)
				scaled(9)(set)
				setClaims(set, []string{"data"}, "2Gi")
				set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1beta1.StatefulSetClaimRetentionPolicy{
					WhenDeleted: appsv1beta1.RetainStatefulSetClaims, WhenScaled: appsv1beta1.DeleteStatefulSetClaims}
				tt.change(set)
			})
			s.Events(1000)
			before := len(s.Writes)
			if _, err := s.Reconcile(); err != nil {
				t.Errorf("the pass: %v", err)
			}
			var got []string
			for _, w := range s.Writes[before:] {
				words := w.Verb + " " + w.Key.Kind
				if !strings.HasPrefix(w.Key.Name, "web-") || w.Key.Kind == "Pod" {
					words += " " + w.Key.Name
				}
				got = append(got, strings.TrimSpace(words+" "+w.Subresource))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, s.describe())
			}
		})
	}
}

// TestAnAdoptedPodThatGoesIsSeen shows that a pod which was adopted and deleted, of which the caches show
// neither, is still there: no other condemned pod goes (ASTS-126 (part)), and it counts.
func TestAnAdoptedPodThatGoesIsSeen(t *testing.T) {
	s := started(t, makeSet(3), everything)
	s.Change(podKey("web-2"), func(o client.Object) { o.SetOwnerReferences(nil) })
	s.Edit(replicas(1))
	s.Events(1 << 20)
	for range 5 { // it is adopted, deleted, and waited for
		s.Queue.Add()
		s.Manage()
	}
	if got := s.Pod("web-2").DeletionTimestamp; got == nil {
		t.Errorf("time of deletion of pod web-2: got nil, want a value\n%s", s.describe())
	} else if got := s.Pod("web-1").DeletionTimestamp; got != nil {
		t.Errorf("time of deletion of pod web-1: got %v, want nil\n%s", got, s.describe())
	} else if got := s.set().Status.Replicas; got != 3 {
		t.Errorf("replicas: got %d, want 3\n%s", got, s.describe())
	}
}

// TestTheNameOfAnAdoptedPodThatGoes shows that such a pod is not told to be somebody else's
// (ASTS-106 (part)).
func TestTheNameOfAnAdoptedPodThatGoes(t *testing.T) {
	s := started(t, makeSet(3, parallel), everything)
	s.Change(podKey("web-2"), func(o client.Object) {
		o.SetOwnerReferences(nil)
		o.GetLabels()[pub.SpecifiedDelete] = "true"
	})
	s.Events(1 << 20)
	for range 5 {
		s.Queue.Add()
		s.Manage()
	}
	if got := s.Pod("web-2").DeletionTimestamp; got == nil {
		t.Errorf("time of deletion of pod web-2: got nil, want a value\n%q\n%s", s.Recorded, s.describe())
	} else if s.said("Warning FailedCreate ") {
		t.Errorf("FailedCreate is told: got true, want false\n%q\n%s", s.Recorded, s.describe())
	} else if got := len(s.set().Status.Conditions); got > 0 {
		t.Errorf("conditions: got %d, want none\n%q\n%s", got, s.Recorded, s.describe())
	}
}
