package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// A tenant of another namespace gives a set there as the controller of pods, claims and revisions of his own,
// with its UID and its labels. The set knows of none of them, plans nothing about them, and they stay as they
// are.
func TestObjectsOfANeighbourAreNotTheSets(t *testing.T) {
	s := atRest(t, clonesettest.Set(2, clonesettest.Claims("1Gi"), withoutReuse), cloneset.Features{})
	set, own := s.set(), s.active()[0]
	meta := func(name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "neighbour", Name: name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{cloneset.Reference(set)}}
	}
	id := map[string]string{"app": "web", pub.CloneSetInstanceID: own.Labels[pub.CloneSetInstanceID], pub.SpecifiedDelete: "true"}
	hostile := []client.Object{
		s.Store(podKey("web-evil"), &corev1.Pod{ObjectMeta: meta("web-evil", id)}),
		s.Store(claimKey("data-web-evil"), &corev1.PersistentVolumeClaim{ObjectMeta: meta("data-web-evil", id)}),
		s.Store(revisionKey("web-evil"), &appsv1.ControllerRevision{ObjectMeta: meta("web-evil", map[string]string{"app": "web"}),
			Revision: 1 << 40}),
	}
	s.node.Frozen = map[string]bool{"web-evil": true}
	var versions []string
	for _, object := range hostile {
		versions = append(versions, object.GetResourceVersion())
	}
	writes := len(s.Writes)
	s.Queue.Add()
	if err := s.Settle(100); err != nil {
		t.Fatal(err)
	}
	if len(s.Writes) != writes {
		t.Errorf("written: %v", s.Writes[writes:])
	}
	snapshot, err := s.kube.Snapshot(t.Context(), s.set())
	if err != nil {
		t.Fatal(err)
	}
	if got := []int{len(snapshot.Pods), len(snapshot.Claims), len(snapshot.PodOwnedClaims), len(snapshot.Revisions),
		len(snapshot.ForeignPods)}; !cmp.Equal(got, []int{2, 2, 0, 1, 0}) {
		t.Errorf("pods, claims, handed claims, revisions, strangers: %v", got)
	}
	s.change(clonesettest.Both(clonesettest.Image("nginx:2"), clonesettest.Replicas(1)))
	if err := s.Settle(300); err != nil {
		t.Fatal(err)
	}
	for i, object := range []client.Object{s.Get(podKey("web-evil")), s.Get(claimKey("data-web-evil")), s.Get(revisionKey("web-evil"))} {
		if object == nil || object.GetResourceVersion() != versions[i] {
			t.Errorf("%T: %v", object, object)
		}
	}
	if status := s.set().Status; status.Replicas != 1 || status.UpdatedAvailableReplicas != 1 {
		t.Errorf("%+v", status)
	}
}
