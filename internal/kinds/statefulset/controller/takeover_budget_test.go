package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
)

// A pod of an older OpenKruise without lifecycle state, that partition keeps, serves. Its record (only an imageID,
// as the reference writes it) reads as incomplete: the tag had the same digest, and the runtime tells another name of it.
// It must not use up maxUnavailable for ever.
func TestAServingPodOfOpenKruiseDoesNotUseUpTheBudget(t *testing.T) {
	s := simulate(1, makeSet(3, inParallel, inPlace, func(set *appsv1beta1.StatefulSet) {
		one := int32(1)
		set.Spec.UpdateStrategy.RollingUpdate.Partition = &one
	}), statefulset.Features{})
	s.ActFor(time.Minute)
	s.Change(podKey("web-0"), func(o client.Object) {
		delete(o.GetLabels(), pub.LifecycleState)
		pod := o.(*corev1.Pod)
		pod.Status.ContainerStatuses[0].Image = "registry/other:name"
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[pub.InPlaceUpdateState] = `{"revision":"` + o.GetLabels()[pub.ControllerRevisionHash] +
			`","updateTimestamp":"` + s.Now().Add(-2*time.Hour).UTC().Format(time.RFC3339) +
			`","lastContainerStatuses":{"nginx":{"imageID":"` + pod.Status.ContainerStatuses[0].ImageID + `"}},"updateImages":true}`
	})
	s.Start()
	s.Queue.Add()
	s.ActFor(time.Minute)
	s.Edit(image("nginx:2"))
	s.ActFor(30 * time.Minute)
	if got := s.set().Status.UpdatedReplicas; got != 2 {
		t.Errorf("%d of 2 pods updated: %s", got, s.describe())
	}
}
