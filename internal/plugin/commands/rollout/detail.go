package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/deployment"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/plugin/pods"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// ofUnited is the label of pods that holds the revision of their UnitedDeployment.
const ofUnited = "apps.kruise.io/controller-revision-hash"

// running returns the revision that the pods should have. Its number is 0 if it is not stored yet.
func running(ctx context.Context, f cmdutil.Factory, object *unstructured.Unstructured) (*Revision, error) {
	revisions, err := RevisionsOf(ctx, f, object)
	if err != nil {
		return nil, err
	}

	is := func(*Revision) bool { return true } // a DaemonSet uses the latest revision
	switch workload.Kind(object) {
	case workloadkind.Deployment:
		is = func(r *Revision) bool {
			return r.Stored.GetAnnotations()[deployment.RevisionAnnotation] ==
				object.GetAnnotations()[deployment.RevisionAnnotation]
		}
	case workloadkind.CloneSet, workloadkind.StatefulSet, workloadkind.AdvancedStatefulSet,
		workloadkind.UnitedDeployment:
		name := cmp.Or(text(object, "status", "updateRevision"), text(object, "status", "updatedRevision"),
			text(object, "status", "updateStatus", "updatedRevision"))
		is = func(r *Revision) bool { return r.Stored.GetName() == name }
	}

	for _, r := range slices.Backward(revisions) {
		if is(r) {
			return r, nil
		}
	}

	return &Revision{Stored: &unstructured.Unstructured{Object: map[string]any{}}}, nil
}

func text(object *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(object.Object, path...)
	return value
}

// details lists the updated pods of an object, divided into those that are ready and those that are not.
func details(ctx context.Context, f cmdutil.Factory, object *unstructured.Unstructured) (string, error) {
	target, err := running(ctx, f, object)
	if err != nil {
		return "", err
	}

	client, err := f.KubernetesClientSet()
	if err != nil {
		return "", err
	}

	selector, err := pods.Selector(object)
	if err != nil {
		return "", err
	}

	list, err := client.CoreV1().Pods(object.GetNamespace()).
		List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return "", fmt.Errorf("reading the pods of %s: %w", object.GetName(), err)
	}

	var ready, others []string
	for i := range list.Items {
		pod := &list.Items[i]
		switch {
		case !updated(object, target, pod):
		case podutils.IsPodReady(pod):
			ready = append(ready, pod.Name)
		default:
			others = append(others, pod.Name)
		}
	}

	named := func(names []string) string {
		slices.Sort(names)
		return cmp.Or(strings.Join(names, ", "), "none")
	}
	return "Updated ready pods: " + named(ready) + "\nUpdated pods that are not ready: " + named(others), nil
}

// updated reports whether the pod belongs to the object and has the revision.
func updated(object *unstructured.Unstructured, target *Revision, pod *corev1.Pod) bool {
	name := target.Stored.GetName()
	switch workload.Kind(object) {
	case workloadkind.Deployment:
		return controls(target.Stored.GetUID(), pod)
	case workloadkind.UnitedDeployment:
		return name != "" && pod.Labels[ofUnited] == name
	}
	return controls(object.GetUID(), pod) &&
		revision.SameLabel(pod.Labels[appsv1.ControllerRevisionHashLabelKey], name)
}

func controls(owner types.UID, pod *corev1.Pod) bool {
	controller := metav1.GetControllerOf(pod)
	return controller != nil && owner != "" && controller.UID == owner
}
