package pod

import (
	"context"
	"fmt"

	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
)

// StateFinder finds what is remembered of a pod that is created.
type StateFinder interface {
	Of(ctx context.Context, pod *corev1.Pod, namespace string) (*appsv1beta1.PersistentPodState, error)
}

// States returns the step that brings pods back to where they were (PPS-030). It comes after the steps that
// select by the pod, and changes nothing that these read. What it does has no effect but its answer, which is
// the same for a dry run.
func States(finder StateFinder) Step {
	return Step{Name: "persistentpodstate", Apply: func(ctx context.Context, request *Request) ([]operations.Operation, error) {
		if request.Again { // the steps before this one come once more
			return nil, nil
		}
		namespace := request.Pod.Namespace
		if namespace == "" {
			namespace = request.Namespace
		}
		state, err := finder.Of(ctx, request.Pod, namespace)
		if err != nil {
			return nil, &InternalError{fmt.Errorf("looking for where the pod was: %w", err)}
		}
		if state == nil {
			return nil, nil
		}
		return persistentpodstate.Bind(state, request.Pod), nil
	},
	}
}
