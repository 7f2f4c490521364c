//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// TestRollingUpdatesOfTheManagerRefuseNothing: while the managers are replaced three times, fifty objects per
// second are created, CloneSets and pods in turn, and none is refused (OPS-101 (part)).
func TestRollingUpdatesOfTheManagerRefuseNothing(t *testing.T) {
	ns := namespace(t)
	set := &appsv1beta1.CloneSet{}
	if err := yaml.Unmarshal([]byte(`
metadata: {name: admitted, namespace: `+ns+`}
spec:
  replicas: 1
  selector: {matchLabels: {app: admitted}}
  template:
    metadata: {labels: {app: admitted}}
    spec: {containers: [{name: c, image: "nginx:1.26"}]}
`), set); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "admitted", Namespace: ns,
		Annotations: map[string]string{"apps.kruise.io/container-launch-priority": "Ordered"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "nginx:1.26"}, {Name: "b", Image: "nginx:1.26"}}}}
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	admitted, longest, refused := 0, time.Duration(0), map[string]int{}
	admit := func(object client.Object) {
		begin := time.Now()
		err := kube.Create(context.WithoutCancel(ctx), object, client.DryRunAll)
		mu.Lock()
		defer mu.Unlock()
		if longest = max(longest, time.Since(begin)); err != nil {
			refused[err.Error()]++
			return
		}
		admitted++
	}
	var admitting sync.WaitGroup
	admitting.Go(func() {
		tick := time.NewTicker(time.Second / 50)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			var object client.Object = set.DeepCopy()
			if i%2 == 1 {
				object = pod.DeepCopy()
			}
			admitting.Go(func() { admit(object) })
		}
	})
	begin := time.Now()
	for i := range 3 {
		patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"afloat.dev/restarted":"%d-%d"}}}}}`, begin.UnixNano(), i)
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: "kruise-controller-manager"}}
		if err := kube.Patch(t.Context(), deployment, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
		managersBack(t)
		eventually(t, "the end of the former managers", func(ctx context.Context) string {
			var managers corev1.PodList
			if err := kube.List(ctx, &managers, client.InNamespace("kruise-system"),
				client.MatchingLabels{"control-plane": "controller-manager"}); err != nil {
				return err.Error()
			}
			if n := len(managers.Items); n != int(*deployment.Spec.Replicas) {
				return fmt.Sprintf("%d managers", n)
			}
			return ""
		})
	}
	cancel()
	admitting.Wait()
	t.Logf("%d admitted in %s, the slowest in %s", admitted, time.Since(begin).Round(time.Second), longest)
	if len(refused) > 0 || admitted < 500 {
		t.Errorf("%d admitted, refused: %v", admitted, refused)
	}
}
