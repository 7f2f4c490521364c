package explain

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/kinds/ephemeraljob"
)

var ephemeralJob = kindByName("EphemeralJob")

// whyEphemeral adds the planner's verdict on each pod of an EphemeralJob that has not ended.
func (r *Reader) whyEphemeral(ctx context.Context, e *Explanation, name types.NamespacedName) error {
	object, err := r.Get(ctx, ephemeralJob, name)
	if err != nil {
		return err
	}

	job, ok := object.(*appsv1alpha1.EphemeralJob)
	if !ok {
		return errors.New("it is no EphemeralJob")
	}

	s := ephemeraljob.Snapshot{Job: job, Now: r.now()}
	if !ephemeraljob.Finished(job) && job.DeletionTimestamp == nil {
		// Read all pods, because pods that were treated already may have other labels now.
		err := r.each(ctx, &corev1.PodList{}, func(object client.Object) error {
			if pod, ok := object.(*corev1.Pod); ok {
				s.Pods = append(s.Pods, pod)
			}
			return nil
		}, client.InNamespace(name.Namespace))
		if apierrors.IsForbidden(err) {
			e.Notes = append(e.Notes, "you may not list pods: nothing is said about them")
			return nil
		}
		if err != nil {
			return err
		}
	}

	plan := ephemeraljob.NewPlan(s)
	e.Summary = append([]string{plan.Why}, e.Summary...)
	for _, v := range plan.Verdicts {
		p := Pod{
			Namespace: name.Namespace,
			Name:      v.Pod,
			State:     Next,
			Action:    "go on",
			Reason:    v.Reason,
			Message:   v.Message,
		}
		switch {
		case v.Done:
			p.State, p.Action = Done, "keep"
		case v.Waits:
			p.State, p.Action = Waiting, "wait"
		}

		if !v.Until.IsZero() {
			p.Until = &metav1.Time{Time: v.Until}
		}
		e.Pods = append(e.Pods, p)
	}

	e.told = len(e.Pods) == 0
	return nil
}
