package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/broadcastjob"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Kube reads from the caches, over which own writes are laid.
type Kube struct {
	podapply.Reader
	rules podapply.Rules[rules]
}

// Snapshot reads the job's pods, and all nodes unless the job has ended. The objects are the caches' own and
// must not be changed. Time and what failed before are filled in by the pass.
func (k *Kube) Snapshot(ctx context.Context, job *appsv1beta1.BroadcastJob, binds bool) (*broadcastjob.Snapshot, error) {
	s := &broadcastjob.Snapshot{Job: job, Binds: binds, Taken: func(pod string) bool { return k.Taken(ctx, job, pod) }}
	pods, err := k.Pods.ControlledBy(job.Namespace, job.UID)
	if err != nil {
		return nil, err
	}
	mine := pods[:0]
	for _, pod := range pods {
		if broadcastjob.Mine(job, pod) {
			mine = append(mine, pod)
		}
	}
	s.Pods = reconcile.Overlay(k.Own, job.UID, mine, func(pod *corev1.Pod) bool { return broadcastjob.Mine(job, pod) })
	if s.Disruptions, err = k.Limits(ctx, s.Pods); err != nil {
		return nil, err
	}
	if ended, counted := broadcastjob.Ended(job); job.DeletionTimestamp != nil || ended && !counted {
		return s, nil
	}
	s.Nodes, err = k.Nodes(ctx)
	return s, err
}
