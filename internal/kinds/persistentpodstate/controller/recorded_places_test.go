package controller

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// PPS-045 (part), PPS-052 (part): a node was made anew with another label while its pods went on; the former
// label stayed recorded, and the next pod waited for it for ever.
func TestLabelsOfANodeThatWasMadeAnewWereMissed(t *testing.T) {
	w := pinned(t)
	w.make("web", 1, 0, nil)
	w.write("places", "web", nil)
	w.holds("places", "web-0 a z1")
	w.Manage() // what settling has asked for
	w.r.Cleanup = false
	w.Remove(key("Node", "a"))
	w.node("a", "z2")
	w.Events(1 << 20)
	w.Pass(10 * time.Second)
	w.Manage()
	if got := w.places("places"); got != "web-0 a z2" {
		t.Errorf("recorded is %q", got)
	}
}

// PPS-047 (part), PPS-078 (part): a set was made again to change what cannot be changed, without its pods
// having gone. The place of a pod that was not ready at that time was forgotten, and the next pod of its name
// started anywhere.
func TestThePlaceOfAPodThatOutlivedItsSetWasForgotten(t *testing.T) {
	for name, byHand := range map[string]bool{"generated": false, "by hand": true} {
		t.Run(name, func(t *testing.T) {
			w := pinned(t)
			annotations := map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.RequiredPersistentTopology: "zone"}
			if byHand {
				annotations = nil
				w.write("web", "web", nil)
			}
			w.make("web", 2, 0, annotations)
			w.holds("web", "web-0 a z1, web-1 a z1")
			w.Change(key("Pod", "web-1"), func(o client.Object) { o.(*corev1.Pod).Status = corev1.PodStatus{Phase: corev1.PodRunning} })
			w.Change(key(ss, "web"), func(o client.Object) {
				o.SetFinalizers([]string{metav1.FinalizerOrphanDependents})
				o.SetDeletionTimestamp(new(metav1.NewTime(w.Now())))
			})
			w.Events(1 << 20)
			w.Manage()
			for _, kind := range []string{"Pod", pps} {
				for _, object := range w.List(kind, false) {
					w.Change(w.KeyOf(kind, object), func(o client.Object) { o.SetOwnerReferences(nil) })
				}
			}
			w.Remove(key(ss, "web"))
			for range 3 {
				w.Events(1 << 20)
				w.Pass(2 * time.Second)
				w.Manage()
			}
			w.make("web", 2, 0, annotations)
			for range 3 {
				w.Events(1 << 20)
				w.Pass(2 * time.Second)
				w.Manage()
			}
			if got := w.places("web"); !strings.Contains(got, "web-1 a z1") {
				t.Errorf("recorded is %q", got)
			}
			// Without a set, and without its pods, nothing is.
			w.Remove(key(ss, "web"))
			w.Remove(key("Pod", "web-0"))
			w.Remove(key("Pod", "web-1"))
			w.settle()
			if state := w.state("web"); state != nil && len(state.Status.PodStates) > 0 {
				t.Errorf("recorded is %+v", state.Status)
			}
		})
	}
}

// PPS-105 (part): with the gate, a pod that had to stay in its zone started in another one after an
// autoscaler had taken its node away, although the zone had others. The place goes with the last of them.
func TestAMustThatOtherNodesCouldKeepWasForgottenWithTheNode(t *testing.T) {
	for name, last := range map[string]func(*world){"the last one goes": func(w *world) { w.Remove(key("Node", "a2")) },
		"the last one is moved": func(w *world) { w.Change(key("Node", "a2"), func(o client.Object) { o.GetLabels()["zone"] = "z2" }) }} {
		t.Run(name, func(t *testing.T) { mustStays(t, last) })
	}
}

func mustStays(t *testing.T, last func(*world)) {
	t.Helper()
	w := pinned(t)
	w.make("web", 1, 0, nil)
	w.write("places", "web", func(s *appsv1beta1.PersistentPodState) {
		s.Spec.PersistentPodStateRetentionPolicy = appsv1beta1.RetainWhenDeleted
	})
	w.settle()
	w.node("a2", "z1")
	w.node("b", "z2")
	w.respec(ss, "web", func(o client.Object) { o.(*appsv1.StatefulSet).Spec.Replicas = new(int32) })
	w.settle()
	w.Remove(key("Node", "a"))
	w.holds("places", "web-0 a z1")
	w.Manage() // what settling has asked for
	last(w)
	w.Events(1 << 20)
	w.Manage()
	if got := w.places("places"); got != "" {
		t.Errorf("no node is left, and recorded is %q", got)
	}
}
