// Package sidecarsettest builds SidecarSets, their pods and snapshots for tests of the planner and of the
// controller.
package sidecarsettest

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
)

// AllAtOnce allows all pods to be unavailable.
var AllAtOnce = Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) {
	u.MaxUnavailable = new(intstr.FromString("100%"))
})

// Now is the time of plans in tests.
var Now = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// Running gives the pod the statuses of containers that run what the spec says, and makes it ready.
func Running(pod *corev1.Pod) {
	pod.Spec.NodeName, pod.Status.Phase, pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses =
		"n", corev1.PodRunning, nil, nil
	status := func(c corev1.Container) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: c.Name, Ready: true, Image: c.Image, ImageID: "id:" + c.Image,
			ContainerID: "c://" + c.Name + c.Image,
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	}

	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status(c))
	}

	for _, c := range pod.Spec.InitContainers {
		if sidecarset.IsNative(&c) {
			pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, status(c))
		}
	}

	Ready(pod, true)
}

// Ready makes the pod ready or not ready.
func Ready(pod *corev1.Pod, is bool) {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	pod.Status.Conditions = append(pod.Status.Conditions,
		corev1.PodCondition{Type: corev1.PodReady, Status: status})
}

// NotReady makes the pod not ready.
func NotReady(pod *corev1.Pod) { Ready(pod, false) }

// Labelled labels a pod.
func Labelled(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[key] = value }
}

// Annotated annotates a pod.
func Annotated(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations[key] = value }
}

// Revision returns the revision that stores a SidecarSet as it is.
func Revision(set *appsv1beta1.SidecarSet, namespace string) *appsv1.ControllerRevision {
	return sidecarset.Make(sidecarset.Snapshot{Set: set, RevisionNamespace: namespace}).NewRevision
}

// Snapshot returns a snapshot of a SidecarSet whose pods were injected from a former version of it.
func Snapshot(
	now, former *appsv1beta1.SidecarSet, pods int, options ...func(i int, pod *corev1.Pod),
) sidecarset.Snapshot {
	Stamp(now)
	Stamp(former)
	s := sidecarset.Snapshot{Set: now, Now: Now, RevisionNamespace: "kruise-system",
		Features: sidecarset.Features{NativeSidecars: true}}
	s.Revisions = append(s.Revisions, Revision(former, "kruise-system"))
	former.Status.LatestRevision = s.Revisions[0].Name
	for i := range pods {
		pod := Pod(former, fmt.Sprintf("p%d", i), Running)
		for _, option := range options {
			option(i, pod)
		}
		s.Pods = append(s.Pods, pod)
	}

	return s
}

// Every applies options to all pods of a snapshot.
func Every(options ...func(*corev1.Pod)) func(int, *corev1.Pod) {
	return func(_ int, pod *corev1.Pod) {
		for _, option := range options {
			option(pod)
		}
	}
}

// Resources parses quantities from pairs of name and value.
func Resources(pairs ...string) corev1.ResourceList {
	if len(pairs) == 0 {
		return nil
	}
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// Asks sets the requests and limits of the first sidecar.
func Asks(requests, limits corev1.ResourceList) func(*appsv1beta1.SidecarSet) {
	return func(set *appsv1beta1.SidecarSet) {
		set.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: requests, Limits: limits}
	}
}

// Given sets the resources that the sidecar has in the pods.
func Given(requests, limits corev1.ResourceList) func(int, *corev1.Pod) {
	return Every(func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: requests, Limits: limits}
	})
}

// Stored returns the revision of a SidecarSet with the given image, as it was written, with the given number.
func Stored(
	image string, number int64, change ...func(*appsv1.ControllerRevision),
) *appsv1.ControllerRevision {
	set := Set(Image("proxy", image))
	Stamp(set)
	r := Revision(set, "")
	r.Revision = number
	for _, c := range change {
		c(r)
	}
	return r
}

// OwnedBy gives a revision another owner, or none if uid is empty.
func OwnedBy(uid string) func(*appsv1.ControllerRevision) {
	return func(r *appsv1.ControllerRevision) {
		yes := true
		r.OwnerReferences = []metav1.OwnerReference{{UID: "mesh-uid", Controller: &yes}}
		if uid == "" {
			r.OwnerReferences = nil
		} else {
			r.OwnerReferences[0].UID = "other"
		}
	}
}

// Stamp writes the annotations that the webhook writes (SS-016).
func Stamp(set *appsv1beta1.SidecarSet) {
	if set.Annotations == nil {
		set.Annotations = map[string]string{}
	}
	var err error
	if set.Annotations[pub.SidecarSetHash], err = sidecarset.Hash(&set.Spec); err != nil {
		panic(err)
	}
	if set.Annotations[pub.SidecarSetHashWithoutImage], err =
		sidecarset.HashWithoutImage(&set.Spec); err != nil {
		panic(err)
	}
}

// Set returns a SidecarSet with one cold sidecar, proxy:1. Options change it.
func Set(options ...func(*appsv1beta1.SidecarSet)) *appsv1beta1.SidecarSet {
	set := &appsv1beta1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "mesh", Generation: 1}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.UpdateStrategy.Type = appsv1beta1.RollingUpdateSidecarSetStrategyType
	set.Spec.Containers = []appsv1beta1.SidecarContainer{Cold("proxy", "proxy:1")}
	for _, option := range options {
		option(set)
	}
	return set
}

// Cold returns a sidecar that is upgraded cold.
func Cold(name, image string) appsv1beta1.SidecarContainer {
	c := appsv1beta1.SidecarContainer{}
	c.Name, c.Image = name, image
	c.UpgradeStrategy.UpgradeType = appsv1beta1.SidecarContainerColdUpgrade
	return c
}

// Hot returns a sidecar that is upgraded hot.
func Hot(name, image string) appsv1beta1.SidecarContainer {
	c := Cold(name, image)
	c.UpgradeStrategy = appsv1beta1.SidecarContainerUpgradeStrategy{
		UpgradeType:          appsv1beta1.SidecarContainerHotUpgrade,
		HotUpgradeEmptyImage: "empty:1"}
	return c
}

// NativeSidecar returns a native sidecar called net.
func NativeSidecar(image string) appsv1beta1.SidecarContainer {
	c := Cold("net", image)
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

// Containers replaces the sidecars.
func Containers(all ...appsv1beta1.SidecarContainer) func(*appsv1beta1.SidecarSet) {
	return func(set *appsv1beta1.SidecarSet) { set.Spec.Containers = all }
}

// Inits replaces the init containers.
func Inits(all ...appsv1beta1.SidecarContainer) func(*appsv1beta1.SidecarSet) {
	return func(set *appsv1beta1.SidecarSet) { set.Spec.InitContainers = all }
}

// Strategy changes the update strategy.
func Strategy(change func(*appsv1beta1.SidecarSetUpdateStrategy)) func(*appsv1beta1.SidecarSet) {
	return func(set *appsv1beta1.SidecarSet) { change(&set.Spec.UpdateStrategy) }
}

// Sized gives the first sidecar a cpu request.
func Sized(cpu string) func(*appsv1beta1.SidecarSet) {
	return func(set *appsv1beta1.SidecarSet) {
		set.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu)}
	}
}

// Image sets the image of every sidecar of the given name.
func Image(name, image string) func(*appsv1beta1.SidecarSet) {
	return func(set *appsv1beta1.SidecarSet) {
		for _, list := range [][]appsv1beta1.SidecarContainer{set.Spec.Containers, set.Spec.InitContainers} {
			for i := range list {
				if list[i].Name == name {
					list[i].Image = image
				}
			}
		}
	}
}

// Pod returns a pod of the application as the webhook leaves it.
func Pod(set *appsv1beta1.SidecarSet, name string, options ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		Labels: map[string]string{"app": "web"}, Annotations: map[string]string{}}}
	marked := []corev1.EnvVar{{Name: pub.SidecarInjectedEnv, Value: "true"}}
	add := func(c *appsv1beta1.SidecarContainer, name, image string) {
		resources := *c.Resources.DeepCopy()
		if resources.Requests == nil { // the API server sets this default
			resources.Requests = resources.Limits.DeepCopy()
		}
		pod.Spec.Containers = append(pod.Spec.Containers,
			corev1.Container{Name: name, Image: image, Env: marked, Resources: resources})
	}

	working := sidecarset.WorkingContainers{}
	for i := range set.Spec.Containers {
		c := &set.Spec.Containers[i]
		if !sidecarset.IsHot(c) {
			add(c, c.Name, c.Image)
			continue
		}
		first, second := sidecarset.HotNames(c.Name)
		add(c, first, c.Image)
		add(c, second, c.UpgradeStrategy.HotUpgradeEmptyImage)
		working[c.Name] = first
		for key, value := range map[string]string{pub.SidecarSetVersionPrefix + first: "1",
			pub.SidecarSetVersionAltPrefix + first: "0",
			pub.SidecarSetVersionPrefix + second:   "0", pub.SidecarSetVersionAltPrefix + second: "1"} {
			pod.Annotations[key] = value
		}
	}

	for i := range set.Spec.InitContainers {
		c := set.Spec.InitContainers[i].Container
		pod.Spec.InitContainers = append(pod.Spec.InitContainers,
			corev1.Container{Name: c.Name, Image: c.Image, RestartPolicy: c.RestartPolicy, Env: marked})
	}

	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "app", Image: "app:1"})
	if len(working) > 0 {
		pod.Annotations[pub.SidecarSetWorkingHotUpgradeContainer] = working.String()
	}

	record := pub.SidecarSetRecord{Hash: set.Annotations[pub.SidecarSetHash], SidecarSetName: set.Name,
		SidecarList:        sidecarset.Names(&set.Spec),
		ControllerRevision: set.Status.LatestRevision,
		UpdateTimestamp:    metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))}
	pod.Annotations[pub.SidecarSetHash] = sidecarset.Records{set.Name: record}.String()
	record.Hash, record.ControllerRevision = set.Annotations[pub.SidecarSetHashWithoutImage], ""
	pod.Annotations[pub.SidecarSetHashWithoutImage] = sidecarset.Records{set.Name: record}.String()
	pod.Annotations[pub.SidecarSetInjectedList] = set.Name

	for _, option := range options {
		option(pod)
	}

	return pod
}
