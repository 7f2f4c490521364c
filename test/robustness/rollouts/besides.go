package rollouts

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/api/pub"
)

// shared is the name of the ConfigMap that a ResourceDistribution copies to the targets. In the namespace occupied
// somebody else has a ConfigMap of that name.
const (
	shared   = "shared"
	occupied = "robustness-occupied"
)

var targets = []string{"robustness-one", "robustness-two", occupied}

func data(draw *rand.Rand) string {
	return fmt.Sprintf(`{"spec":{"resource":{"data":{"version":"%d"}}}}`, draw.IntN(1_000_000))
}

// namespaces leaves out one target, or none.
func namespaces(draw *rand.Rand) string {
	out := draw.IntN(len(targets) + 1)
	var list []string
	for i, name := range targets {
		if i != out {
			list = append(list, fmt.Sprintf(`{"name":%q}`, name))
		}
	}
	return `{"spec":{"targets":{"includedNamespaces":{"list":[` + strings.Join(list, ",") + `]}}}}`
}

// spoil changes or deletes a copy of the shared ConfigMap.
func spoil(ctx context.Context, r *Rollouts, _ workload, choice uint64) error {
	copies := r.cluster.Kube.CoreV1().ConfigMaps(targets[choice%2])
	var err error
	if choice%4 < 2 {
		err = copies.Delete(ctx, shared, metav1.DeleteOptions{})
	} else {
		_, err = copies.Patch(ctx, shared, types.MergePatchType, []byte(`{"data":{"version":"spoiled"}}`), metav1.PatchOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("spoiling a copy: %w", err)
	}
	return nil
}

// specify asks for a pod to be deleted.
func specify(ctx context.Context, r *Rollouts, w workload, choice uint64) error {
	pod, err := r.pick(ctx, "app="+w.name, choice)
	if err != nil || pod == nil {
		return err
	}
	return r.mark(ctx, pod, fmt.Sprintf(`"labels":{%q:"true"}`, pub.SpecifiedDelete))
}

// slow is the label of pods whose containers take long to restart.
const slow = "slow"

// price says of each pod what it costs to delete it, and now and then makes one slow: it is out of service for long
// when its image changes, and should be the first to go.
func price(ctx context.Context, r *Rollouts, w workload, choice uint64) error {
	list, err := r.cluster.Kube.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + w.name})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	draw := rand.New(rand.NewPCG(r.seed, choice)) //nolint:gosec // chance that can be repeated
	for i := range list.Items {
		cost := fmt.Sprintf(`"annotations":{%q:"%d"`, corev1.PodDeletionCost, draw.IntN(21)-10)
		if i == 0 && draw.IntN(2) == 0 {
			cost += fmt.Sprintf(`,"afloat.dev/simulated-restart":"150s"},"labels":{%q:"yes"`, slow)
		}
		if err := r.mark(ctx, &list.Items[i], cost+"}"); err != nil {
			return err
		}
	}
	return nil
}

// mark changes the metadata of a pod. That it is gone is no error.
func (r *Rollouts) mark(ctx context.Context, pod *corev1.Pod, metadata string) error {
	_, err := r.cluster.Kube.CoreV1().Pods(Namespace).Patch(ctx, pod.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"uid":%q,%s}}`, pod.UID, metadata), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("marking a pod: %w", err)
	}
	return nil
}
