package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/broadcastjob"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Kube reads from the caches, over which own writes are laid.
type Kube struct {
	*reconcile.API
	// Pods finds pods in the caches.
	Pods *podindex.Index
	// Rules are what the templates of jobs ask of nodes.
	Rules *Rules
}

// Snapshot reads the job's pods, and all nodes unless the job has ended. The objects are the caches' own and
// must not be changed. Time and what failed before are filled in by the pass.
func (k *Kube) Snapshot(ctx context.Context, job *appsv1beta1.BroadcastJob, binds bool) (*broadcastjob.Snapshot, error) {
	s := &broadcastjob.Snapshot{Job: job, Binds: binds, Taken: func(pod string) bool { return k.taken(ctx, job, pod) }}
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
	var all corev1.NodeList
	if err := k.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	s.Nodes = make([]*corev1.Node, len(all.Items))
	for i := range all.Items {
		s.Nodes[i] = &all.Items[i]
	}
	return s, nil
}

// taken tells whether a pod has the name, as far as the caches and own writes know. One that nobody knows of
// is found out by creating it.
func (k *Kube) taken(ctx context.Context, job *appsv1beta1.BroadcastJob, name string) bool {
	pod := &corev1.Pod{}
	err := k.Client.Get(ctx, types.NamespacedName{Namespace: job.Namespace, Name: name}, pod, client.UnsafeDisableDeepCopy)
	pod.Namespace, pod.Name = job.Namespace, name
	_, exists := reconcile.Newest(k.Own, job.UID, pod, err == nil)
	return exists
}
