package controller

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// PPS-038 (part), PPS-039 (part): one tenant has 200 PersistentPodStates, of a megabyte each, which an API server under load needs 200 ms to send, and
// creates a pod of each at once. Another tenant creates one pod meanwhile: the places for reads are divided among
// namespaces, and its pod is not refused.
func TestReadsOfOneTenantLeavePlacesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cached []*appsv1beta1.PersistentPodState
		var stored []client.Object
		for i := range 200 {
			state := stateOf(fmt.Sprint("s", i), "apps/v1", "StatefulSet", fmt.Sprint("web", i))
			state.Namespace = "hostile"
			cached, stored = append(cached, state), append(stored, state.DeepCopy())
		}
		state := stateOf("shop", "apps/v1", "StatefulSet", "web")
		cached, stored = append(cached, state), append(stored, state.DeepCopy())
		w := watchOf(apiServer(t, func(ctx context.Context) error {
			select {
			case <-time.After(200 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, stored...), cached...)
		for i := range 200 {
			go func() {
				pod := podBy(fmt.Sprintf("web%d-0", i), "apps/v1", "StatefulSet", fmt.Sprint("web", i))
				pod.Namespace = "hostile"
				_, _ = w.Of(t.Context(), pod, "hostile")
			}()
		}
		synctest.Wait()
		if _, err := w.Of(t.Context(), podBy("web-0", "apps/v1", "StatefulSet", "web"), "shop"); err != nil {
			t.Errorf("the pod of the other tenant is refused: %v", err)
		}
		time.Sleep(2 * readingTime) // of the bubble: the reads that are left end
	})
}
