package controller

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// TestDetachedPodsKeepTheirClaims: whoever takes a pod out of the set by hand finds its data, and the set
// makes another under another name, with and without reuse (CS-335, CS-348).
func TestDetachedPodsKeepTheirClaims(t *testing.T) {
	for _, reuse := range []bool{true, false} {
		t.Run(fmt.Sprint("reuse ", reuse), func(t *testing.T) {
			set := clonesettest.Set(2, clonesettest.Claims("1Gi"))
			set.Spec.ScaleStrategy.EnablePVCReuse = reuse
			s := simulate(1, set, cloneset.Features{})
			if err := s.Settle(100); err != nil {
				t.Fatal(err)
			}
			name := s.active()[0].Name
			s.Change(podKey(name), func(o client.Object) { o.SetOwnerReferences(nil) })
			if err := s.Settle(100); err != nil {
				t.Fatal(err)
			}
			claim := s.Get(claimKey("data-" + name))
			if claim == nil {
				t.Error("claim: got nil, want a value")
			} else if got, want := metav1.GetControllerOf(claim).UID, s.Get(podKey(name)).GetUID(); got != want {
				t.Errorf("UID of the owner: got %q, want %q\n%+v", got, want, claim)
			}
			status := s.set().Status
			if status.AvailableReplicas != 2 {
				t.Errorf("available replicas: got %d, want 2\n%+v", status.AvailableReplicas, status)
			}
			if len(status.Conditions) > 0 {
				t.Errorf("conditions: got %v, want none\n%+v", status.Conditions, status)
			}
		})
	}
}

// CS-064, CS-348: claims stay with a pod that somebody took labels from, whether that releases it or not.
func TestUnlabelledPodsKeepTheirClaims(t *testing.T) {
	for name, unlabel := range map[string]func(map[string]string){
		"all":             func(labels map[string]string) { clear(labels) },
		"the instance ID": func(labels map[string]string) { delete(labels, pub.CloneSetInstanceID) },
	} {
		for _, reuse := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", reuse ", reuse), func(t *testing.T) {
				set := clonesettest.Set(2, clonesettest.Claims("1Gi"))
				set.Spec.ScaleStrategy.EnablePVCReuse = reuse
				s := simulate(1, set, cloneset.Features{})
				if err := s.Settle(100); err != nil {
					t.Fatal(err)
				}
				pod := s.active()[0].Name
				claim := s.Get(claimKey("data-" + pod)).GetUID()
				s.Change(podKey(pod), func(o client.Object) { unlabel(o.GetLabels()) })
				if err := s.Settle(100); err != nil {
					t.Fatal(err)
				}
				now := s.Get(claimKey("data-" + pod))
				if now == nil {
					t.Fatal("the claim was deleted: now: got nil, want a value")
				} else if now.GetUID() != claim {
					t.Fatalf("the claim was deleted: UID: got %q, want %q\n%+v", now.GetUID(), claim, now)
				} else if got := now.GetDeletionTimestamp(); got != nil {
					t.Fatalf("the claim was deleted: time of deletion: got %v, want nil\n%+v", got, now)
				}
				if released := metav1.GetControllerOf(s.Get(podKey(pod))) == nil; released != (metav1.GetControllerOf(now).Kind == "Pod") {
					t.Errorf("released %t, %+v", released, now.GetOwnerReferences())
				}
			})
		}
	}
}

// IPU-082, CS-041: a template made from a running pod has labels by which the pods are known; that it loses
// or changes them costs neither a pod nor a claim, and a pod that is made of it is not deleted at once.
func TestTemplatesOfRunningPods(t *testing.T) {
	copied := func(id, hash string) string {
		return `{"metadata":{"labels":{"app":"web","apps.kruise.io/cloneset-instance-id":"` + id + `","controller-revision-hash":"` + hash +
			`","apps.kruise.io/specified-delete":"true"},` +
			`"annotations":{"apps.kruise.io/inplace-update-state":"{}"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"}]}}`
	}
	set := clonesettest.Set(2, clonesettest.Claims("1Gi"), clonesettest.Templated(copied("aaaaa", "x")))
	set.Spec.ScaleStrategy.EnablePVCReuse = false
	s := simulate(1, set, cloneset.Features{})
	if err := s.Settle(200); err != nil {
		t.Fatal(err)
	}
	before := map[string]types.UID{}
	for _, pod := range s.active() {
		before[pod.Name], before["data-"+pod.Name] = pod.UID, s.Get(claimKey("data-"+pod.Name)).GetUID()
	}
	for _, text := range []string{copied("bbbbb", "y"),
		`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"}]}}`} {
		s.Edit(clonesettest.Templated(text))
		if err := s.Settle(200); err != nil {
			t.Fatal(err)
		}
		after := map[string]types.UID{}
		for _, pod := range s.active() {
			after[pod.Name], after["data-"+pod.Name] = pod.UID, s.Get(claimKey("data-"+pod.Name)).GetUID()
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s: pods and claims (-before +after):\n%s", text, diff)
		}
		if status := s.set().Status; status.UpdatedAvailableReplicas != 2 {
			t.Errorf("%s: updated and available pods: got %+v, want 2", text, status)
		}
	}
}

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
	s.Node.Frozen = map[string]bool{"web-evil": true}
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
	s.Edit(clonesettest.Both(clonesettest.Image("nginx:2"), clonesettest.Replicas(1)))
	if err := s.Settle(300); err != nil {
		t.Fatal(err)
	}
	for i, object := range []client.Object{s.Get(podKey("web-evil")), s.Get(claimKey("data-web-evil")), s.Get(revisionKey("web-evil"))} {
		if object == nil {
			t.Error("object: got nil, want a value")
		} else if got := object.GetResourceVersion(); got != versions[i] {
			t.Errorf("resource version of the object: got %q, want %q\n%T\n%v", got, versions[i], object, object)
		}
	}
	status := s.set().Status
	if status.Replicas != 1 {
		t.Errorf("replicas: got %d, want 1\n%+v", status.Replicas, status)
	}
	if status.UpdatedAvailableReplicas != 1 {
		t.Errorf("updated and available replicas: got %d, want 1\n%+v", status.UpdatedAvailableReplicas, status)
	}
}
