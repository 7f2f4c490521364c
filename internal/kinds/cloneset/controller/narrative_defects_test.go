package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// story is the set that a narrative begins with, and what happens to it.
type story struct {
	set  *appsv1beta1.CloneSet
	play func(n *tale)
}

// act lets something happen that is no change of the set, and everything come to rest.
func (n *tale) act(title string, do func()) {
	n.t.Helper()
	fmt.Fprintf(&n.text, "\n# %s\n", title)
	do()
	n.rest()
}

// midway changes the set and lets everybody act only until something is seen.
func (n *tale) midway(title string, change func(*appsv1beta1.CloneSet), seen func() bool) {
	n.t.Helper()
	fmt.Fprintf(&n.text, "\n# %s\n", title)
	if change != nil {
		n.Edit(change)
	}
	for range 100 {
		if seen() {
			return
		}
		if !n.Round() && !n.Queue.Due().IsZero() {
			n.Pass(n.Queue.Due().Sub(n.Now()))
		}
	}
	n.t.Fatalf("%s: not seen", title)
}

func (n *tale) edit(pod *corev1.Pod, change func(*corev1.Pod)) {
	n.Change(podKey(pod.Name), func(o client.Object) { change(o.(*corev1.Pod)) })
}

func label(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[key] = value }
}

func unlabel(key string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { delete(pod.Labels, key) }
}

// eachPod changes all active pods.
func (n *tale) eachPod(change func(*corev1.Pod)) {
	for _, pod := range n.active() {
		n.edit(pod, change)
	}
}

func (n *tale) inState(state pub.LifecycleStateType) []*corev1.Pod {
	return slices.DeleteFunc(n.active(), func(pod *corev1.Pod) bool { return pod.Labels[pub.LifecycleState] != string(state) })
}

func (n *tale) say(format string, args ...any) { fmt.Fprintf(&n.text, format+"\n", args...) }

// restarts writes down how often containers were started anew, and what is counted on the pods.
func (n *tale) restarts() {
	for _, pod := range n.active() {
		for _, status := range pod.Status.ContainerStatuses {
			n.say("pod %s: container %s restarted %d times; counted %s", pod.Name, status.Name, status.RestartCount,
				pod.Annotations[pub.InPlaceUpdateRestarts])
		}
	}
}

func (n *tale) storage() {
	for _, o := range n.List("PersistentVolumeClaim", false) {
		claim := o.(*corev1.PersistentVolumeClaim)
		n.say("claim %s asks for %s", claim.Name, claim.Spec.Resources.Requests.Storage())
	}
}

// scaleDefects are narratives of known defects of scaling and claims, by issue number.
func scaleDefects() map[string]story {
	reCreate := clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy)
	return map[string]story{
		"#1741 a changed surge acts at once and keeps availability": {clonesettest.Set(4, reCreate, clonesettest.Surge(1, 1)),
			func(n *tale) { // CS-101, CS-331
				n.midway("image nginx:2", clonesettest.Image("nginx:2"), func() bool { return len(n.active()) == 5 })
				n.then("maxSurge 2", clonesettest.Surge(2, 1))
			}},
		"#2384 a throttled scale-up does not stop the rollout": {clonesettest.Set(4, func(set *appsv1beta1.CloneSet) {
			set.Spec.ScaleStrategy.MaxUnavailable = new(intstr.FromInt32(1))
		}, clonesettest.Image("nginx:bad")), func(n *tale) { // CS-125, CS-138, CS-332
			n.then("image nginx:2", clonesettest.Image("nginx:2"))
		}},
		"#1478 scale-in with a large minReadySeconds": {clonesettest.Set(4), func(n *tale) { // CS-143, CS-172, CS-333
			n.midway("minReadySeconds 3600, replicas 1", clonesettest.Both(clonesettest.Replicas(1),
				func(set *appsv1beta1.CloneSet) { set.Spec.MinReadySeconds = 3600 }),
				func() bool { return len(n.active()) == 1 })
		}},
		"#1765 answers that are lost settle themselves": {clonesettest.Set(0), func(n *tale) { // CS-074, CS-334
			n.midway("replicas 3, every answer is lost", func(set *appsv1beta1.CloneSet) { n.Faults.Lose = 1; clonesettest.Replicas(3)(set) },
				func() bool { return len(n.active()) == 1 })
			n.then("answers arrive again", nil)
		}},
		"#1099 a terminating pod on a dead node keeps its name": {clonesettest.Set(2, clonesettest.Claims("1Gi")), func(n *tale) { // CS-335
			n.act("the node of one pod dies, the pod is deleted", func() {
				n.Node.Frozen = map[string]bool{n.AllPods()[0].Name: true}
				n.EndGracefully(podKey(n.AllPods()[0].Name))
			})
			n.act("the node comes back", func() { n.Node.Frozen = nil })
		}},
		"#1872 old pods keep their claim templates": {clonesettest.Set(2, clonesettest.Claims("1Gi"), clonesettest.Partition(2)),
			func(n *tale) { // CS-089, CS-336
				n.then("claim templates removed, image nginx:2, nothing moves", clonesettest.Both(clonesettest.Image("nginx:2"),
					func(set *appsv1beta1.CloneSet) { set.Spec.VolumeClaimTemplates = nil }))
				n.act("an old pod is deleted", func() { n.EndGracefully(podKey(n.AllPods()[0].Name)) })
				n.storage()
			}},
		"#1876 recreation that keeps the claim": {clonesettest.Set(2, clonesettest.Claims("1Gi"), reCreate, clonesettest.Templated(
			// CS-337
			`{"metadata":{"labels":{"app":"web","apps.kruise.io/keep-pvc":"true"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"}]}}`)), func(n *tale) {
			n.then("image nginx:2", clonesettest.Templated(`{"metadata":{"labels":{"app":"web","apps.kruise.io/keep-pvc":"true"}},"spec":{"containers":[{"name":"nginx","image":"nginx:2"}]}}`))
			n.storage()
		}},
		"#1670 claims grow with their template": {clonesettest.Set(2, clonesettest.Claims("1Gi"),
			clonesettest.Annotated(pub.ResizeClaims, "true")), func(n *tale) { // CS-338
			n.then("storage 2Gi", clonesettest.Claims("2Gi"))
			n.storage()
			n.then("storage 1Gi", clonesettest.Claims("1Gi"))
			n.storage()
		}},
		"#1351 a stale condition disappears": {clonesettest.Set(0), func(n *tale) { // CS-225, CS-339
			n.midway("replicas 1, and no pod can be made", func(set *appsv1beta1.CloneSet) {
				n.Refused = func(w simulation.Write) bool { return w.Key.Kind == "Pod" }
				clonesettest.Replicas(1)(set)
			}, func() bool { return len(n.set().Status.Conditions) > 0 })
			for _, c := range n.set().Status.Conditions {
				n.say("Condition %s %s %s: %s", c.Type, c.Status, c.Reason, c.Message)
			}
			n.Refused = nil
			n.then("pods can be made", nil)
		}},
		"CS-340 pods to delete under OnDelete": {clonesettest.Set(2, func(set *appsv1beta1.CloneSet) {
			set.Spec.UpdateStrategy.Type = appsv1beta1.OnDeleteCloneSetUpdateStrategyType
		}), func(n *tale) { // CS-093
			n.then("one of two is to be deleted", clonesettest.ToDelete(n.AllPods()[0].Name))
		}},
		"CS-274 a pod to delete where nothing may be unavailable": {clonesettest.Set(2, clonesettest.Surge(1, 0)), func(n *tale) {
			n.then("one of two is to be deleted: its successor comes first", clonesettest.ToDelete(n.AllPods()[0].Name))
		}},
		"#1153 a pause in mid-surge": {clonesettest.Set(3, reCreate, clonesettest.Surge(1, 0)), func(n *tale) { // CS-091, CS-353
			n.midway("image nginx:2", clonesettest.Image("nginx:2"), func() bool { return len(n.active()) == 4 })
			n.then("paused", clonesettest.Paused(true))
			n.then("resumed", clonesettest.Paused(false))
		}},
		"#947 failed pods do not pile up": {clonesettest.Set(2), func(n *tale) { // CS-354
			for i := range 5 {
				n.act(fmt.Sprintf("eviction %d", i+1), func() { n.Node.Fail(n.active()[0].Name); n.Pass(time.Minute) })
			}
			n.say("%d pods are left", len(n.AllPods()))
		}},
		"#1032 an orphan that matches the selector": {clonesettest.Set(1), func(n *tale) { // CS-055, CS-355
			n.act("somebody makes a pod with the same labels", func() {
				n.Store(podKey("alien"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "alien", Namespace: "default",
					Labels: map[string]string{"app": "web"}}})
				n.Queue.Add()
			})
		}},
		"#264 pods chosen for deletion by their labels": {clonesettest.Set(4), func(n *tale) { // CS-130, CS-131, CS-357
			n.act("two pods of a node to be drained are labelled", func() {
				for _, pod := range n.active()[:2] {
					n.edit(pod, label(pub.SpecifiedDelete, "true"))
				}
			})
		}},
		// CS-136 (part), CS-190 (part), CS-356, IPU-154, IPU-155 (part)
		"#2161 deletion that waits for its hook": {clonesettest.Set(2, func(set *appsv1beta1.CloneSet) {
			set.Spec.Lifecycle = &pub.Lifecycle{PreDelete: &pub.LifecycleHook{FinalizersHandler: []string{"example.com/drain"},
				MarkPodNotReady: true}}
		}, clonesettest.Templated(`{"metadata":{"labels":{"app":"web"},"finalizers":["example.com/drain"]},"spec":{"containers":[{"name":"nginx","image":"nginx:1"}]}}`)), func(n *tale) {
			n.then("replicas 1", clonesettest.Replicas(1))
			n.act("the operator removes the finalizer", func() {
				n.edit(n.inState(pub.LifecycleStatePreparingDelete)[0], func(pod *corev1.Pod) { pod.Finalizers = nil })
			})
		}},
		"CS-118 a deletion that is not wanted any more": {clonesettest.Set(2, func(set *appsv1beta1.CloneSet) { // CS-135
			set.Spec.Lifecycle = &pub.Lifecycle{PreDelete: &pub.LifecycleHook{LabelsHandler: map[string]string{"traffic": "on"}}}
		}, clonesettest.HookedImage("nginx:1")), func(n *tale) {
			n.then("replicas 1", clonesettest.Replicas(1))
			n.then("replicas 2 again", clonesettest.Replicas(2))
		}},
		"CS-116 replacement while a deletion waits for its hook": {clonesettest.Set(2, func(set *appsv1beta1.CloneSet) {
			set.Spec.ScaleStrategy.ExcludePreparingDelete = true
			set.Spec.Lifecycle = &pub.Lifecycle{PreDelete: &pub.LifecycleHook{LabelsHandler: map[string]string{"traffic": "on"}}}
		}, clonesettest.HookedImage("nginx:1")), func(n *tale) {
			n.then("a pod is to be deleted", clonesettest.ToDelete(n.AllPods()[0].Name))
			n.act("the operator lets it go", func() { n.edit(n.inState(pub.LifecycleStatePreparingDelete)[0], unlabel("traffic")) })
		}},
		"CS-140 scale-in spreads over zones": {clonesettest.Set(4), func(n *tale) { // CS-141 to 151, CS-280
			for i, pod := range n.active() {
				n.edit(pod, func(pod *corev1.Pod) { pod.Spec.NodeName = []string{"a", "b", "b", "c"}[i] })
			}
			for name, zone := range map[string]string{"a": "1", "b": "1", "c": "2"} {
				n.Store(nodeKey(name), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}}})
			}
			constraint := clonesettest.Templated(`{"metadata":{"labels":{"app":"web"}},"spec":{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"ScheduleAnyway"}],"containers":[{"name":"nginx","image":"nginx:1"}]}}`)
			n.then("the template spreads over zones, the partition keeps the pods; replicas 2",
				clonesettest.Both(constraint, clonesettest.Partition(4), clonesettest.Replicas(2)))
			for _, pod := range n.active() {
				n.say("pod %s stays on node %s", pod.Name, pod.Spec.NodeName)
			}
		}},
		"CS-348 a released pod keeps its claim": {clonesettest.Set(1, clonesettest.Claims("1Gi")), func(n *tale) { // CS-056
			n.act("the label of the pod is changed", func() { n.edit(n.active()[0], label("app", "mine")) })
			for _, o := range n.List("PersistentVolumeClaim", false) {
				owner := metav1.GetControllerOf(o)
				n.say("claim %s belongs to %s", o.GetName(), owner.Kind)
			}
		}},
		"CS-349 a pod that lost its instance label": {clonesettest.Set(2, clonesettest.Claims("1Gi")), func(n *tale) { // CS-137
			n.edit(n.active()[0], unlabel(pub.CloneSetInstanceID))
			n.then("it is deleted", clonesettest.ToDelete(n.active()[0].Name))
			n.storage()
		}},
	}
}

// updateDefects are narratives of known defects and wishes of updates, by issue number.
func updateDefects() map[string]story {
	reCreate := clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy)
	grace := clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) {
		s.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{GracePeriodSeconds: 30}
	})
	return map[string]story{
		"#632 a raised partition moves nothing back": {clonesettest.Set(3), func(n *tale) { // CS-098, CS-360
			n.then("image nginx:2", clonesettest.Image("nginx:2"))
			n.then("image nginx:3, partition 1", clonesettest.Both(clonesettest.Image("nginx:3"), clonesettest.Partition(1)))
			n.then("partition 3", clonesettest.Partition(3))
			n.kind.Features.PartitionRollback = true
			n.act("the manager is started with gate CloneSetPartitionRollback", func() { n.Queue.Add() })
		}},
		// CS-115, CS-361, IPU-325
		"#1183 a pod that prepares its update goes back when others took its place": {clonesettest.Set(3, clonesettest.UpdateHook(false),
			clonesettest.HookedImage("nginx:1"),
			clonesettest.Partition(2)), func(n *tale) {
			n.then("image nginx:2: one pod prepares its update", clonesettest.HookedImage("nginx:2"))
			n.act("another pod is deleted; its successor is old, because the one counts", func() {
				for _, pod := range n.active() {
					if pod.Labels[pub.LifecycleState] == string(pub.LifecycleStateNormal) {
						n.EndGracefully(podKey(pod.Name))
						return
					}
				}
			})
			n.then("partition 3: it need not move any more", clonesettest.Partition(3))
		}},
		"#376 a rollback while the surge pod of the bad revision is pending": {clonesettest.Set(3, reCreate, clonesettest.Surge(1, 0)),
			func(n *tale) { // CS-362
				n.Node.Digests["nginx:bad"] = ""
				n.then("image nginx:bad", clonesettest.Image("nginx:bad"))
				n.then("image nginx:1 again", clonesettest.Image("nginx:1"))
			}},
		"CS-363 conditions for tools": {clonesettest.Set(2, clonesettest.Annotated(pub.PublishConditions, "true")), func(n *tale) {
			n.Node.Digests["nginx:bad"] = ""
			n.then("image nginx:bad", clonesettest.Both(clonesettest.Image("nginx:bad"), clonesettest.MaxUnavailable(2)))
			n.then("image nginx:2", clonesettest.Both(clonesettest.Image("nginx:2"), clonesettest.MaxUnavailable(0), clonesettest.Surge(1, 0)))
		}},
		"#263 surge where nothing may be unavailable, in place": {clonesettest.Set(2, clonesettest.Surge(1, 0)), func(n *tale) { // CS-102, CS-103
			originals := map[string]bool{}
			for _, pod := range n.active() {
				originals[pod.Name] = true
			}
			n.then("image nginx:2", clonesettest.Image("nginx:2"))
			n.say("originals survive: %v", !slices.ContainsFunc(n.active(), func(pod *corev1.Pod) bool { return !originals[pod.Name] }))
		}},
		"#418 a rollback in the grace period": {clonesettest.Set(1, grace), func(n *tale) { // IPU-108 (part), IPU-216 (part)
			n.midway("image nginx:2", clonesettest.Image("nginx:2"), func() bool { return n.active()[0].Annotations[pub.InPlaceUpdateGrace] != "" })
			n.Pass(10 * time.Second)
			n.then("image nginx:1 again, 10 s later", clonesettest.Image("nginx:1"))
		}},
		// IPU-103, IPU-105, IPU-302, ND-147
		"#2399 batches by launch priority": {clonesettest.Set(1, clonesettest.Templated(prioritizedTemplate("1"))), func(n *tale) {
			n.then("both images change: agent first", clonesettest.Templated(prioritizedTemplate("2")))
			n.restarts()
		}},
		"#2276 a write of kubelet between ours": {clonesettest.Set(1), func(n *tale) { // IPU-081, IPU-133, IPU-306, IPU-307
			heartbeats := 0
			n.AfterWrite = func(w simulation.Write) {
				if w.Key.Kind == "Pod" && w.Subresource == "status" && heartbeats < 2 {
					heartbeats++
					n.Change(w.Key, func(o client.Object) { o.(*corev1.Pod).Status.PodIP = fmt.Sprintf("10.0.0.%d", heartbeats) })
				}
			}
			n.then("image nginx:2", clonesettest.Image("nginx:2"))
			n.say("%d writes of kubelet came between", heartbeats)
		}},
		"#1761 a container that may restart in service": {clonesettest.Set(2, keepReady("log:1")), func(n *tale) { // IPU-308, CS-364
			n.then("image log:2", keepReady("log:2"))
			writes := 0
			for _, w := range n.Writes {
				if w.Key.Kind == "Pod" && w.Subresource == "status" {
					writes++
				}
			}
			n.say("%d writes of readiness", writes)
		}},
		"#1336 a resize that never fits": {clonesettest.Set(2, clonesettest.App("nginx:1", "a", "", clonesettest.CPU("2"))),
			func(n *tale) { // IPU-315
				n.Node.Observes = true
				n.Node.Unfit = map[string]bool{string(n.active()[0].UID): true}
				n.then("cpu 3", clonesettest.App("nginx:1", "a", "", clonesettest.CPU("3")))
			}},
		// IPU-112, IPU-136, IPU-324, #2049
		"IPU-219 vertical scaling in place": {clonesettest.Set(2, clonesettest.App("nginx:1", "a", "", clonesettest.CPU("2"))), func(n *tale) {
			n.then("cpu 3", clonesettest.App("nginx:1", "a", "", clonesettest.CPU("3")))
			n.restarts()
		}},
		"#560 a native sidecar in place": {clonesettest.Set(1, nativeSidecar("proxy:1")), func(n *tale) { // IPU-318
			n.then("image proxy:2", nativeSidecar("proxy:2"))
		}},
		// IPU-212, IPU-319, IPU-320, #910
		"#1239 image and environment restart once": {clonesettest.Set(1, clonesettest.App("nginx:1", "a", "", "")), func(n *tale) {
			n.then("image nginx:2, config b", clonesettest.App("nginx:2", "b", "", ""))
			n.restarts()
		}},
		"IPU-211 environment from metadata": {clonesettest.Set(1, clonesettest.App("nginx:1", "a", "", "")),
			func(n *tale) { // IPU-130, IPU-321, #644
				n.then("config b", clonesettest.App("nginx:1", "b", "", ""))
				n.restarts()
			}},
		"#1826 a restart of all containers": {clonesettest.Set(2, clonesettest.App("nginx:1", "a", "", "")), func(n *tale) { // IPU-322, CS-358
			n.then("restarted-at monday", clonesettest.App("nginx:1", "a", `,"apps.kruise.io/restarted-at":"monday"`, ""))
			n.restarts()
		}},
		"IPU-312 environment without a node daemon": {clonesettest.Set(1, clonesettest.App("nginx:1", "a", "", "")), func(n *tale) {
			n.Node.Daemon = false
			n.Pass(time.Minute) // a daemon would have told of the pod
			n.eachPod(func(pod *corev1.Pod) { delete(pod.Annotations, pub.RuntimeContainersMeta) })
			n.then("config b", clonesettest.App("nginx:1", "b", "", ""))
		}},
		"#463 a revision label changed by hand": {clonesettest.Set(2), func(n *tale) { // IPU-326
			n.then("image nginx:2", clonesettest.Image("nginx:2"))
			first := n.set().Status.CurrentRevision
			n.then("image nginx:3", clonesettest.Image("nginx:3"))
			n.act("the label of one pod names the first revision", func() {
				n.edit(n.active()[0], label(pub.ControllerRevisionHash,
					first))
			})
			n.act("the image of one pod is taken back by hand", func() {
				n.edit(n.active()[1], func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "nginx:2" })
			})
		}},
		"IPU-326 a grace annotation that vanished": {clonesettest.Set(1, grace), func(n *tale) {
			n.midway("image nginx:2", clonesettest.Image("nginx:2"), func() bool { return n.active()[0].Annotations[pub.InPlaceUpdateGrace] != "" })
			n.act("the annotation is removed", func() {
				n.eachPod(func(pod *corev1.Pod) {
					delete(pod.Annotations,
						pub.InPlaceUpdateGrace)
				})
			})
		}},
		"IPU-305 an unreadable state": {clonesettest.Set(1), func(n *tale) {
			n.midway("image nginx:2", clonesettest.Image("nginx:2"), func() bool { return n.active()[0].Annotations[pub.InPlaceUpdateState] != "" })
			n.act("somebody writes junk into the annotation", func() {
				n.eachPod(func(pod *corev1.Pod) { pod.Annotations[pub.InPlaceUpdateState] = "junk" })
			})
		}},
		// CS-190 (part), CS-191, IPU-155 (part), IPU-316, #676
		"IPU-218 the hook of updates": {clonesettest.Set(1, clonesettest.UpdateHook(true), clonesettest.HookedImage("nginx:1")), func(n *tale) {
			n.then("image nginx:2: the pod waits for the operator", clonesettest.HookedImage("nginx:2"))
			n.act("the operator takes it out of traffic: it is updated, and waits to be taken back",
				func() { n.eachPod(unlabel("traffic")) })
			n.then("image nginx:3 meanwhile: the operator gets something to remove again", clonesettest.HookedImage("nginx:3"))
			n.act("the operator takes it out again", func() { n.eachPod(unlabel("traffic")) })
			n.act("the operator takes it back", func() { n.eachPod(label("traffic", "on")) })
		}},
		"IPU-316 a rollback before the hook let go": {clonesettest.Set(1, clonesettest.UpdateHook(true), clonesettest.HookedImage("nginx:1")),
			func(n *tale) {
				n.then("image nginx:2", clonesettest.HookedImage("nginx:2"))
				n.then("image nginx:1 again", clonesettest.HookedImage("nginx:1"))
			}},
		"CS-181 weights, and CS-184 scatter": {clonesettest.Set(5), func(n *tale) { // CS-188
			for i, pod := range n.active() {
				n.edit(pod, label("tier", []string{"a", "b", "a", "b", "c"}[i]))
			}
			n.then("image nginx:2, tier b first, a scattered", clonesettest.Both(clonesettest.Image("nginx:2"),
				clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) {
					s.PriorityStrategy = &pub.UpdatePriorityStrategy{WeightPriority: []pub.UpdatePriorityWeightTerm{
						{Weight: 50, MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{"tier": "b"}}}}}
					s.ScatterStrategy = []pub.UpdateScatterTerm{{Key: "tier", Value: "a"}}
				})))
			var order []string
			for _, event := range n.Recorded {
				if name, ok := strings.CutPrefix(event, "Normal SuccessfulUpdatePodInPlace updating pod "); ok {
					name, _, _ = strings.Cut(name, " ")
					order = append(order, n.Get(podKey(name)).GetLabels()["tier"])
				}
			}
			n.say("order of tiers: %s", strings.Join(order, " "))
		}},
		"CS-128 scaling during a partitioned rollout": {clonesettest.Set(4, func(set *appsv1beta1.CloneSet) {
			clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.Partition = new(intstr.FromString("50%")) })(set)
		}), func(n *tale) {
			n.then("image nginx:2", clonesettest.Image("nginx:2"))
			n.then("an autoscaler sets replicas 8", clonesettest.Replicas(8))
			n.then("and 2", clonesettest.Replicas(2))
		}},
	}
}

func prioritizedTemplate(tag string) string {
	barrier := func(priority string) string {
		return `"env":[{"name":"KRUISE_CONTAINER_BARRIER","valueFrom":{"configMapKeyRef":{"name":"b","key":"p_` + priority + `"}}}]`
	}
	return fmt.Sprintf(`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":"nginx:%s",%s},{"name":"agent","image":"agent:%s",%s}]}}`,
		tag, barrier("1"), tag, barrier("10"))
}

func keepReady(image string) func(*appsv1beta1.CloneSet) {
	return clonesettest.Templated(fmt.Sprintf(`{"metadata":{"labels":{"app":"web"},"annotations":{"apps.kruise.io/inplace-update-keep-ready":"log"}},`+
		`"spec":{"containers":[{"name":"nginx","image":"nginx:1"},{"name":"log","image":%q}]}}`, image))
}

func nativeSidecar(image string) func(*appsv1beta1.CloneSet) {
	return clonesettest.Templated(fmt.Sprintf(`{"metadata":{"labels":{"app":"web"}},"spec":{"initContainers":[{"name":"setup","image":"setup:1"},{"name":"proxy","image":%q,"restartPolicy":"Always"}],`+
		`"containers":[{"name":"nginx","image":"nginx:1"}]}}`, image))
}
