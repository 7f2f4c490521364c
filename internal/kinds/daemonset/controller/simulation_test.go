package controller

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// rolloutRun is one random life of a set. The rules by which it judges every write share nothing with the
// planner but what a node is to a pod (package nodes).
type rolloutRun struct {
	*simulated
	seed    uint64
	failure string
	image   string
	note    string
	hooked  bool
	// calm: nobody but the manager takes pods out of service, nodes only come, are lost and found, and kubelets
	// bring all pods up.
	calm bool
	// staleLeaders: managers overlap. surged: the set had a surge at some time. handedOver: pods of another set
	// were taken over.
	staleLeaders, surged, handedOver, forgetful bool
	// excused are the nodes whose pod was deleted in this pass, and did not serve (ADS-131).
	excused map[string]bool
	// immediate are the nodes that got a new pod in this pass beside one that did not serve (ADS-161 (part)).
	immediate map[string]bool
	// failures are what is known of pods that failed, by manager, generation and node (ADS-091).
	failures map[failedOn]failure
	// former is the spec before a user's last change; nil if that was taken back.
	former *appsv1beta1.DaemonSetSpec
	nodes  int
	// unhealthy are nodes on which all pods fail; gone are nodes that may come back.
	unhealthy map[string]bool
	gone      []*corev1.Node
}

func (r *rolloutRun) fail(format string, args ...any) {
	if r.failure == "" {
		r.failure = fmt.Sprintf("SEED=%d at %s: ", r.seed, r.Now().Format("15:04:05")) + fmt.Sprintf(format, args...) + r.describe()
	}
}

// seen is the set as the manager sees it: the answers of its own writes may be newer than the cache.
func (r *rolloutRun) seen() *appsv1beta1.DaemonSet {
	set, err := reconcile.Find[*appsv1beta1.DaemonSet](context.Background(), r.kube.API, client.ObjectKeyFromObject(r.set()))
	if err != nil || set == nil {
		panic(err)
	}
	return set
}

// known are the nodes as the manager knows them.
func (r *rolloutRun) known() []*corev1.Node {
	return simulationtest.All[*corev1.Node](r.Cluster, "Node", true)
}

// eligible are the nodes, of these, that should have a pod of the set.
func eligible(set *appsv1beta1.DaemonSet, of []*corev1.Node) (found []*corev1.Node) {
	rules := nodes.ForDaemon(&set.Spec.Template.Spec)
	for _, node := range of {
		if rules.Judge(node).Eligible {
			found = append(found, node)
		}
	}
	return found
}

func options(set *appsv1beta1.DaemonSet) *appsv1beta1.RollingUpdateDaemonSet {
	if set.Spec.UpdateStrategy.Type == appsv1beta1.OnDeleteDaemonSetStrategyType || set.Spec.UpdateStrategy.RollingUpdate == nil {
		return &appsv1beta1.RollingUpdateDaemonSet{}
	}
	return set.Spec.UpdateStrategy.RollingUpdate
}

// resolve is a number, or a percentage of all.
func resolve(value *intstr.IntOrString, all int, up bool) int {
	if value == nil {
		return 0
	}
	text, isPercent := strings.CutSuffix(value.StrVal, "%")
	if !isPercent {
		return int(value.IntVal)
	}
	n, _ := strconv.Atoi(text)
	if up {
		return (n*all + 99) / 100
	}
	return n * all / 100
}

func hasSurge(set *appsv1beta1.DaemonSet) bool { return resolve(options(set).MaxSurge, 100, true) > 0 }

// available is what users have of a pod: it is ready, runs, and its lifecycle lets it serve.
func (r *rolloutRun) available(pod *corev1.Pod) bool {
	if pod == nil || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return false
	}
	if state := pod.Labels[pub.LifecycleState]; state != "" && state != string(pub.LifecycleStateNormal) {
		return false
	}
	ready, minReady := false, time.Duration(r.seen().Spec.MinReadySeconds)*time.Second
	for _, c := range pod.Status.Conditions {
		switch c.Type {
		case corev1.PodReady:
			ready = c.Status == corev1.ConditionTrue && r.Now().Sub(c.LastTransitionTime.Time) >= minReady
		case pub.InPlaceUpdateReady:
			if c.Status != corev1.ConditionTrue {
				return false
			}
		}
	}
	return ready
}

// beforeWrite watches every write of the manager against the truth.
func (r *rolloutRun) beforeWrite(w simulation.Write, before, after client.Object) {
	if w.Key.Kind != "Pod" {
		return
	}
	set := r.seen()
	if hasSurge(set) || hasSurge(r.set()) {
		r.surged = true
	}
	if w.Verb == "create" {
		r.creation(set, after.(*corev1.Pod))
		return
	}
	r.disruption(set, w, before.(*corev1.Pod), after)
}

// creation judges a new pod.
func (r *rolloutRun) creation(set *appsv1beta1.DaemonSet, pod *corev1.Pod) {
	target := nodes.Target(pod)
	if set.UID != r.set().UID { // what a set gets that is gone goes with it
		return
	}
	r.keepsSurge(set, target)
	r.keepsEmpty(set)
	node, _ := r.Cached(nodeKey(target)).(*corev1.Node)
	if node == nil || len(eligible(set, []*corev1.Node{node})) == 0 {
		r.fail("pod %s is created for node %s, which should have none", pod.Name, target)
	}
	most, there := 0, 0
	if r.surged {
		most = 1
	}
	for _, other := range r.PodsOn(target) {
		if controllerOf(other) == set.UID && (!r.surged || other.DeletionTimestamp == nil && other.Status.Phase != corev1.PodFailed) {
			there++
		}
	}
	if there > most && !r.handedOver && (!r.staleLeaders || !r.surged) {
		r.fail("pod %s is created for node %s, where %d are", pod.Name, target, there)
	}
	if newest := r.newest(); !r.staleLeaders && !r.forgetful && !r.handedOver && !revisionIs(pod, newest) {
		r.fail("pod %s is created at %s and not at %s", pod.Name, pod.Labels[pub.ControllerRevisionHash], newest)
	}
}

func revisionIs(pod *corev1.Pod, name string) bool {
	return name[strings.LastIndexByte(name, '-')+1:] == pod.Labels[pub.ControllerRevisionHash]
}

func controllerOf(object client.Object) types.UID {
	if owner := metav1.GetControllerOf(object); owner != nil {
		return owner.UID
	}
	return ""
}

// newest is the revision of the highest number that is not somebody else's.
func (r *rolloutRun) newest() string {
	newest := &appsv1.ControllerRevision{}
	for _, object := range r.List("ControllerRevision", false) {
		stored := object.(*appsv1.ControllerRevision)
		if slices.Contains([]types.UID{"", r.set().UID}, controllerOf(stored)) && (stored.Revision > newest.Revision ||
			stored.Revision == newest.Revision && newest.CreationTimestamp.Before(&stored.CreationTimestamp)) {
			newest = stored
		}
	}
	return newest.Name
}

// disruption judges what is done to a pod.
func (r *rolloutRun) disruption(set *appsv1beta1.DaemonSet, w simulation.Write, before *corev1.Pod, after client.Object) {
	name, target := before.Name, nodes.Target(before)
	pod, stays := after.(*corev1.Pod)
	stays = stays && w.Verb != "delete"
	if stays {
		for i := range before.Spec.Containers {
			if before.Spec.Containers[i].Image != pod.Spec.Containers[i].Image && r.available(before) {
				r.fail("image of pod %s changed while it was in service", name)
			}
		}
		if runs, image := r.Node.Runs(before, "agent").Image, before.Spec.Containers[0].Image; inService(pod) && !inService(before) &&
			runs != image && before.Status.Phase == corev1.PodRunning {
			r.fail("pod %s comes into service and runs %q, not %s", name, runs, image)
		}
		r.keepsPartition(set, before, pod)
		if controllerOf(before) == "" && controllerOf(pod) != "" && before.Labels["app"] != "agent" {
			r.fail("pod %s is adopted, which the selector does not match", name)
		}
	}
	if !stays {
		r.heedsHook(set, before)
		r.keepsBack(set, before)
		r.deletesNoOther(set, before)
	}
	if !r.available(before) && (!stays || before.Labels[pub.ControllerRevisionHash] != pod.Labels[pub.ControllerRevisionHash]) {
		r.excused[target] = true
	}
	if r.staleLeaders || !r.calm || !r.available(before) || stays && r.available(pod) {
		return
	}
	all := eligible(set, r.known())
	if !slices.ContainsFunc(all, func(node *corev1.Node) bool { return node.Name == target }) {
		return
	}
	down := 0
	for _, node := range r.known() {
		verdict := nodes.ForDaemon(&set.Spec.Template.Spec).Judge(node)
		if counts := verdict.Eligible || verdict.Lost && len(r.PodsOn(node.Name)) > 0; !counts {
			continue
		}
		usable, old, serves := 0, false, false
		for _, other := range r.PodsOn(node.Name) {
			if other.DeletionTimestamp != nil || other.Name == name {
				continue
			}
			usable++
			serves = serves || r.available(other)
			old = old || r.handedOver || !revisionIs(other, r.newest()) // numbers of revisions say little after a handover
		}
		if node.Name == target && serves {
			return // another one serves there
		}
		strict := set.Annotations[pub.DaemonSetStrictMaxUnavailable] == "true"
		kept := r.empty(set, node.Name) || !strict && (r.excused[node.Name] || r.unseenEnd(node.Name))
		if node.Name == target || !serves && (strict && usable > 0 || !old) && !kept {
			down++
		}
	}
	most := max(resolve(options(set).MaxUnavailable, len(all), true), 0)
	if most == 0 && !hasSurge(set) {
		most = 1
	}
	if before.Labels[pub.SpecifiedDelete] != "" {
		most = max(most, 1)
	}
	if down > most {
		r.fail("%s of %s leaves %d of %d nodes without an available pod, and %d may be", w.Verb, name, down, len(all), most)
	}
}

// empty tells whether partition keeps a node without a pod.
func (r *rolloutRun) empty(set *appsv1beta1.DaemonSet, node string) bool {
	return set.Spec.ScaleStrategy != nil && set.Spec.ScaleStrategy.PartitionedScaling && len(r.PodsOn(node)) == 0
}

// inService tells whether the manager lets the pod serve after an update.
func inService(pod *corev1.Pod) bool {
	if state := pod.Labels[pub.LifecycleState]; state != "" && state != string(pub.LifecycleStateNormal) {
		return false
	}
	return !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == pub.InPlaceUpdateReady && c.Status != corev1.ConditionTrue
	})
}

// keepsPartition: what partition and selector keep is not moved in place.
func (r *rolloutRun) keepsPartition(set *appsv1beta1.DaemonSet, before, after *corev1.Pod) {
	if before.Labels[pub.ControllerRevisionHash] == after.Labels[pub.ControllerRevisionHash] || r.staleLeaders || r.forgetful || r.handedOver {
		return
	}
	target := nodes.Target(before)
	o := options(set)
	node, _ := r.Cached(nodeKey(target)).(*corev1.Node)
	switch {
	case set.Spec.UpdateStrategy.Type == appsv1beta1.OnDeleteDaemonSetStrategyType || o.Paused:
		r.fail("pod %s is updated, type %s, paused %t", before.Name, set.Spec.UpdateStrategy.Type, o.Paused)
	case o.Selector != nil && !matches(o.Selector, node):
		r.fail("pod %s on node %s is updated, which the selector does not select", before.Name, target)
	}
	moved, all := 1, 0
	for _, node := range r.known() {
		pods := r.PodsOn(node.Name)
		if len(pods) == 0 && len(eligible(set, []*corev1.Node{node})) == 0 {
			continue
		}
		all++
		if node.Name != target && slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
			return pod.DeletionTimestamp == nil && pod.Labels[pub.ControllerRevisionHash] == after.Labels[pub.ControllerRevisionHash]
		}) {
			moved++
		}
	}
	desired := len(eligible(set, r.known()))
	if partition := resolve(o.Partition, desired, false); moved > all-partition {
		r.fail("partition: pods of %d of %d nodes at %s, partition %d", moved, all, after.Labels[pub.ControllerRevisionHash], partition)
	}
}

func matches(selector *metav1.LabelSelector, node *corev1.Node) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && node != nil && s.Matches(labels.Set(node.Labels))
}

func (r *rolloutRun) template() string {
	labels := `"app":"agent"`
	if r.hooked {
		labels += `,"hook/delete":"on"`
	}
	return fmt.Sprintf(`{"metadata":{"labels":{%s},"annotations":{"note":%q}},"spec":{"containers":[{"name":"agent","image":%q}]}}`, labels,
		r.note, r.image)
}

// strategy draws options of rolling updates.
func (r *rolloutRun) strategy() *appsv1beta1.RollingUpdateDaemonSet {
	rolling := &appsv1beta1.RollingUpdateDaemonSet{}
	if r.Rand.IntN(3) == 0 {
		rolling.MaxSurge = []*intstr.IntOrString{number(1), number(2), percent("30%"), percent("100%")}[r.Rand.IntN(4)]
		return rolling
	}
	rolling.MaxUnavailable = []*intstr.IntOrString{nil, number(1), number(2), percent("1%"), percent("40%"), percent("100%")}[r.Rand.IntN(6)]
	if r.Rand.IntN(2) == 0 {
		rolling.Type = appsv1beta1.InPlaceIfPossibleRollingUpdateType
	}
	return rolling
}

// newRun draws a set and a cluster from the seed.
func newRun(seed uint64) *rolloutRun {
	r := &rolloutRun{seed: seed, image: "agent:1", note: "a"}
	draw := simulation.New(seed).Rand
	r.simulated = &simulated{Workload: simulationtest.NewWorkload[*appsv1beta1.DaemonSet, *daemonset.Plan](seed, setKey)}
	set := makeSet()
	set.Spec.UpdateStrategy.RollingUpdate = r.strategy()
	if draw.IntN(4) == 0 {
		set.Spec.MinReadySeconds = int32(1 + draw.IntN(5))
	}
	if draw.IntN(4) == 0 {
		set.Spec.BurstReplicas = []*intstr.IntOrString{number(1), number(2), percent("30%")}[draw.IntN(3)]
	}
	if draw.IntN(5) == 0 {
		set.Spec.ScaleStrategy = &appsv1beta1.DaemonSetScaleStrategy{PartitionedScaling: true}
	}
	if draw.IntN(5) == 0 {
		set.Annotations = map[string]string{pub.DaemonSetStrictMaxUnavailable: "true"}
	}
	if r.hooked = draw.IntN(4) == 0; r.hooked {
		set.Spec.Lifecycle = &pub.Lifecycle{PreDelete: &pub.LifecycleHook{LabelsHandler: map[string]string{"hook/delete": "on"},
			MarkPodNotReady: draw.IntN(2) == 0}}
	}
	setTemplate(set, r.template())
	r.calm = draw.IntN(2) == 0
	var names []string
	for r.nodes = 0; r.nodes < draw.IntN(7); r.nodes++ {
		names = append(names, fmt.Sprint("n", r.nodes))
	}
	r.simulated = simulate(seed, set, daemonset.Features{PruneIneligible: draw.IntN(2) == 0, Binds: draw.IntN(4) == 0,
		InPlace: inplace.Options{EnvFromMetadata: true, Resize: true}, DeferredResize: time.Minute}, names...)
	for i, name := range names {
		r.Change(nodeKey(name), func(o client.Object) { o.SetLabels(map[string]string{"pool": []string{"a", "b"}[i%2]}) })
	}
	r.Node.Digests = map[string]string{"agent:1": "a", "agent:2": "b", "agent:3": "c", "agent:bad": ""}
	r.Node.Daemon = true
	r.excused, r.immediate, r.unhealthy = map[string]bool{}, map[string]bool{}, map[string]bool{}
	r.BeforeWrite = r.beforeWrite
	pass := r.Reconcile
	r.Reconcile = func() (time.Duration, error) {
		r.excused, r.immediate = map[string]bool{}, map[string]bool{}
		return pass()
	}
	if draw.IntN(3) > 0 {
		r.Faults = simulation.Faults{Refuse: 0.03, Lose: 0.03, Die: 0.02}
	}
	return r
}

// user does something that users do, or that happens to nodes.
func (r *rolloutRun) user() {
	n := r.Rand.IntN(26)
	switch pods := r.AllPods(); {
	case n == 25:
		r.handOver()
		return
	case n > 22:
		r.toRecords(n)
		return
	case n > 17:
		r.toNode()
		return
	case n > 12 && len(pods) > 0:
		r.toPod(pods[r.Rand.IntN(len(pods))], n)
		return
	}
	if r.former != nil && r.Chance(0.3) { // what was just begun is to be undone
		r.Edit(func(set *appsv1beta1.DaemonSet) { set.Spec = *r.former })
		r.former = nil
		return
	}
	r.former = r.set().Spec.DeepCopy()
	r.Edit(func(set *appsv1beta1.DaemonSet) {
		rolling := set.Spec.UpdateStrategy.RollingUpdate
		switch n {
		case 0, 1, 2:
			if r.image = fmt.Sprintf("agent:%d", 1+r.Rand.IntN(3)); !r.calm && r.Rand.IntN(5) == 0 {
				r.image = "agent:bad"
			}
			setTemplate(set, r.template())
		case 3:
			r.note = strconv.Itoa(r.Rand.IntN(3))
			setTemplate(set, r.template())
		case 4:
			rolling.Selector = []*metav1.LabelSelector{nil, {MatchLabels: map[string]string{"pool": "a"}}}[r.Rand.IntN(2)]
		case 5, 6:
			rolling.Partition = []*intstr.IntOrString{nil, number(r.Rand.IntN(5)), percent("50%"), percent("100%")}[r.Rand.IntN(4)]
		case 7:
			rolling.Paused = r.Rand.IntN(2) == 0
		case 8, 9:
			next := r.strategy()
			next.Selector, next.Partition, next.Paused = rolling.Selector, rolling.Partition, rolling.Paused
			set.Spec.UpdateStrategy.RollingUpdate = next
		case 10:
			set.Spec.UpdateStrategy.Type = []appsv1beta1.DaemonSetUpdateStrategyType{appsv1beta1.OnDeleteDaemonSetStrategyType,
				appsv1beta1.RollingUpdateDaemonSetStrategyType}[r.Rand.IntN(2)]
		case 11:
			set.Spec.ScaleStrategy = &appsv1beta1.DaemonSetScaleStrategy{PartitionedScaling: r.Rand.IntN(2) == 0}
		case 12:
			set.Spec.BurstReplicas = []*intstr.IntOrString{nil, number(1), percent("30%")}[r.Rand.IntN(3)]
		}
	})
}

// taint gives a node a taint, or takes away what it has.
func (r *rolloutRun) taint(node simulation.Key, key string, effect corev1.TaintEffect) {
	r.Change(node, func(o client.Object) {
		node := o.(*corev1.Node)
		if len(node.Spec.Taints) > 0 {
			node.Spec.Taints = nil
		} else {
			node.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}}
		}
	})
}

// toNode lets something happen to a node.
func (r *rolloutRun) toNode() {
	all := r.simulated.nodes()
	if len(all) > 0 && r.calm && r.Chance(0.5) {
		r.taint(nodeKey(all[r.Rand.IntN(len(all))].Name), corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule)
		return
	}
	if len(all) > 0 && !r.calm && (len(r.gone) == 0 || r.Chance(0.7)) {
		key := nodeKey(all[r.Rand.IntN(len(all))].Name)
		switch r.Rand.IntN(8) {
		case 0:
			r.gone = append(r.gone, r.Get(key).(*corev1.Node).DeepCopy())
			r.Remove(key)
		case 7:
			r.unhealthy[key.Name] = !r.unhealthy[key.Name]
		case 1:
			r.Change(key, func(o client.Object) { o.(*corev1.Node).Spec.Unschedulable = r.Rand.IntN(2) == 0 })
		case 2, 3:
			effect := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}[r.Rand.IntN(2)]
			r.taint(key, []string{"k", corev1.TaintNodeUnreachable}[r.Rand.IntN(2)], effect)
		case 4:
			r.Change(key, func(o client.Object) { o.SetLabels(map[string]string{"pool": []string{"a", "b"}[r.Rand.IntN(2)]}) })
		default:
			down := r.Rand.IntN(2) == 0
			for _, pod := range r.PodsOn(key.Name) {
				r.Node.Frozen[pod.Name] = down
			}
		}
		return
	}
	if n := len(r.gone); n > 0 && r.Chance(0.7) {
		node := r.gone[n-1]
		node.UID, node.ResourceVersion, r.gone = "", "", r.gone[:n-1]
		r.Store(nodeKey(node.Name), node)
		return
	}
	if len(r.simulated.nodes()) < 8 {
		r.addNode(fmt.Sprint("n", r.nodes), map[string]string{"pool": []string{"a", "b"}[r.nodes%2]})
		r.nodes++
	}
}

// toRecords loses something of what the manager wrote down, as a backup does, or a hand.
func (r *rolloutRun) toRecords(n int) {
	if n == 23 {
		r.Change(setKey, func(o client.Object) { o.(*appsv1beta1.DaemonSet).Status = appsv1beta1.DaemonSetStatus{} })
		return
	}
	objects := r.List("ControllerRevision", false)
	if len(objects) == 0 {
		return
	}
	key := simulation.Key{Kind: "ControllerRevision", Name: objects[r.Rand.IntN(len(objects))].GetName()}
	switch r.Rand.IntN(3) {
	case 0:
		r.forgetful = true
		r.Remove(key)
	case 1: // as the DaemonSet of Kubernetes stores it
		r.Change(key, func(o client.Object) {
			stored := o.(*appsv1.ControllerRevision)
			stored.Data.Raw = []byte(strings.Replace(string(stored.Data.Raw), `"spec":{"containers"`,
				`"spec":{"dnsPolicy":"ClusterFirst","restartPolicy":"Always","containers"`, 1))
		})
	default:
		r.Change(key, func(o client.Object) { o.SetOwnerReferences(nil) })
	}
}

// handOver deletes the set without its pods, and makes it anew.
func (r *rolloutRun) handOver() {
	old := r.set()
	r.handedOver = true
	for _, kind := range []string{"Pod", "ControllerRevision"} {
		for _, object := range r.List(kind, false) {
			r.Change(simulation.Key{Kind: kind, Name: object.GetName()}, func(o client.Object) {
				o.SetOwnerReferences(slices.DeleteFunc(slices.Clone(o.GetOwnerReferences()),
					func(owner metav1.OwnerReference) bool { return owner.UID == old.UID }))
			})
		}
	}
	r.Remove(setKey)
	next := makeSet()
	next.Annotations, next.Spec = old.Annotations, *old.Spec.DeepCopy()
	r.Store(setKey, next)
}

// toPod does something to a pod.
func (r *rolloutRun) toPod(pod *corev1.Pod, n int) {
	switch n {
	case 13:
		r.Change(podKey(pod.Name), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
	case 14:
		r.Change(podKey(pod.Name), func(o client.Object) { o.SetOwnerReferences(nil) })
	case 15:
		if !r.calm {
			r.Node.Fail(pod.Name)
			r.unhealthy[pod.Spec.NodeName] = r.Chance(0.7)
		}
	case 16:
		if !r.calm {
			r.EndGracefully(podKey(pod.Name))
		}
	case 17:
		if !r.calm {
			r.handedOver = true // what was given up may come back
			r.Change(podKey(pod.Name), func(o client.Object) {
				o.GetLabels()["app"] = []string{"debug", "agent"}[r.Rand.IntN(2)]
			})
		}
	}
}

// operate lets the user's operator act on a pod if its hook asks for it.
func (r *rolloutRun) operate(pod *corev1.Pod) bool {
	_, on := pod.Labels["hook/delete"]
	if !r.hooked || pod.DeletionTimestamp != nil || !on ||
		pub.LifecycleStateType(pod.Labels[pub.LifecycleState]) != pub.LifecycleStatePreparingDelete {
		return false
	}
	r.Change(podKey(pod.Name), func(o client.Object) { delete(o.GetLabels(), "hook/delete") })
	return true
}

// play lets everybody act in random order.
func (r *rolloutRun) play(steps int) {
	for range steps {
		if r.failure != "" {
			return
		}
		r.Pass(time.Duration(r.Rand.IntN(1500)) * time.Millisecond)
		r.Recover()
		if r.staleLeaders {
			r.RunStaleLeader()
		}
		r.failUnhealthyNodes()
		switch n := r.Rand.IntN(100); {
		case n < 4 || n < 12 && r.former != nil && r.Chance(0.3):
			r.user()
		case n < 40:
			r.Events(1 + r.Rand.IntN(6))
		case n < 72:
			if pods := r.AllPods(); len(pods) > 0 {
				pod := pods[r.Rand.IntN(len(pods))]
				if !r.Chance(0.3) || !r.operate(pod) {
					r.Node.Step(pod.Name)
				}
			}
		case n < 75:
			r.CollectGarbage()
			r.collectPods()
		default:
			if !r.Dead() {
				r.Manage()
			}
		}
	}
}

// failUnhealthyNodes lets all pods fail on nodes that are unhealthy.
func (r *rolloutRun) failUnhealthyNodes() {
	for _, pod := range r.AllPods() {
		switch {
		case !r.unhealthy[pod.Spec.NodeName]:
		case pod.DeletionTimestamp != nil:
			r.Node.Step(pod.Name)
		case pod.Status.Phase != corev1.PodFailed:
			r.Node.Fail(pod.Name)
		}
	}
}

// finish ends the disturbances with a good template and checks what must hold at rest.
func (r *rolloutRun) finish() {
	r.EndStaleLeader()
	clear(r.Node.Frozen)
	clear(r.unhealthy)
	for _, node := range r.simulated.nodes() {
		// A cluster may end with one that takes no new pods. But a lost one holds the rollout that took its pod for as long
		// as it is lost (ADS-121), which a manager that is never started again does not forget.
		lost := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable })
		if !r.calm && node.Name == "n1" && !lost {
			continue
		}
		r.Change(nodeKey(node.Name), func(o client.Object) { o.(*corev1.Node).Spec = corev1.NodeSpec{} })
	}
	r.Edit(func(set *appsv1beta1.DaemonSet) {
		r.image = "agent:3"
		setTemplate(set, r.template())
		set.Spec.UpdateStrategy.Type = appsv1beta1.RollingUpdateDaemonSetStrategyType
		set.Spec.UpdateStrategy.RollingUpdate.Paused = false
	})
	if r.failure != "" {
		return
	}
	r.Others = func() bool {
		return slices.ContainsFunc(r.AllPods(), r.operate) || slices.ContainsFunc(r.AllPods(), r.giveUp)
	}
	if err := r.Settle(1200); err != nil {
		r.fail("%v", err)
		return
	}
	r.check()
	if r.failure == "" {
		r.rests()
	}
}

// giveUp deletes a pod that nobody looks after any more, or that waits for a node which takes none.
func (r *rolloutRun) giveUp(pod *corev1.Pod) bool {
	broken := pod.Spec.Containers[0].Image == "agent:bad" // what partition or selector keep never comes up
	if pod.DeletionTimestamp == nil && (broken || pod.Spec.NodeName == "" && r.schedule(pod) == "" || pod.Labels["app"] != "agent" && metav1.GetControllerOf(pod) == nil) {
		r.EndGracefully(podKey(pod.Name))
		return true
	}
	return false
}

func (r *rolloutRun) check() {
	set := r.set()
	o := options(set)
	all := eligible(set, r.simulated.nodes())
	updated, empty, ready := 0, 0, 0
	selected := 0
	for _, node := range all {
		pods := r.PodsOn(node.Name)
		if len(pods) == 0 && set.Spec.ScaleStrategy != nil && set.Spec.ScaleStrategy.PartitionedScaling {
			empty++
			continue
		}
		if len(pods) != 1 {
			r.fail("%d pods on node %s", len(pods), node.Name)
			return
		}
		pod := pods[0]
		broken := pod.Spec.Containers[0].Image == "agent:bad" // what partition or selector keep may be
		isNew := pod.Labels[pub.ControllerRevisionHash] == set.Status.UpdateRevision
		switch {
		case !r.available(pod) && (isNew || !broken):
			r.fail("pod %s is not available", pod.Name)
		case metav1.GetControllerOf(pod) == nil:
			r.fail("pod %s is nobody's", pod.Name)
		}
		if r.available(pod) {
			ready++
		}
		if isNew {
			updated++
			if got := pod.Spec.Containers[0].Image; got != r.image || r.Node.Runs(pod, "agent").Image != got ||
				pod.Annotations["note"] != r.note {
				r.fail("pod %s has %s, runs %+v, note %q", pod.Name, got, r.Node.Runs(pod, "agent"), pod.Annotations["note"])
			}
		}
	}
	places := 0
	rules := nodes.ForDaemon(&set.Spec.Template.Spec)
	for _, node := range r.simulated.nodes() {
		if n := len(r.PodsOn(node.Name)); n > 0 && !rules.Judge(node).Tolerable {
			r.fail("%d pods on node %s, where none may stay", n, node.Name)
		}
		if has := len(r.PodsOn(node.Name)) > 0; slices.Contains(all, node) || has && !r.kind.Features.PruneIneligible {
			places++
		}
		if o.Selector == nil || matches(o.Selector, node) {
			selected++
		}
	}
	partition := min(resolve(o.Partition, len(all), false), places)
	if want := min(places-partition, selected); updated < want-empty && slices.Equal(all, r.simulated.nodes()) {
		r.fail("%d of %d pods are updated, partition %d, %d selected, %d empty", updated, places, partition, selected, empty)
	}
	status := set.Status
	if int(status.DesiredNumberScheduled) != len(all) || int(status.NumberAvailable) != ready ||
		int(status.UpdatedNumberScheduled) != updated || int(status.CurrentNumberScheduled) != len(all)-empty ||
		status.ObservedGeneration != set.Generation || len(status.Conditions) > 0 {
		r.fail("status %+v does not tell the truth: %d nodes, %d ready, %d updated", status, len(all), ready, updated)
	}
}

// rests checks that nothing is written when nothing happens.
func (r *rolloutRun) rests() {
	asked := r.asked
	if extra := r.WrittenAtRest(); len(extra) > 0 || r.asked != asked {
		r.fail("written at rest: %v, asked %d times", extra, r.asked-asked)
	}
}

// TestSimulatedDaemonSets plays random lives of sets.
func TestSimulatedDaemonSets(t *testing.T) {
	simulationtest.Seeds(t, 2000, func(t *testing.T, seed uint64) {
		r := newRun(seed)
		r.Trace, r.Apart = os.Getenv("TRACE") != "", seed%5 > 1
		r.play(150 + r.Rand.IntN(250))
		if r.finish(); r.failure != "" {
			t.Errorf("the simulated rollout: %s", r.failure)
		}
	})
}

// TestSimulatedStaleLeaders plays lives in which managers go on for a while after others took over from them.
func TestSimulatedStaleLeaders(t *testing.T) {
	simulationtest.Some(t, 500, 4, func(t *testing.T, seed uint64) {
		r := newRun(seed)
		r.Trace, r.Apart, r.staleLeaders, r.calm = os.Getenv("TRACE") != "", seed%5 > 1, true, false
		r.play(150 + r.Rand.IntN(250))
		if r.finish(); r.failure != "" {
			t.Errorf("the simulated rollout: %s", r.failure)
		}
	})
}
