package controller

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// failure is what the oracle knows of a node where pods end: how long the next one stays, and until when
// (ADS-091).
type failure struct {
	wait      time.Duration
	at, until time.Time
}

const firstFailure, lastFailure = time.Second, 15 * time.Minute

// present are the pods on a node that are not being deleted.
func (r *rolloutRun) present(node string) (present []*corev1.Pod) {
	for _, pod := range r.PodsOn(node) {
		if pod.DeletionTimestamp == nil {
			present = append(present, pod)
		}
	}
	return present
}

// tampered: somebody did what leaves the manager to other rules, or two managers do not know of each other.
func (r *rolloutRun) tampered() bool { return r.staleLeaders || r.forgetful || r.handedOver }

// keepsSurge: no more nodes than maxSurge get a new pod beside one that serves.
func (r *rolloutRun) keepsSurge(set *appsv1beta1.DaemonSet, target string) {
	there := r.present(target)
	if _, until := r.backingOff(set, target); r.Now().Before(until) && !r.tampered() && len(there) > 0 && !slices.ContainsFunc(there, preparesDeletion) {
		r.fail("node %s gets a pod beside another, and pods failed there: none was to come until %s", target, until)
	}
	if !r.calm || r.tampered() || len(there) == 0 {
		return
	}
	serves := func(pod *corev1.Pod) bool {
		known := r.viewed(pod)
		return r.available(pod) && (known == nil || r.available(known))
	}
	if !slices.ContainsFunc(there, serves) || slices.ContainsFunc(there, preparesDeletion) {
		r.immediate[target] = true
		return
	}
	two := 1
	for _, node := range r.known() {
		if node.Name != target && !r.immediate[node.Name] && len(r.present(node.Name)) > 1 && !r.surplusRefused(node.Name) {
			two++
		}
	}
	if most := resolve(options(set).MaxSurge, len(eligible(set, r.known())), true); two > most {
		r.fail("node %s is one of %d with a new pod beside the old one, maxSurge %d", target, two, most)
	}
}

// surplusRefused reports whether a pod of the node stays beside an available one because its deletion was refused, which
// counts for no surge (ADS-161).
func (r *rolloutRun) surplusRefused(node string) bool {
	there := r.present(node)
	return slices.ContainsFunc(there, func(pod *corev1.Pod) bool {
		serves := func(other *corev1.Pod) bool { return other != pod && r.available(other) }
		return slices.ContainsFunc(there, serves) && len(r.EventsWith("failed to delete pod "+pod.Name+":")) > 0
	})
}

// unseenEnd reports whether a pod of the node that did not serve is gone, and the caches of the manager do not show that
// yet: to the manager it is one that may go without cost (ADS-131).
func (r *rolloutRun) unseenEnd(node string) bool {
	for key, object := range r.View.Cache {
		if pod, ok := object.(*corev1.Pod); ok && nodes.Target(pod) == node && pod.DeletionTimestamp == nil && !r.available(pod) && r.Get(key) == nil {
			return true
		}
	}
	return false
}

// viewed is a pod as the manager sees it: the answers of its own writes may be newer than the cache; nil if
// it does not know of it.
func (r *rolloutRun) viewed(pod *corev1.Pod) *corev1.Pod {
	like, known := r.Cached(podKey(pod.Name)).(*corev1.Pod)
	if !known {
		like = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	}
	newest, exists := reconcile.Newest(r.kube.Own, r.set().UID, like, known)
	if !exists {
		return nil
	}
	return newest
}

func preparesDeletion(pod *corev1.Pod) bool {
	return pod.Labels[pub.LifecycleState] == string(pub.LifecycleStatePreparingDelete)
}

// keepsEmpty: where partition controls creation, no more nodes get a pod than it leaves.
func (r *rolloutRun) keepsEmpty(set *appsv1beta1.DaemonSet) {
	desired := len(eligible(set, r.known()))
	partition := resolve(options(set).Partition, desired, false)
	if r.tampered() || hasSurge(set) || partition == 0 || set.Spec.ScaleStrategy == nil || !set.Spec.ScaleStrategy.PartitionedScaling {
		return
	}
	updated := 1
	for _, node := range r.known() {
		now, old := 0, 0
		for _, pod := range r.present(node.Name) {
			if revisionIs(pod, r.newest()) {
				now++
			} else {
				old++
			}
		}
		if now == 1 && old < 2 {
			updated++
		}
	}
	if updated > max(desired-partition, 0) {
		r.fail("%d of %d nodes get a new pod, partition %d", updated, desired, partition)
	}
}

// heedsHook: no pod is deleted that its hook holds.
func (r *rolloutRun) heedsHook(set *appsv1beta1.DaemonSet, pod *corev1.Pod) {
	if set.Spec.Lifecycle != nil && pod.Labels["hook/delete"] == "on" {
		r.fail("pod %s is deleted while its hook holds it", pod.Name)
	}
}

// failedOn is a node, for one manager and one spec.
type failedOn struct {
	manager    *Controller
	set        types.UID
	generation int64
	node       string
}

// backingOff is until when the pods that fail on a node are left there, as far as that is to be judged.
func (r *rolloutRun) backingOff(set *appsv1beta1.DaemonSet, node string) (on failedOn, until time.Time) {
	on = failedOn{r.controller, set.UID, set.Generation, node}
	return on, r.failures[on].until
}

// keepsBack: pods that fail on a node are not deleted faster than the back-off of the node allows.
func (r *rolloutRun) keepsBack(set *appsv1beta1.DaemonSet, pod *corev1.Pod) {
	target := nodes.Target(pod)
	if r.staleLeaders || r.Faults.Lose > 0 || pod.Status.Phase != corev1.PodFailed || !revisionIs(pod, r.newest()) || !r.tolerable(set, target) {
		return
	}
	if r.failures == nil {
		r.failures = map[failedOn]failure{}
	}
	on, until := r.backingOff(set, target)
	if r.failures[on].at.Equal(r.Now()) { // two failed there at once, and go together
		return
	}
	if r.Now().Before(until) {
		r.fail("failed pod %s is deleted, and others failed on %s before: it was to stay until %s", pod.Name, target, until)
	}
	if r.Now().Sub(until) > 2*lastFailure { // what is so long ago is forgotten
		delete(r.failures, on)
	}
	wait := min(max(2*r.failures[on].wait, firstFailure), lastFailure)
	r.failures[on] = failure{wait, r.Now(), r.Now().Add(wait)}
}

// tolerable tells whether pods may stay on a node, as the manager knows it.
func (r *rolloutRun) tolerable(set *appsv1beta1.DaemonSet, name string) bool {
	node, _ := r.Cached(nodeKey(name)).(*corev1.Node)
	return node != nil && nodes.ForDaemon(&set.Spec.Template.Spec).Judge(node).Tolerable
}

// deletesNoOther: an old pod that is alone on its node, and whose deletion nobody asked for, is deleted for
// the rollout alone, as far as type, paused, selector and partition let it.
func (r *rolloutRun) deletesNoOther(set *appsv1beta1.DaemonSet, pod *corev1.Pod) {
	target := nodes.Target(pod)
	node, _ := r.Cached(nodeKey(target)).(*corev1.Node)
	if !r.calm || r.tampered() || len(r.present(target)) != 1 || !r.tolerable(set, target) || revisionIs(pod, r.newest()) ||
		preparesDeletion(pod) || pod.Labels[pub.SpecifiedDelete] != "" {
		return
	}
	o := options(set)
	switch {
	case set.Spec.UpdateStrategy.Type == appsv1beta1.OnDeleteDaemonSetStrategyType || o.Paused:
		r.fail("pod %s is deleted, type %s, paused %t", pod.Name, set.Spec.UpdateStrategy.Type, o.Paused)
	case o.Selector != nil && !matches(o.Selector, node):
		r.fail("pod %s on node %s is deleted, which the selector does not select", pod.Name, target)
	}
	moved, all := 1, 0
	for _, node := range r.known() {
		if len(r.PodsOn(node.Name)) == 0 && len(eligible(set, []*corev1.Node{node})) == 0 {
			continue
		}
		all++
		if node.Name != target && slices.ContainsFunc(r.present(node.Name), func(pod *corev1.Pod) bool { return revisionIs(pod, r.newest()) }) {
			moved++
		}
	}
	if partition := resolve(o.Partition, len(eligible(set, r.known())), false); moved > all-partition {
		r.fail("partition: pods of %d of %d nodes are moved, partition %d", moved, all, partition)
	}
}
