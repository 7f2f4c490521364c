package workloadspread

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// clock is when the tests of the controller begin.
var clock = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// at is a time that many seconds after Clock.
func at(seconds int) metav1.Time {
	return metav1.NewTime(clock.Add(time.Duration(seconds) * time.Second))
}

// subsetOption changes a subset.
type subsetOption = func(*appsv1beta1.WorkloadSpreadSubset)

// makeSubset is a subset; most is a number, a percentage, or nil for no limit.
func makeSubset(name string, most any, options ...subsetOption) appsv1beta1.WorkloadSpreadSubset {
	subset := appsv1beta1.WorkloadSpreadSubset{Name: name}
	switch most := most.(type) {
	case int:
		v := intstr.FromInt32(int32(most))
		subset.MaxReplicas = &v
	case string:
		v := intstr.FromString(most)
		subset.MaxReplicas = &v
	}
	for _, option := range options {
		option(&subset)
	}
	return subset
}

// zone requires nodes of these zones.
func zone(names ...string) subsetOption {
	return func(s *appsv1beta1.WorkloadSpreadSubset) {
		s.RequiredNodeSelector = &corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone",
			Operator: corev1.NodeSelectorOpIn, Values: names}}}
	}
}

// prefers prefers nodes of a zone.
func prefers(weight int32, value string) subsetOption {
	return func(s *appsv1beta1.WorkloadSpreadSubset) {
		s.PreferredNodeSelector = append(s.PreferredNodeSelector, corev1.PreferredSchedulingTerm{Weight: weight,
			Preference: corev1.NodeSelectorTerm{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn,
					Values: []string{value}}}}})
	}
}

// patches gives the subset a patch.
func patches(text string) subsetOption {
	return func(s *appsv1beta1.WorkloadSpreadSubset) { s.Patch = runtime.RawExtension{Raw: []byte(text)} }
}

// tolerates tolerates a taint.
func tolerates(key string) subsetOption {
	return func(s *appsv1beta1.WorkloadSpreadSubset) {
		s.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
	}
}

// makeSpread is a WorkloadSpread of Deployment web.
func makeSpread(subsets ...appsv1beta1.WorkloadSpreadSubset) *appsv1beta1.WorkloadSpread {
	spread := &appsv1beta1.WorkloadSpread{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ws", UID: "uid-ws", Generation: 1,
		ResourceVersion: "1"}}
	spread.Spec.TargetReference = &appsv1beta1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	spread.Spec.Subsets = subsets
	return spread
}

// adaptive lets pods be rescheduled that wait for so many seconds.
func adaptive(spread *appsv1beta1.WorkloadSpread, seconds int32) *appsv1beta1.WorkloadSpread {
	spread.Spec.ScheduleStrategy = appsv1beta1.WorkloadSpreadScheduleStrategy{Type: appsv1beta1.AdaptiveWorkloadSpreadScheduleStrategyType,
		Adaptive: &appsv1beta1.AdaptiveWorkloadSpreadStrategy{RescheduleCriticalSeconds: &seconds}}
	return spread
}

// podOption changes a pod.
type podOption = func(*corev1.Pod)

// makePod is a running pod of version 1 on node n, in no subset.
func makePod(name string, options ...podOption) *corev1.Pod {
	yes := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1",
		CreationTimestamp: at(-3600),
		Labels:            map[string]string{"app": "web", pub.PodTemplateHash: "v1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-v1", UID: "uid-web-v1",
			Controller: &yes}}}}
	pod.Spec.NodeName = "n"
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "i"}}
	pod.Status.Phase = corev1.PodRunning
	for _, option := range options {
		option(pod)
	}
	return pod
}

// note annotates a pod.
func note(key, value string) podOption {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[key] = value
	}
}

// in puts a pod into a subset.
func in(subset string) podOption {
	return note(pub.MatchedWorkloadSpread, pub.Placement{Name: "ws", Subset: subset}.String())
}

// booked puts a pod into a subset that it was booked in.
func booked(subset, uid string) podOption {
	return note(pub.MatchedWorkloadSpread, pub.Placement{Name: "ws", Subset: subset, UID: uid}.String())
}

// costs100 gives a pod a deletion cost.
func costs100(cost string) podOption { return note(pub.PodDeletionCost, cost) }

// version gives a pod a version.
func version(v string) podOption { return func(p *corev1.Pod) { p.Labels[pub.PodTemplateHash] = v } }

// born sets when a pod was created, in seconds after Clock.
func born(seconds int) podOption { return func(p *corev1.Pod) { p.CreationTimestamp = at(seconds) } }

// phase puts a pod into a phase.
func phase(phase corev1.PodPhase) podOption { return func(p *corev1.Pod) { p.Status.Phase = phase } }

// ending marks a pod as being deleted.
func ending(p *corev1.Pod) { now := at(0); p.DeletionTimestamp = &now }

// homeless takes a pod off its node.
func homeless(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending }

// unschedulable is for a pod that no node was found for.
func unschedulable(p *corev1.Pod) {
	homeless(p)
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: corev1.PodReasonUnschedulable}}
}

// ready makes a pod ready since that many seconds after Clock.
func ready(since int) podOption {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions,
			corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at(since)})
	}
}

// restarted lets the container of a pod have been restarted that often.
func restarted(n int32) podOption {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: n}}
	}
}

// makeNode is node n in a zone.
func makeNode(zone string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid-n", Labels: map[string]string{"zone": zone}},
		Spec: corev1.NodeSpec{Taints: taints}}
}

// subsetStatus is an entry of the status.
func subsetStatus(name string, replicas, missing int32, creating, deleting map[string]metav1.Time) appsv1beta1.WorkloadSpreadSubsetStatus {
	return appsv1beta1.WorkloadSpreadSubsetStatus{Name: name, WorkloadSpreadSubsetCounters: appsv1beta1.WorkloadSpreadSubsetCounters{
		Replicas: replicas, MissingReplicas: missing, CreatingPods: creating, DeletingPods: deleting}}
}

// bookingTime is the time of bookings in tests.
var bookingTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// bookedSpread reads a WorkloadSpread; its target is a CloneSet if there is none.
func bookedSpread(t testing.TB, text string) *appsv1beta1.WorkloadSpread {
	t.Helper()
	spread := &appsv1beta1.WorkloadSpread{}
	if err := yaml.UnmarshalStrict([]byte(text), spread); err != nil {
		t.Fatal(err)
	}
	if spread.Name == "" {
		spread.Name, spread.Namespace, spread.UID, spread.ResourceVersion = "ws", "d", "u-ws", "1"
	}
	if spread.Spec.TargetReference == nil {
		spread.Spec.TargetReference = &appsv1beta1.TargetReference{APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet", Name: "web"}
	}
	return spread
}

// keysOf are the keys of a map, in order.
func keysOf[V any](m map[string]V) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// times are bookings.
type times = map[string]metav1.Time

// bookingsOf is how many entries a list has.
func bookingsOf(list []appsv1beta1.WorkloadSpreadSubsetStatus) (n int) {
	for i := range list {
		n += len(list[i].CreatingPods) + len(list[i].DeletingPods)
	}
	return n
}
