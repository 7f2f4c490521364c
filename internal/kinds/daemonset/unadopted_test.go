package daemonset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// ADS-094, ADS-095, ADS-175, ADS-130 (parts): as TestPodsThatAreNotAdoptedYetCount, in the placement step and for requested deletions. What the caches show of a pod that is not adopted
// yet may be older than an adoption, and than its end, and its adoption may be refused: it is no reason to take an available pod out of service.
func TestPodsThatAreNotAdoptedYetReplaceNobody(t *testing.T) {
	for name, tt := range map[string]struct {
		options []option
		build   func(w *world) (orphan *corev1.Pod)
	}{
		"beside a pod of the set": {[]option{maxUnavailable(1)}, func(w *world) *corev1.Pod {
			w.pod("n1", "a:2")
			return w.pod("n1", "a:2", named("a"), born(5e12))
		}},
		"a new one beside an old one, with a surge": {[]option{maxSurge(1)}, func(w *world) *corev1.Pod {
			w.pod("n1", "a:1")
			return w.pod("n1", "a:2")
		}},
		"another is to be deleted by request": {[]option{maxUnavailable(1)}, func(w *world) *corev1.Pod {
			w.pod("n2", "a:2", specified)
			return w.pod("n1", "a:2")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := between(t, 2, tt.options...)
			orphan := tt.build(w)
			if len(w.Pods) == 2 && w.Pods[0].Spec.NodeName == "n1" {
				w.pod("n2", "a:2")
			}
			orphan.OwnerReferences = nil
			pods := w.Pods
			w.Pods = nil
			for _, pod := range pods {
				if pod != orphan {
					w.Pods = append(w.Pods, pod)
				}
			}
			w.Orphans = append(w.Orphans, orphan)
			w.does("adopt")
		})
	}
}
