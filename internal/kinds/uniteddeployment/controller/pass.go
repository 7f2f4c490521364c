package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// pass reconciles a UnitedDeployment once.
func (r *Reconciler) pass(ctx context.Context, s *session) (reconcile.Outcome, error) {
	snapshot, err := r.read(ctx, s.Object, s.Kept)
	if err != nil {
		s.Once(corev1.EventTypeWarning, uniteddeployment.EventFind, err.Error())
		return reconcile.Outcome{}, err
	}

	plan := uniteddeployment.Make(snapshot)
	done := reconcile.Outcome{After: plan.After, Planning: r.Now().Sub(s.Begun), Headline: plan.String(),
		Record: plan.Record}
	if plan.Going {
		return done, nil
	}

	r.meters.tell(s.Name.Namespace, s.Name.Name, plan)
	after, err := apply(ctx, s, &snapshot, plan)
	reconcile.MinRequeue(&done.After, after)
	reconcile.MinRequeue(&done.After, s.Again())
	return done, err
}

// read reads what a plan is made from, with own writes laid over the caches.
func (r *Reconciler) read(
	ctx context.Context, united *appsv1beta1.UnitedDeployment, memory *memory,
) (uniteddeployment.Snapshot, error) {
	s := uniteddeployment.Snapshot{United: united, Known: &memory.known, Now: r.Now(),
		Pods: map[types.UID][]*corev1.Pod{}}

	var present []uniteddeployment.Kind
	present, s.Absent = r.served.Of(uniteddeployment.Kinds)
	for _, kind := range present {
		children, orphans, err := r.children(ctx, united, kind)
		if err != nil {
			return s, err
		}
		s.Children, s.Orphans = append(s.Children, children...), append(s.Orphans, orphans...)
	}

	if err := r.pods(ctx, united, &s); err != nil {
		return s, err
	}

	var revisions appsv1.ControllerRevisionList
	if err := r.Client.List(ctx, &revisions, client.InNamespace(united.Namespace),
		client.MatchingFields{podapply.OwnerIndex: string(united.UID)},
		client.UnsafeDisableDeepCopy); err != nil {
		return s, fmt.Errorf("listing revisions: %w", err)
	}

	for i := range revisions.Items {
		s.Revisions = append(s.Revisions, &revisions.Items[i])
	}

	s.Revisions = reconcile.Overlay(r.Own, united.UID, s.Revisions,
		func(found *appsv1.ControllerRevision) bool {
			return uniteddeployment.OwnerOf(found) == united.UID
		})
	return s, nil
}

// children returns the workloads of a kind that the UnitedDeployment controls, and those that it could adopt.
func (r *Reconciler) children(
	ctx context.Context, united *appsv1beta1.UnitedDeployment, kind uniteddeployment.Kind,
) (children, orphans []*uniteddeployment.Child, err error) {
	for _, owner := range []string{string(united.UID), nobody} {
		options := []client.ListOption{client.InNamespace(united.Namespace),
			client.MatchingFields{byOwner: owner}, client.UnsafeDisableDeepCopy}
		mine := func(o client.Object) bool {
			if owner == nobody {
				return orphan(o)
			}
			return uniteddeployment.OwnerOf(o) == united.UID
		}

		var found []*uniteddeployment.Child
		switch kind {
		case uniteddeployment.StatefulSet:
			var list appsv1.StatefulSetList
			err = r.Client.List(ctx, &list, options...)
			found = laid(r, united, list.Items, mine)
		case uniteddeployment.AdvancedStatefulSet:
			var list appsv1beta1.StatefulSetList
			err = r.Client.List(ctx, &list, options...)
			found = laid(r, united, list.Items, mine)
		case uniteddeployment.CloneSet:
			var list appsv1beta1.CloneSetList
			err = r.Client.List(ctx, &list, options...)
			found = laid(r, united, list.Items, mine)
		case uniteddeployment.Deployment:
			var list appsv1.DeploymentList
			err = r.Client.List(ctx, &list, options...)
			found = laid(r, united, list.Items, mine)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("listing %ss: %w", kind, err)
		}

		if owner == nobody {
			orphans = found
		} else {
			children = found
		}
	}

	return children, orphans, nil
}

type pointer[T any] interface {
	*T
	client.Object
}

// laid returns workloads with own writes laid over them.
func laid[T any, P pointer[T]](
	r *Reconciler, united *appsv1beta1.UnitedDeployment, items []T, mine func(client.Object) bool,
) []*uniteddeployment.Child {
	objects := make([]P, len(items))
	for i := range items {
		objects[i] = &items[i]
	}
	objects = reconcile.Overlay(r.Own, united.UID, objects, func(o P) bool { return mine(o) })
	children := make([]*uniteddeployment.Child, len(objects))
	for i := range objects {
		children[i] = uniteddeployment.ChildOf(objects[i])
	}
	return children
}

// pods reads the pods of all children.
func (r *Reconciler) pods(
	ctx context.Context, united *appsv1beta1.UnitedDeployment, s *uniteddeployment.Snapshot,
) error {
	child, owners := map[types.UID]types.UID{}, []types.UID(nil) // by the controller of the pods
	for _, c := range s.Children {
		uid := c.Object.GetUID()
		if c.Kind != uniteddeployment.Deployment {
			child[uid], owners = uid, append(owners, uid)
			continue
		}
		var sets appsv1.ReplicaSetList
		if err := r.Client.List(ctx, &sets, client.InNamespace(united.Namespace),
			client.MatchingFields{byDeployment: string(uid)}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing ReplicaSets of %s: %w", c, err)
		}
		for i := range sets.Items {
			child[sets.Items[i].UID], owners = uid, append(owners, sets.Items[i].UID)
		}
	}

	var pods []*corev1.Pod
	for _, owner := range owners {
		found, err := r.Pods.ControlledBy(united.Namespace, owner)
		if err != nil {
			return err
		}
		pods = append(pods, found...)
	}

	of := func(pod *corev1.Pod) types.UID {
		if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
			return child[controller.UID]
		}
		return ""
	}

	for _, pod := range reconcile.Overlay(r.Own, united.UID, pods,
		func(pod *corev1.Pod) bool { return of(pod) != "" }) {
		s.Pods[of(pod)] = append(s.Pods[of(pod)], pod)
	}

	return nil
}
