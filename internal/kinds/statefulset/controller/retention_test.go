package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/simulation"
)

const keep, remove = appsv1beta1.RetainStatefulSetClaims, appsv1beta1.DeleteStatefulSetClaims

func retain(deleted, scaled appsv1beta1.StatefulSetClaimRetention) func(*appsv1beta1.StatefulSet) {
	return func(set *appsv1beta1.StatefulSet) {
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1beta1.StatefulSetClaimRetentionPolicy{WhenDeleted: deleted, WhenScaled: scaled}
	}
}

func claimed(names ...string) func(*appsv1beta1.StatefulSet) {
	return func(set *appsv1beta1.StatefulSet) { setClaims(set, names, "1Gi") }
}

func parallel(set *appsv1beta1.StatefulSet) {
	set.Spec.PodManagementPolicy = appsv1beta1.ParallelPodManagement
}

func replicas(n int32) func(*appsv1beta1.StatefulSet) {
	return func(set *appsv1beta1.StatefulSet) { set.Spec.Replicas = &n }
}

// claims are the PVCs that there are, with their UIDs.
func (s *simulated) claims() map[string]types.UID {
	found := map[string]types.UID{}
	for _, claim := range s.List("PersistentVolumeClaim", false) {
		found[claim.GetName()] = claim.GetUID()
	}
	return found
}

func (s *simulated) owners(claim string) []metav1.OwnerReference {
	if object := s.Get(claimKey(claim)); object != nil {
		return object.GetOwnerReferences()
	}
	return nil
}

// deleting has all claims that go with their pods known to be theirs before any condemned pod is deleted.
func (s *simulated) deleting(t *testing.T, want bool) {
	s.BeforeWrite = func(w simulation.Write, before, _ client.Object) {
		if w.Verb != "delete" || w.Key.Kind != "Pod" {
			return
		}
		for _, pod := range s.AllPods() {
			owners := s.owners("data-" + pod.Name)
			if has := slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == pod.UID }); has != want {
				t.Errorf("%s is deleted, and %s has the owners %v", before.GetName(), "data-"+pod.Name, owners)
			}
		}
	}
}

// TestClaimsGoOrStay shows ASTS-260, ASTS-262 (part) and ASTS-263, with the tests below: what PVCs are owned
// by, and what the garbage collector takes with sets and pods.
func TestClaimsGoOrStay(t *testing.T) {
	for _, tt := range []struct {
		deleted, scaled appsv1beta1.StatefulSetClaimRetention
	}{{keep, keep}, {keep, remove}, {remove, keep}, {remove, remove}} {
		for mode, option := range map[string]func(*appsv1beta1.StatefulSet){"ordered": func(*appsv1beta1.StatefulSet) {}, "parallel": parallel} {
			t.Run(string(tt.deleted)+string(tt.scaled)+mode, func(t *testing.T) {
				stranger := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}
				s := simulate(1, makeSet(3, claimed("data"), retain(tt.deleted, tt.scaled), option), everything)
				for _, name := range []string{"former-web-0", "data-web", "data-web-x", "data-other-0"} { // of no present template and ordinal
					other := stranger.DeepCopy()
					other.Name = name
					s.Store(claimKey(name), other)
				}
				s.ActFor(time.Minute)
				var want []metav1.OwnerReference
				if tt.deleted == remove {
					want = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Name: "web", UID: s.set().UID}}
				}
				first := s.claims()
				exist := func(when string, names ...string) {
					t.Helper()
					s.ActFor(time.Minute)
					got := s.claims()
					for _, name := range []string{"data-web-0", "data-web-1", "data-web-2", "data-web-3"} {
						if _, exists := got[name]; exists != slices.Contains(names, name) {
							t.Errorf("%s: %s exists: %t", when, name, exists)
						} else if exists && !strings.HasPrefix(when, "made again") && first[name] != "" && got[name] != first[name] {
							t.Errorf("%s: %s is another one", when, name)
						} else if diff := cmp.Diff(want, s.owners(name)); exists && diff != "" && s.Pod(strings.TrimPrefix(name, "data-")) != nil {
							t.Errorf("%s: owners of %s: %s", when, name, diff)
						}
					}
					for _, name := range []string{"former-web-0", "data-web", "data-web-x", "data-other-0"} {
						if len(s.owners(name)) > 0 {
							t.Errorf("%s: %s has the owners %v", when, name, s.owners(name))
						}
					}
				}
				all := []string{"data-web-0", "data-web-1", "data-web-2"}
				exist("created", all...)
				s.Edit(image("nginx:2"))
				exist("recreated", all...)
				s.Node.Fail("web-1")
				exist("failed", all...)

				s.deleting(t, tt.scaled == remove)
				s.Edit(replicas(0))
				left := all
				if tt.scaled == remove {
					left = nil
				}
				exist("scaled in", left...)
				s.BeforeWrite = nil
				s.Edit(replicas(3))
				exist("made again", all...)
				first = s.claims()

				// A reserved ordinal is no slot either.
				s.Edit(func(set *appsv1beta1.StatefulSet) {
					set.Spec.ReserveOrdinals = []intstr.IntOrString{intstr.FromInt32(1)}
				})
				left = []string{"data-web-0", "data-web-2", "data-web-3"}
				if tt.scaled == keep {
					left = append(left, "data-web-1")
				}
				exist("reserved", left...)

				s.Remove(setKey)
				if tt.deleted == remove { // that of the reserved one has no owner in the set, but its own pod
					left = nil
				}
				exist("the set is deleted", left...)
			})
		}
	}
}

// TestAChangedPolicy shows ASTS-262, with TestClaimsGoOrStay and
// TestClaimsStayWhenTheSetIsDeletedWithoutItsPods, and ASTS-265: references follow the policy, also where a
// pod is just made, and nothing is deleted for that; others' references stay, and PVCs that are missing are
// not waited for.
func TestAChangedPolicy(t *testing.T) {
	s := simulate(1, makeSet(2, claimed("data")), everything)
	s.ActFor(time.Minute)
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "backup", UID: "backup"}
	s.Store(simulation.Key{Kind: "ConfigMap", Name: "backup"}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "backup", UID: "backup"}})
	s.Change(claimKey("data-web-0"), func(o client.Object) { o.SetOwnerReferences([]metav1.OwnerReference{other}) })
	set := metav1.OwnerReference{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Name: "web", UID: s.set().UID}
	before := s.claims()
	for _, tt := range []struct {
		policy func(*appsv1beta1.StatefulSet)
		want   []metav1.OwnerReference
	}{
		{retain(remove, keep), []metav1.OwnerReference{set}}, {retain(remove, remove), []metav1.OwnerReference{set}},
		{retain(keep, remove), nil}, {retain("Other", "Other"), nil}, {retain(remove, keep), []metav1.OwnerReference{set}},
		{func(set *appsv1beta1.StatefulSet) { set.Spec.PersistentVolumeClaimRetentionPolicy = nil }, nil},
	} {
		s.Edit(tt.policy)
		s.ActFor(time.Minute)
		if diff := cmp.Diff(append([]metav1.OwnerReference{other}, tt.want...), s.owners("data-web-0")); diff != "" {
			t.Errorf("owners of data-web-0 (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(tt.want, append([]metav1.OwnerReference(nil), s.owners("data-web-1")...)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(before, s.claims()); diff != "" {
			t.Errorf("claims (-before +after):\n%s", diff)
		}
	}
	// The PVC of a pod that is gone is taken over with its owners; one that is gone too is made.
	s.Edit(retain(remove, keep))
	s.Remove(podKey("web-1"))
	s.Change(claimKey("data-web-1"), func(o client.Object) { o.SetOwnerReferences(nil) })
	s.Remove(claimKey("data-web-0"))
	s.ActFor(time.Minute)
	if diff := cmp.Diff([]metav1.OwnerReference{set}, s.owners("data-web-1")); diff != "" {
		t.Errorf("owners of data-web-1 (-want +got):\n%s\n%s", diff, s.describe())
	}
	if got := s.Pod("web-1"); got == nil {
		t.Errorf("pod web-1: got nil, want a value\n%s", s.describe())
	}
	if s.Get(claimKey("data-web-0")) != nil {
		t.Errorf("the claim of web-0 is there: %s", s.describe())
	}
	if n := s.set().Status.AvailableReplicas; n != 2 {
		t.Errorf("a pod that runs needs no claim: %d pods are available, want 2: %s", n, s.describe())
	}
}

// TestNoRetentionWithoutItsGate shows ASTS-266: with the gate off no reference comes and none goes.
func TestNoRetentionWithoutItsGate(t *testing.T) {
	s := simulate(1, makeSet(2, claimed("data"), retain(remove, remove)), statefulset.Features{})
	s.ActFor(time.Minute)
	set := []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Name: "web", UID: s.set().UID}}
	s.Change(claimKey("data-web-0"), func(o client.Object) { o.SetOwnerReferences(set) })
	for _, change := range []func(*appsv1beta1.StatefulSet){image("nginx:2"), retain(keep, keep), replicas(1), retain(remove, remove),
		replicas(2)} {
		s.Edit(change)
		s.ActFor(time.Minute)
		if diff := cmp.Diff(set, s.owners("data-web-0")); diff != "" {
			t.Errorf("owners of data-web-0 (-want +got):\n%s", diff)
		}
		if owners := s.owners("data-web-1"); len(owners) > 0 {
			t.Errorf("owners of data-web-1: got %v, want none", owners)
		}
	}
}

// TestAClaimThatWouldGoIsSeenInTime shows that no claim goes with a pod that is made anew, where a former
// manager had made the pod its owner and the cache does not show it yet (ASTS-263 (part)).
func TestAClaimThatWouldGoIsSeenInTime(t *testing.T) {
	s := started(t, makeSet(3, claimed("data"), retain(keep, remove)), everything)
	uid, claim := s.claim("data-web-2").UID, s.Cached(claimKey("data-web-2"))
	pod := s.Pod("web-2")
	s.Change(claimKey("data-web-2"), func(o client.Object) { // the set was smaller for a moment
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}})
	})
	s.Edit(image("nginx:2"))
	s.kind.Features = everything
	s.Start()
	s.Show(claimKey("data-web-2"), claim)
	s.BeforeWrite = func(w simulation.Write, before, _ client.Object) {
		if w.Verb == "delete" && w.Key.Kind == "Pod" && len(s.owners("data-"+w.Key.Name)) > 0 {
			t.Errorf("%s is deleted, and its claim has the owners %v", before.GetName(), s.owners("data-"+w.Key.Name))
		}
	}
	s.ActFor(5 * time.Minute)
	if now := s.claim("data-web-2"); now == nil || now.UID != uid {
		t.Errorf("the claim went: %s", s.describe())
	}
	if image := s.Pod("web-2").Spec.Containers[0].Image; image != "nginx:2" {
		t.Errorf("image of web-2: got %s, want nginx:2: %s", image, s.describe())
	}
}

// TestClaimsOfAScaleInByKubernetes shows that claims stay which the StatefulSet of Kubernetes was about to
// let go with a pod that is a slot of ours: the pod is their controller (ASTS-261 (part), ASTS-263 (part)).
func TestClaimsOfAScaleInByKubernetes(t *testing.T) {
	s := started(t, makeSet(3, claimed("data"), retain(keep, remove)), everything)
	uid, pod, yes := s.claim("data-web-2").UID, s.Pod("web-2"), true
	s.Change(claimKey("data-web-2"), func(o client.Object) {
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &yes}})
	})
	s.Edit(image("nginx:2"))
	s.ActFor(5 * time.Minute)
	if now := s.claim("data-web-2"); now == nil || now.UID != uid {
		t.Errorf("the claim went with its pod: %s", s.describe())
	} else if len(now.OwnerReferences) > 0 {
		t.Errorf("owners of the claim: got %v, want none", now.OwnerReferences)
	}
}
