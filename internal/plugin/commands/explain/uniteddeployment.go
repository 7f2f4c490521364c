package explain

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
)

// unitedKind is the kind for which why shows each subset.
var unitedKind = schema.GroupKind{Group: appsv1beta1.GroupVersion.Group, Kind: uniteddeployment.Name}

// whyUnited explains a UnitedDeployment with the manager's own plan: what each subset is given, what exists,
// and what it waits for.
func (r *Reader) whyUnited(ctx context.Context, name types.NamespacedName) (*Explanation, error) {
	object, err := r.Get(ctx, kindByName(uniteddeployment.Name), name)
	if err != nil {
		return nil, err
	}
	united, ok := object.(*appsv1beta1.UnitedDeployment)
	if !ok {
		return nil, fmt.Errorf("%s is no %s", name.Name, uniteddeployment.Name)
	}

	e := &Explanation{
		Kind:      uniteddeployment.Name,
		Namespace: name.Namespace,
		Name:      name.Name,
		Pods:      []Pod{},
		now:       r.now(),
		told:      true,
	}
	s := uniteddeployment.Snapshot{United: united, Now: e.now, Pods: map[types.UID][]*corev1.Pod{}}

	if err := r.children(ctx, e, &s); err != nil {
		return nil, err
	}

	plan := uniteddeployment.Make(s)
	if plan.Going {
		e.Summary = []string{"nothing is planned: it is being deleted"}
		return e, nil
	}

	e.UpdateRevision = plan.Expected
	if reason := plan.Reason(); reason != "" {
		e.Problems = append(e.Problems, reason)
	}

	for i := range plan.Subsets {
		e.Summary = append(e.Summary, plan.Subsets[i].String())
	}
	for _, removal := range plan.Deletes {
		e.Summary = append(e.Summary, fmt.Sprintf("%s is deleted: %s", removal.Child, removal.Why))
	}

	e.Warnings = r.warnings(ctx, object, e.now)
	return e, nil
}

// children reads the workloads of a UnitedDeployment, their pods and its revisions.
func (r *Reader) children(ctx context.Context, e *Explanation, s *uniteddeployment.Snapshot) error {
	united := s.United
	// read lists objects, and reports whether their kind is served. A kind that is not served has no objects.
	read := func(
		what string, list client.ObjectList, do func(client.Object) error, options ...client.ListOption,
	) (served bool, err error) {
		err = r.each(ctx, list, do, append(options, client.InNamespace(united.Namespace))...)
		switch {
		case meta.IsNoMatchError(err):
			return false, nil
		case apierrors.IsForbidden(err):
			e.Notes = append(e.Notes, fmt.Sprintf("you may not list %s: it is taken to have none", what))
			return true, nil
		}
		return true, err
	}

	owners := map[types.UID]types.UID{} // maps controllers of pods to the child that they belong to
	deployments := false
	for _, kind := range []struct {
		of   uniteddeployment.Kind
		list client.ObjectList
	}{
		{uniteddeployment.StatefulSet, &appsv1.StatefulSetList{}},
		{uniteddeployment.AdvancedStatefulSet, &appsv1beta1.StatefulSetList{}},
		{uniteddeployment.CloneSet, &appsv1beta1.CloneSetList{}},
		{uniteddeployment.Deployment, &appsv1.DeploymentList{}},
	} {
		served, err := read(kind.of.String()+"s", kind.list, func(object client.Object) error {
			if uniteddeployment.OwnerOf(object) == united.UID {
				s.Children = append(s.Children, uniteddeployment.ChildOf(object))
				owners[object.GetUID()] = object.GetUID()
				deployments = deployments || kind.of == uniteddeployment.Deployment
			}
			return nil
		})
		if err != nil {
			return err
		}
		if !served {
			s.Absent = append(s.Absent, kind.of)
		}
	}

	if deployments {
		if _, err := read("ReplicaSets", &appsv1.ReplicaSetList{}, func(set client.Object) error {
			if owner := metav1.GetControllerOf(set); owner != nil && owners[owner.UID] != "" {
				owners[set.GetUID()] = owner.UID
			}
			return nil
		}); err != nil {
			return err
		}
	}

	if _, err := read("pods", &corev1.PodList{}, func(object client.Object) error {
		owner := metav1.GetControllerOf(object)
		if pod, ok := object.(*corev1.Pod); ok && owner != nil && owners[owner.UID] != "" {
			s.Pods[owners[owner.UID]] = append(s.Pods[owners[owner.UID]], pod)
		}
		return nil
	}, client.HasLabels{uniteddeployment.SubsetName}); err != nil {
		return err
	}

	_, err := read("ControllerRevisions", &appsv1.ControllerRevisionList{}, func(object client.Object) error {
		if revision, ok := object.(*appsv1.ControllerRevision); ok &&
			uniteddeployment.OwnerOf(revision) == united.UID {
			s.Revisions = append(s.Revisions, revision)
		}
		return nil
	})
	return err
}
