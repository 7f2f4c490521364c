package podapply

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// updateInPlace takes the pod out of service and starts its update. Each step is based on the version that
// the step before left. After a conflict it reads the pod again and retries, if what was decided about the
// pod still holds.
func (a *Application) updateInPlace(ctx context.Context, v *podplan.Verdict) error {
	pod := v.Pod
	for range attempts {
		recreated, err := a.refused(ctx, v, a.steps(ctx, pod, v.Update.Hold, v.Update.Resize, v.Update.Start))
		switch {
		case recreated:
			return errRecreated
		case err == nil:
			a.Say("SuccessfulUpdatePodInPlace", "updating pod %s in place %s", v.Pod.Name, v.Message)
			return nil
		case apierrors.IsNotFound(err):
			return reconcile.ErrStalePlan
		case !apierrors.IsConflict(err):
			a.Warn("FailedUpdatePodInPlace", "failed to update pod %s in place to %s: %v",
				v.Pod.Name, v.Update.Revision, err)
			return err
		}
		pod = &corev1.Pod{}
		if err := a.Read(ctx, client.ObjectKeyFromObject(v.Pod), pod); err != nil {
			return reconcile.StaleIfNotFound(
				fmt.Errorf("reading pod %s after a conflict: %w", v.Pod.Name, err))
		}
		if !sameDecision(v.Pod, pod) {
			return reconcile.ErrStalePlan
		}
		// The pod may have come back into service meanwhile.
		if err := a.Ask(ctx, pod, v.Disruption()); err != nil {
			return err
		}
	}
	return reconcile.ErrStalePlan
}

// patchStep computes one patch from the version of the pod that the step before left.
type patchStep func(pod *corev1.Pod, now time.Time) (*podpatch.Patch, error)

// steps sends the patches in order, each only after the one before succeeded. Empty patches are skipped.
func (a *Application) steps(ctx context.Context, pod *corev1.Pod, steps ...patchStep) error {
	for _, next := range steps {
		patch, err := next(pod, a.Now())
		if err != nil {
			return err
		}
		if patch.Empty() {
			continue
		}
		if pod, err = a.send(ctx, pod, patch); err != nil {
			return err
		}
	}
	return nil
}

// refused handles an update that the API server does not accept, such as a resize against the pod's QoS
// class. If the policy allows recreation, it marks the pod for that and records an event; otherwise it
// returns the server's error.
func (a *Application) refused(ctx context.Context, v *podplan.Verdict, err error) (recreated bool, _ error) {
	tooLarge := apierrors.IsForbidden(err) && strings.Contains(err.Error(), nodeTooSmall)
	if !v.MayRecreate || !apierrors.IsInvalid(err) && !apierrors.IsMethodNotSupported(err) && !tooLarge {
		// Forbidden comes from a quota, a policy or a disruption budget: deleting the pod would bypass it.
		return false, err
	}
	pod := &corev1.Pod{}
	if err := a.Read(ctx, client.ObjectKeyFromObject(v.Pod), pod); err != nil {
		return false, reconcile.StaleIfNotFound(
			fmt.Errorf("reading pod %s, whose update was refused: %w", v.Pod.Name, err))
	}

	target := pod.Labels[pub.ControllerRevisionHash] // the target of an update under way
	if v.Update != nil {
		target = v.Update.Revision
	}
	a.Warn("FailedUpdatePodInPlace",
		"pod %s is recreated, because the API server refuses to update it in place to %s: %v",
		v.Pod.Name, target, err)

	patch := &podpatch.Patch{}
	patch.Label(pub.SpecifiedDelete, "true")
	_, err = a.send(ctx, pod, patch)
	return err == nil, err
}

// nodeTooSmall is part of the API server's message when the pod's node can never carry out a resize; the
// error has no code of its own.
const nodeTooSmall = "node didn't have enough allocatable resources"

// sameDecision reports whether what was decided about a pod still holds for a newer version of it: it is the
// same pod, active, of the same owner, at the same revision and in the same state, and nobody else began an
// update or a deletion. A pod that was not ready when it was decided about, and therefore cost nothing, must
// not have become ready.
func sameDecision(decided, now *corev1.Pod) bool {
	if decided.UID != now.UID || !readiness.Active(now) || readiness.Ready(now) && !readiness.Ready(decided) {
		return false
	}
	if owner := metav1.GetControllerOfNoCopy(now); owner == nil ||
		owner.UID != metav1.GetControllerOfNoCopy(decided).UID {
		return false
	}
	for _, key := range []string{pub.ControllerRevisionHash, pub.LifecycleState, pub.SpecifiedDelete} {
		if decided.Labels[key] != now.Labels[key] {
			return false
		}
	}
	return decided.Annotations[pub.InPlaceUpdateState] == now.Annotations[pub.InPlaceUpdateState] &&
		decided.Annotations[pub.InPlaceUpdateGrace] == now.Annotations[pub.InPlaceUpdateGrace]
}

// reported returns the version of the pod for which a patch of its gates is sent: the newest that the caches
// show, if since the plan only reports of the node arrived, on which the decision does not depend. Pods of a
// plan wait for each other, and meanwhile nodes report about new pods: a third of the patches that open gates
// were refused. The patch is guarded by a resourceVersion nevertheless: with the UID alone, a request that
// took long would open what another leader has closed since; see
// docs/decisions/0032-gates-are-opened-for-one-version.md.
func (a *Application) reported(ctx context.Context, planned *corev1.Pod) *corev1.Pod {
	if newer, ok := a.Own.Newer(ctx, planned).(*corev1.Pod); ok && onlyReported(planned, newer) {
		return newer
	}
	return planned
}

// onlyReported reports whether two versions of a pod that is not being updated in place differ only in what
// its node reports. During an update, these reports are what the update waits for.
func onlyReported(planned, newer *corev1.Pod) bool {
	for _, key := range []string{pub.InPlaceUpdateState, pub.InPlaceUpdateGrace} {
		if _, updated := planned.Annotations[key]; updated {
			return false
		}
	}
	for _, gate := range []corev1.PodConditionType{pub.InPlaceUpdateReady, pub.KruisePodReady} {
		if !equality.Semantic.DeepEqual(
			readiness.Condition(planned, gate), readiness.Condition(newer, gate),
		) {
			return false
		}
	}
	before, after := planned.ObjectMeta, newer.ObjectMeta
	before.ResourceVersion, before.ManagedFields = after.ResourceVersion, after.ManagedFields
	return readiness.Active(newer) && equality.Semantic.DeepEqual(before, after) &&
		equality.Semantic.DeepEqual(planned.Spec, newer.Spec)
}
