package cloneset

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// A manager died between the resize of a pod and its record, and the template was rolled back. Bringing the
// quantities back restarts the container (resizePolicy), so the pod is taken out of service first (IPU-136).
func TestMendingAResizeThatRestartsTakesThePodOutOfServiceFirst(t *testing.T) {
	sized := func(cpu string) func(*appsv1beta1.CloneSet) {
		return clonesettest.App("nginx:1", "a", "", `,"resources":{"limits":{"cpu":"`+cpu+`"},"requests":{"cpu":"1"}},`+
			`"resizePolicy":[{"resourceName":"cpu","restartPolicy":"RestartContainer"}]`)
	}
	two, one := storedRevision(1, sized("2")), storedRevision(2, sized("3"))
	two.Revision, one.Revision = 3, 2 // rolled back to cpu 2
	pod := clonesettest.Pod("web-a", two.Name, clonesettest.Settled, func(pod *corev1.Pod) {
		pod.Spec.Containers = []corev1.Container{{Name: "nginx", Image: "nginx:1", Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{"cpu": resource.MustParse("3")},
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
			ResizePolicy: []corev1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: corev1.RestartContainer}}}}
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})
	})
	set := clonesettest.Set(1, sized("2"))
	plan := planOf(set, Features{InPlace: inplace.Options{Resize: true}}, []*appsv1.ControllerRevision{two, one}, pod)
	v := plan.Verdicts[0]
	if v.Action != podplan.UpdateInPlace {
		t.Fatalf("got %s %s", v.Action, v.Message)
	}
	resize, err := v.Update.Resize(pod, clonesettest.Now)
	if err != nil || resize.Empty() {
		t.Fatalf("no resize: %v %v", resize, err)
	}
	hold, err := v.Update.Hold(pod, clonesettest.Now)
	if err != nil || hold.Empty() {
		t.Errorf("the container is restarted (%s) while the pod is in service (ready %v): nothing takes it out first; budget operation %q",
			resize, readiness.Ready(pod), v.Disruption())
	}
}

// The condition Available must not be True while no pod is available, because the spec is unusable.
func TestAvailableDoesNotLie(t *testing.T) {
	one := storedRevision(1, clonesettest.Image("nginx:1"))
	set := clonesettest.Set(3, clonesettest.Annotated(pub.PublishConditions, "true"), clonesettest.Partition(2))
	set.Spec.Selector.MatchLabels["app"] = "other"
	down := func(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }
	plan := planOf(set, Features{}, []*appsv1.ControllerRevision{one}, clonesettest.Pod("web-a", one.Name, down))
	c := Condition(&plan.Status, appsv1beta1.CloneSetConditionAvailable)
	if c == nil || c.Status != corev1.ConditionFalse {
		t.Errorf("Available is %+v with 0 of 3 pods available", c)
	}
	if plan.Status.ExpectedUpdatedReplicas != 1 {
		t.Errorf("expectedUpdatedReplicas %d, want 1 (partition 2 of 3)", plan.Status.ExpectedUpdatedReplicas)
	}
}
