package sidecarset

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
)

// allAtOnce lets all pods be unavailable.
var allAtOnce = strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.MaxUnavailable = text("100%") })

// planTime is the time of plans in tests.
var planTime = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// running gives the pod statuses as of containers that run what the spec says, and Ready.
func running(pod *corev1.Pod) {
	pod.Spec.NodeName, pod.Status.Phase, pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses = "n", corev1.PodRunning, nil, nil
	status := func(c corev1.Container) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: c.Name, Ready: true, Image: c.Image, ImageID: "id:" + c.Image, ContainerID: "c://" + c.Name +
			c.Image,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	}
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status(c))
	}
	for _, c := range pod.Spec.InitContainers {
		if IsNative(&c) {
			pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, status(c))
		}
	}
	ready(pod, true)
}

// ready makes the pod ready, or not.
func ready(pod *corev1.Pod, is bool) {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: status})
}

// notReady makes the pod not ready.
func notReady(pod *corev1.Pod) { ready(pod, false) }

// labelled labels a pod.
func labelled(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[key] = value }
}

// annotated annotates a pod.
func annotated(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations[key] = value }
}

// revisionOf is the revision that stores a SidecarSet as it is.
func revisionOf(set *appsv1beta1.SidecarSet, namespace string) *appsv1.ControllerRevision {
	return Make(Snapshot{Set: set, RevisionNamespace: namespace}).NewRevision
}

// at is a snapshot of a SidecarSet, whose pods were injected from a former one.
func at(now, former *appsv1beta1.SidecarSet, pods int, options ...func(i int, pod *corev1.Pod)) Snapshot {
	stamp(now)
	stamp(former)
	s := Snapshot{Set: now, Now: planTime, RevisionNamespace: "kruise-system", Features: Features{NativeSidecars: true}}
	s.Revisions = append(s.Revisions, revisionOf(former, "kruise-system"))
	former.Status.LatestRevision = s.Revisions[0].Name
	for i := range pods {
		pod := makePod(former, fmt.Sprintf("p%d", i), running)
		for _, option := range options {
			option(i, pod)
		}
		s.Pods = append(s.Pods, pod)
	}
	return s
}

// every is for all pods of a snapshot.
func every(options ...func(*corev1.Pod)) func(int, *corev1.Pod) {
	return func(_ int, pod *corev1.Pod) {
		for _, option := range options {
			option(pod)
		}
	}
}

// list reads quantities by pairs of name and value.
func list(pairs ...string) corev1.ResourceList {
	if len(pairs) == 0 {
		return nil
	}
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// asks gives the first sidecar requests and limits.
func asks(requests, limits corev1.ResourceList) func(*appsv1beta1.SidecarSet) {
	return func(set *appsv1beta1.SidecarSet) {
		set.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: requests, Limits: limits}
	}
}

// given is what the pod's sidecar has.
func given(requests, limits corev1.ResourceList) func(int, *corev1.Pod) {
	return every(func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: requests, Limits: limits}
	})
}

// stored is the revision of an image as it was written, with a number.
func stored(image string, number int64, change ...func(*appsv1.ControllerRevision)) *appsv1.ControllerRevision {
	set := makeSet(imageNow("proxy", image))
	stamp(set)
	r := revisionOf(set, "")
	r.Revision = number
	for _, c := range change {
		c(r)
	}
	return r
}

// ownedBy gives a revision another owner, or none.
func ownedBy(uid string) func(*appsv1.ControllerRevision) {
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

// stamp writes what the webhook writes (SS-016).
func stamp(set *appsv1beta1.SidecarSet) {
	if set.Annotations == nil {
		set.Annotations = map[string]string{}
	}
	var err error
	if set.Annotations[pub.SidecarSetHash], err = Hash(&set.Spec); err != nil {
		panic(err)
	}
	if set.Annotations[pub.SidecarSetHashWithoutImage], err = HashWithoutImage(&set.Spec); err != nil {
		panic(err)
	}
}

// makeSet is a SidecarSet with one cold sidecar, proxy:1; options change it.
func makeSet(options ...func(*appsv1beta1.SidecarSet)) *appsv1beta1.SidecarSet {
	set := &appsv1beta1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "mesh", Generation: 1}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.UpdateStrategy.Type = appsv1beta1.RollingUpdateSidecarSetStrategyType
	set.Spec.Containers = []appsv1beta1.SidecarContainer{cold("proxy", "proxy:1")}
	for _, option := range options {
		option(set)
	}
	return set
}

// cold is a sidecar that is upgraded cold.
func cold(name, image string) appsv1beta1.SidecarContainer {
	c := appsv1beta1.SidecarContainer{}
	c.Name, c.Image = name, image
	c.UpgradeStrategy.UpgradeType = appsv1beta1.SidecarContainerColdUpgrade
	return c
}

// hot is a sidecar that is upgraded hot.
func hot(name, image string) appsv1beta1.SidecarContainer {
	c := cold(name, image)
	c.UpgradeStrategy = appsv1beta1.SidecarContainerUpgradeStrategy{UpgradeType: appsv1beta1.SidecarContainerHotUpgrade,
		HotUpgradeEmptyImage: "empty:1"}
	return c
}

// nativeSidecar is a native sidecar, net.
func nativeSidecar(image string) appsv1beta1.SidecarContainer {
	c := cold("net", image)
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

// containers replaces the sidecars.
func containers(all ...appsv1beta1.SidecarContainer) func(*appsv1beta1.SidecarSet) {
	return func(set *appsv1beta1.SidecarSet) { set.Spec.Containers = all }
}

// inits replaces the init containers.
func inits(all ...appsv1beta1.SidecarContainer) func(*appsv1beta1.SidecarSet) {
	return func(set *appsv1beta1.SidecarSet) { set.Spec.InitContainers = all }
}

// strategy changes the update strategy.
func strategy(change func(*appsv1beta1.SidecarSetUpdateStrategy)) func(*appsv1beta1.SidecarSet) {
	return func(set *appsv1beta1.SidecarSet) { change(&set.Spec.UpdateStrategy) }
}

// number is a number
func number(n int) *intstr.IntOrString { v := intstr.FromInt32(int32(n)); return &v }

// text is a text
func text(s string) *intstr.IntOrString { v := intstr.FromString(s); return &v }

// sized gives the first sidecar a request of cpu.
func sized(cpu string) func(*appsv1beta1.SidecarSet) {
	return func(set *appsv1beta1.SidecarSet) {
		set.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
}

// imageNow sets the image of every sidecar of that name.
func imageNow(name, image string) func(*appsv1beta1.SidecarSet) {
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

// makePod is a pod of the application as the webhook leaves it.
func makePod(set *appsv1beta1.SidecarSet, name string, options ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{}}}
	marked := []corev1.EnvVar{{Name: pub.SidecarInjectedEnv, Value: "true"}}
	add := func(c *appsv1beta1.SidecarContainer, name, image string) {
		resources := *c.Resources.DeepCopy()
		if resources.Requests == nil { // as the API server defaults it
			resources.Requests = resources.Limits.DeepCopy()
		}
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: image, Env: marked, Resources: resources})
	}
	working := WorkingContainers{}
	for i := range set.Spec.Containers {
		c := &set.Spec.Containers[i]
		if !IsHot(c) {
			add(c, c.Name, c.Image)
			continue
		}
		first, second := HotNames(c.Name)
		add(c, first, c.Image)
		add(c, second, c.UpgradeStrategy.HotUpgradeEmptyImage)
		working[c.Name] = first
		for key, value := range map[string]string{pub.SidecarSetVersionPrefix + first: "1", pub.SidecarSetVersionAltPrefix + first: "0",
			pub.SidecarSetVersionPrefix + second: "0", pub.SidecarSetVersionAltPrefix + second: "1"} {
			pod.Annotations[key] = value
		}
	}
	for i := range set.Spec.InitContainers {
		c := set.Spec.InitContainers[i].Container
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: c.Name, Image: c.Image,
			RestartPolicy: c.RestartPolicy, Env: marked})
	}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "app", Image: "app:1"})
	if len(working) > 0 {
		pod.Annotations[pub.SidecarSetWorkingHotUpgradeContainer] = working.String()
	}
	record := pub.SidecarSetRecord{Hash: set.Annotations[pub.SidecarSetHash], SidecarSetName: set.Name, SidecarList: Names(&set.Spec),
		ControllerRevision: set.Status.LatestRevision, UpdateTimestamp: metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))}
	pod.Annotations[pub.SidecarSetHash] = Records{set.Name: record}.String()
	record.Hash, record.ControllerRevision = set.Annotations[pub.SidecarSetHashWithoutImage], ""
	pod.Annotations[pub.SidecarSetHashWithoutImage] = Records{set.Name: record}.String()
	pod.Annotations[pub.SidecarSetInjectedList] = set.Name
	for _, option := range options {
		option(pod)
	}
	return pod
}
