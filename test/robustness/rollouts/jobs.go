package rollouts

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/afloat-project/afloat/api/pub"
)

// keptJobs is how many jobs stay; older ones are deleted.
const keptJobs = 3

// playJobs makes one BroadcastJob after the other.
func (r *Rollouts) playJobs(ctx context.Context) {
	for number := 1; ctx.Err() == nil; number++ {
		w := workload{resource: resource("broadcastjobs"), name: fmt.Sprintf("job-%d", number), spec: `
parallelism: 2
template:
  metadata: {labels: {job: "yes"}}
  spec:
    restartPolicy: Never
    containers: [{name: main, image: "app:v1"}]
completionPolicy: {type: Always}
`}
		if err := r.create(ctx, w); err != nil {
			return
		}
		// A job that takes too long stays beside the next one.
		_ = wait.PollUntilContextTimeout(ctx, time.Second, patience, false, func(ctx context.Context) (bool, error) {
			object, err := r.client(w).Get(ctx, w.name, metav1.GetOptions{})
			if err != nil {
				return false, nil //nolint:nilerr // asked again
			}
			phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
			return phase == "completed", nil
		})
		if number <= keptJobs {
			continue
		}
		w.name = fmt.Sprintf("job-%d", number-keptJobs)
		err := r.again(ctx, "deleting "+w.name, func(ctx context.Context) error {
			background := metav1.DeletePropagationBackground
			return r.client(w).Delete(ctx, w.name, metav1.DeleteOptions{PropagationPolicy: &background})
		})
		if err != nil {
			return
		}
	}
}

// FinishPods plays what the simulated nodes do not: pods of jobs come to their end. It returns when the
// context ends.
func (r *Rollouts) FinishPods(ctx context.Context) {
	all := r.cluster.Kube.CoreV1().Pods(Namespace)
	// What fails is tried again a second later.
	_ = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		list, err := all.List(ctx, metav1.ListOptions{LabelSelector: pub.BroadcastJobName})
		if err != nil {
			return false, nil //nolint:nilerr // tried again
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
				continue
			}
			_, _ = all.Patch(ctx, pod.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"phase":"Succeeded",`+
				`"conditions":[{"type":"Ready","status":"False","reason":"PodCompleted"}]}}`, pod.UID),
				metav1.PatchOptions{}, "status")
		}
		return false, nil
	})
}
