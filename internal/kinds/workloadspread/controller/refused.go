package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

// Refuses reports whether the response to a create request means for certain that the request did not, and
// will not, create the object. AlreadyExists does not: the existing pod may stem from an earlier attempt.
func Refuses(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout &&
		!apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err)
}

// Refused gives back the place of a pod that the API server refused to create after our webhook had admitted
// it, for instance because of a quota, a policy or another webhook (WS-152). The caller is the client that
// tried to create the pod. A pod without a name is not found again.
func (w *Watch) Refused(ctx context.Context, pod metav1.Object, versioned workloadspread.Versioned) error {
	if pod.GetName() == "" {
		return nil
	}

	refused := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.GetNamespace(), Name: pod.GetName(),
		Labels: pod.GetLabels(), OwnerReferences: pod.GetOwnerReferences()}}
	spread, err := w.Match(ctx, refused, refused.Namespace)
	if err != nil || spread == nil {
		return err
	}
	if err := w.Booker.Release(ctx, spread,
		workloadspread.Creation{Key: refused.Name, Version: versioned.Of(refused)}); err != nil {
		return fmt.Errorf("giving back the place of pod %s in WorkloadSpread %s: %w", refused.Name,
			spread.Name, err)
	}

	return nil
}
