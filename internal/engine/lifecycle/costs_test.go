package lifecycle

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
)

// IPU-151 (part): a hook with very many finalizers is read quickly. A CloneSet of 1 MiB with as many
// finalizers on its pods once kept a worker busy for minutes for each pod.
func TestAHookWithManyFinalizersIsRead(t *testing.T) {
	const many = 100_000
	hook, pod, other := &pub.LifecycleHook{}, &corev1.Pod{}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{}}
	for i := range many {
		hook.FinalizersHandler = append(hook.FinalizersHandler, fmt.Sprintf("a/%06d", i))
		pod.Finalizers = append(pod.Finalizers, fmt.Sprintf("a/%06d", i))
		other.Finalizers = append(other.Finalizers, fmt.Sprintf("b/%06d", i))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !Hooked(hook, pod) || !FullyHooked(hook, pod) || Hooked(hook, other) || FullyHooked(hook, other) {
			t.Error("not all finalizers are found, or others")
		}
		Hook(&podpatch.Patch{}, hook, other)
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Error("it takes more than 5 seconds")
	}
}
