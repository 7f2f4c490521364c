package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/simulation"
)

// PPS-078: a StatefulSet is deleted without its pods and made again, as users do to change its claim templates.
// The manager's cache of pods is behind that of StatefulSets: it still shows the pods as those of the former
// one. The place of a pod that is not ready at the moment is not forgotten.
func TestMadeAgainBeforeTheCacheShowsItsOrphanedPods(t *testing.T) {
	for name, behind := range map[string]bool{"caches that keep up": false, "pods are behind": true} {
		w := pinned(t)
		asks := map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.RequiredPersistentTopology: "zone"}
		w.make("web", 2, 0, asks)
		w.holds("web", "web-0 a z1, web-1 a z1")
		w.Pass(time.Minute)

		// web-1 is not ready: its program starts again, and reads its data for a while.
		w.Change(key("Pod", "web-1"), func(o client.Object) {
			o.(*corev1.Pod).Status.Conditions[0].Status = corev1.ConditionFalse
		})
		w.Events(1 << 10)

		// kubectl delete --cascade=orphan, and kubectl create.
		for _, object := range []client.Object{w.Get(key("Pod", "web-0")), w.Get(key("Pod", "web-1"))} {
			w.Change(w.KeyOf("Pod", object), func(o client.Object) { o.SetOwnerReferences(nil) })
		}
		w.Change(key(pps, "web"), func(o client.Object) { o.SetOwnerReferences(nil) })
		w.Remove(key(ss, "web"))
		w.make("web", 2, 0, asks)

		for i := 0; i < len(w.View.Feed); {
			if behind && w.View.Feed[i].Key.Kind == "Pod" {
				i++
				continue
			}
			w.DeliverOne(i)
		}
		if _, err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
		w.Events(1 << 10)
		if _, err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
		entry, kept := w.state("web").Status.PodStates["web-1"]
		if !kept || entry.NodeTopologyLabels["zone"] != "z1" {
			t.Errorf("%s: the place of web-1: got %q, want it to be remembered", name, w.places("web"))
		}
	}
}

// PPS-078: as before, with caches that keep up; but the API server that stored the pods has a clock that is two
// minutes ahead of that of the one which stores the new StatefulSet, a minute after the pods were created.
func TestMadeAgainByAnAPIServerWhoseClockIsBehind(t *testing.T) {
	w := pinned(t)
	asks := map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.RequiredPersistentTopology: "zone"}
	w.make("web", 2, 0, asks)
	w.holds("web", "web-0 a z1, web-1 a z1")
	for _, name := range []string{"web-0", "web-1"} { // created just now, by the clock of their API server
		w.Change(key("Pod", name), func(o client.Object) {
			o.SetCreationTimestamp(metav1.NewTime(w.Now().Add(2 * time.Minute)))
		})
	}
	w.Pass(time.Minute)
	w.Change(key("Pod", "web-1"), func(o client.Object) {
		o.(*corev1.Pod).Status.Conditions[0].Status = corev1.ConditionFalse
	})
	for _, at := range []simulation.Key{key("Pod", "web-0"), key("Pod", "web-1"), key(pps, "web")} {
		w.Change(at, func(o client.Object) { o.SetOwnerReferences(nil) })
	}
	w.Remove(key(ss, "web"))
	w.make("web", 2, 0, asks)
	for range 2 {
		w.Events(1 << 10)
		if _, err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if entry, kept := w.state("web").Status.PodStates["web-1"]; !kept || entry.NodeTopologyLabels["zone"] != "z1" {
		t.Errorf("the place of web-1: got %q, want it to be remembered", w.places("web"))
	}
}
