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

// Refuses tells whether the answer to a creation says for certain that the object was not, and will not be,
// created by that request. A name that is taken is none: the pod that has it may be one of an earlier
// request.
func Refuses(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout &&
		!apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err)
}

// Refused gives back the place of a pod that the API server refused to who asked it to create the pod: after
// our webhook it may have been a quota, a policy or another webhook (WS-152). A pod that has no name is not
// found again.
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
