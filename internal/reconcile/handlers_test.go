package reconcile

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Handlers see an object before and after its event, and those that exist at the start only if they ask.
func TestHandlersSeeBothStates(t *testing.T) {
	for _, initially := range []bool{true, false} {
		var seen []string
		name := func(pod *corev1.Pod) string {
			if pod == nil {
				return "-"
			}
			return pod.Name
		}
		h := Changes(initially, func(_ context.Context, _ Queue, before, after *corev1.Pod) {
			seen = append(seen, name(before)+">"+name(after))
		})
		a, b := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
		h.Create(t.Context(), event.CreateEvent{Object: a, IsInInitialList: true}, nil)
		h.Create(t.Context(), event.CreateEvent{Object: b}, nil)
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: a, ObjectNew: b}, nil)
		h.Delete(t.Context(), event.DeleteEvent{Object: a}, nil)
		h.Delete(t.Context(), event.DeleteEvent{Object: &corev1.Node{}}, nil)
		want := []string{"->a", "->b", "a>b", "a>-"}
		if !initially {
			want = want[1:]
		}
		if !slices.Equal(seen, want) {
			t.Errorf("initially %v: %q, want %q", initially, seen, want)
		}
	}
}
