// Package workloadspreadtest builds WorkloadSpreads, their pods and bookings for tests of the planner and of
// the controller.
package workloadspreadtest

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

// Clock is when the tests of the controller begin.
var Clock = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// At is a time that many seconds after Clock.
func At(seconds int) metav1.Time {
	return metav1.NewTime(Clock.Add(time.Duration(seconds) * time.Second))
}

// SubsetOption changes a subset.
type SubsetOption = func(*appsv1beta1.WorkloadSpreadSubset)

// Subset is a subset; most is a number, a percentage, or nil for no limit.
func Subset(name string, most any, options ...SubsetOption) appsv1beta1.WorkloadSpreadSubset {
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

// Zone requires nodes of these zones.
func Zone(names ...string) SubsetOption {
	return func(s *appsv1beta1.WorkloadSpreadSubset) {
		s.RequiredNodeSelector = &corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone",
				Operator: corev1.NodeSelectorOpIn, Values: names}}}
	}
}

// Prefers prefers nodes of a zone.
func Prefers(weight int32, value string) SubsetOption {
	return func(s *appsv1beta1.WorkloadSpreadSubset) {
		s.PreferredNodeSelector = append(s.PreferredNodeSelector,
			corev1.PreferredSchedulingTerm{Weight: weight,
				Preference: corev1.NodeSelectorTerm{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone",
						Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}})
	}
}

// Patches gives the subset a patch.
func Patches(text string) SubsetOption {
	return func(s *appsv1beta1.WorkloadSpreadSubset) { s.Patch = runtime.RawExtension{Raw: []byte(text)} }
}

// Tolerates tolerates a taint.
func Tolerates(key string) SubsetOption {
	return func(s *appsv1beta1.WorkloadSpreadSubset) {
		s.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
	}
}

// Spread is a WorkloadSpread of Deployment web.
func Spread(subsets ...appsv1beta1.WorkloadSpreadSubset) *appsv1beta1.WorkloadSpread {
	spread := &appsv1beta1.WorkloadSpread{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ws",
		UID: "uid-ws", Generation: 1, ResourceVersion: "1"}}
	spread.Spec.TargetReference = &appsv1beta1.TargetReference{APIVersion: "apps/v1",
		Kind: "Deployment", Name: "web"}
	spread.Spec.Subsets = subsets
	return spread
}

// Adaptive lets pods be rescheduled that wait for so many seconds.
func Adaptive(spread *appsv1beta1.WorkloadSpread, seconds int32) *appsv1beta1.WorkloadSpread {
	spread.Spec.ScheduleStrategy = appsv1beta1.WorkloadSpreadScheduleStrategy{
		Type:     appsv1beta1.AdaptiveWorkloadSpreadScheduleStrategyType,
		Adaptive: &appsv1beta1.AdaptiveWorkloadSpreadStrategy{RescheduleCriticalSeconds: &seconds}}
	return spread
}

// PodOption changes a pod.
type PodOption = func(*corev1.Pod)

// Pod is a running pod of version 1 on node n, in no subset.
func Pod(name string, options ...PodOption) *corev1.Pod {
	yes := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		UID: types.UID("uid-" + name), ResourceVersion: "1", CreationTimestamp: At(-3600),
		Labels: map[string]string{"app": "web", pub.PodTemplateHash: "v1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-v1",
			UID: "uid-web-v1", Controller: &yes}}}}
	pod.Spec.NodeName = "n"
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "i"}}
	pod.Status.Phase = corev1.PodRunning
	for _, option := range options {
		option(pod)
	}

	return pod
}

// Note annotates a pod.
func Note(key, value string) PodOption {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[key] = value
	}
}

// In puts a pod into a subset.
func In(subset string) PodOption {
	return Note(pub.MatchedWorkloadSpread, pub.Placement{Name: "ws", Subset: subset}.String())
}

// Booked puts a pod into a subset that it was booked in.
func Booked(subset, uid string) PodOption {
	return Note(pub.MatchedWorkloadSpread, pub.Placement{Name: "ws", Subset: subset, UID: uid}.String())
}

// Cost gives a pod a deletion cost.
func Cost(cost string) PodOption { return Note(pub.PodDeletionCost, cost) }

// Version gives a pod a version.
func Version(v string) PodOption { return func(p *corev1.Pod) { p.Labels[pub.PodTemplateHash] = v } }

// Born sets when a pod was created, in seconds after Clock.
func Born(seconds int) PodOption { return func(p *corev1.Pod) { p.CreationTimestamp = At(seconds) } }

// Phase puts a pod into a phase.
func Phase(phase corev1.PodPhase) PodOption { return func(p *corev1.Pod) { p.Status.Phase = phase } }

// Ending marks a pod as being deleted.
func Ending(p *corev1.Pod) { now := At(0); p.DeletionTimestamp = &now }

// Homeless takes a pod off its node.
func Homeless(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending }

// Unschedulable is for a pod that no node was found for.
func Unschedulable(p *corev1.Pod) {
	Homeless(p)
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: corev1.PodReasonUnschedulable}}
}

// Ready makes a pod ready since that many seconds after Clock.
func Ready(since int) PodOption {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions,
			corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue,
				LastTransitionTime: At(since)})
	}
}

// Restarted lets the container of a pod have been restarted that often.
func Restarted(n int32) PodOption {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: n}}
	}
}

// Node is node n in a zone.
func Node(zone string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid-n",
		Labels: map[string]string{"zone": zone}}, Spec: corev1.NodeSpec{Taints: taints}}
}

// Counted is an entry of the status.
func Counted(
	name string, replicas, missing int32, creating, deleting map[string]metav1.Time,
) appsv1beta1.WorkloadSpreadSubsetStatus {
	return appsv1beta1.WorkloadSpreadSubsetStatus{Name: name,
		WorkloadSpreadSubsetCounters: appsv1beta1.WorkloadSpreadSubsetCounters{
			Replicas: replicas, MissingReplicas: missing, CreatingPods: creating, DeletingPods: deleting}}
}

// BookingTime is the time of bookings in tests.
var BookingTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// Read reads a WorkloadSpread; its target is a CloneSet if there is none.
func Read(t testing.TB, text string) *appsv1beta1.WorkloadSpread {
	t.Helper()
	spread := &appsv1beta1.WorkloadSpread{}
	if err := yaml.UnmarshalStrict([]byte(text), spread); err != nil {
		t.Fatal(err)
	}
	if spread.Name == "" {
		spread.Name, spread.Namespace, spread.UID, spread.ResourceVersion = "ws", "d", "u-ws", "1"
	}
	if spread.Spec.TargetReference == nil {
		spread.Spec.TargetReference = &appsv1beta1.TargetReference{APIVersion: "apps.kruise.io/v1alpha1",
			Kind: "CloneSet", Name: "web"}
	}

	return spread
}

// Keys are the keys of a map, in order.
func Keys[V any](m map[string]V) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Times are bookings.
type Times = map[string]metav1.Time

// Bookings is how many entries a list has.
func Bookings(list []appsv1beta1.WorkloadSpreadSubsetStatus) (n int) {
	for i := range list {
		n += len(list[i].CreatingPods) + len(list[i].DeletingPods)
	}
	return n
}
