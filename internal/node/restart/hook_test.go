package restart

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/afloat-project/afloat/internal/platform/slim"
)

// CRR-104 (part), ND-057: a hook that is too large for the cache of the daemon runs nevertheless.
func TestLargeHooksRun(t *testing.T) {
	pod := func(command string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "a", Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{command}}}}},
			{Name: "b"}}}}
	}
	for _, size := range []int{10, 20 << 10, 200 << 10} {
		command := strings.Repeat("x", size)
		cached := pod(command)
		if _, err := slim.NodePod(cached); err != nil {
			t.Fatal(err)
		}
		r := &reconciler{pods: fake.NewClientBuilder().WithObjects(cached).Build(), live: fake.NewClientBuilder().WithObjects(pod(command)).Build()}
		a := run("a", 0)
		found, err := r.withHook(t.Context(), request(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if found == nil {
			t.Fatal("no pod with the hook is found")
		}
		if hook := r.order(request(), found, &a).Hook; hook == nil || hook.Exec == nil {
			t.Errorf("a hook of %d bytes: got %v, want a command", size, hook)
		} else if hook.Exec.Command[0] != command {
			t.Errorf("a hook of %d bytes: the command has %d", size, len(hook.Exec.Command[0]))
		}
	}
}
