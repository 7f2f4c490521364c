package controller

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/memcluster"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// rolloutRun is one random rollout with the invariants that are watched while it runs.
type rolloutRun struct {
	*simulated
	seed uint64
	// calm: nobody but the manager takes pods away, so that number and availability are the manager's alone.
	calm bool
	// inPlaceable: all template changes so far could be applied in place.
	inPlaceable bool
	scaled      bool
	// broken: an image that cannot be pulled was rolled out.
	broken    bool
	failure   string
	deletions int
	// specified: users asked for pods to be deleted.
	specified bool
	// hooked: pods carry the labels of lifecycle hooks, which an operator takes off and puts back.
	hooked bool
	// reclaimed: the claim templates were changed, so that pods have the claims of the template of their
	// time.
	reclaimed bool
	// redirected: updates were stopped or went another way, so that a pod that stays old may have been
	// resized already.
	redirected bool
	spec       podSpec
	// staleLeaders: managers may go on after others took over from them.
	staleLeaders bool
}

// podSpec is what users change in the template.
type podSpec struct {
	image, agent, env, note string
	// config is read by both containers through their environment; restart is the restart annotation.
	config, restart string
	cpu             int
	// tier is a label that nothing of the pod reads.
	tier int
	// limitsAlone: the template asks for limits without requests.
	limitsAlone bool
	// prioritized: the agent starts, and is updated, before nginx.
	prioritized bool
}

func (s podSpec) template(hooked bool) string {
	literal, barriers, labels := "", [2]string{}, ""
	if s.env != "" {
		literal = fmt.Sprintf(`{"name":"E","value":%q},`, s.env)
	}
	if s.prioritized {
		for i, priority := range []string{"5", "10"} {
			barriers[i] = `{"name":"KRUISE_CONTAINER_BARRIER","valueFrom":{"configMapKeyRef":{"name":"barrier","key":"p_` + priority +
				`"}}},`
		}
	}
	if hooked {
		labels = `,"hook/update":"on","hook/delete":"on"`
	}
	const config = `{"name":"CONFIG","valueFrom":{"fieldRef":{"fieldPath":"metadata.annotations['config']"}}}`
	resources := fmt.Sprintf(`"resources":{"limits":{"cpu":"%d"},"requests":{"cpu":"1"}}`, 2+s.cpu)
	if s.limitsAlone {
		resources = fmt.Sprintf(`"resources":{"limits":{"cpu":"%d","memory":"1Gi"}}`, 2+s.cpu)
	}
	labels += fmt.Sprintf(`,"tier":"%d"`, s.tier)
	return fmt.Sprintf(`{"metadata":{"labels":{"app":"web"%s},"annotations":{"note":%q,"config":%q,"apps.kruise.io/restarted-at":%q}},"spec":{"future":{"x":1},"containers":[`+
		`{"name":"nginx","image":%q,%s,"env":[%s%s%s]},{"name":"agent","image":%q,"env":[%s%s]}]}}`,
		labels, s.note, s.config, s.restart, s.image, resources, literal, barriers[0], config, s.agent, barriers[1], config)
}

func (r *rolloutRun) fail(format string, args ...any) {
	if r.failure == "" {
		r.failure = fmt.Sprintf(format, args...)
	}
}

// limitsSeen are the limits as the manager knows them, from its cache or from the answer of a write.
func (r *rolloutRun) limitsSeen() (rollout.Limits, *appsv1beta1.CloneSet) {
	seen := r.Cached(setKey)
	set, err := reconcile.Find[*appsv1beta1.CloneSet](context.Background(), r.kube.API, client.ObjectKeyFromObject(seen))
	if err != nil {
		r.fail("reading the set: %v", err)
	}
	return limitsOf(set), set
}

// limitsOf resolves the user's numbers by the words of the specification, with nothing of the code that is
// tested (CS-090 to 092).
func limitsOf(set *appsv1beta1.CloneSet) rollout.Limits {
	replicas := int(*set.Spec.Replicas)
	share := func(value *intstr.IntOrString, otherwise string, up bool) int {
		if value != nil && value.Type == intstr.Int {
			return int(value.IntVal)
		}
		if value != nil {
			otherwise = value.StrVal
		}
		percent := 0
		if _, err := fmt.Sscanf(otherwise, "%d%%", &percent); err != nil {
			panic(err)
		}
		if hundredths := percent * replicas; up && hundredths%100 > 0 {
			return hundredths/100 + 1
		}
		return percent * replicas / 100
	}
	if set.Spec.UpdateStrategy.Type == appsv1beta1.OnDeleteCloneSetUpdateStrategyType {
		return rollout.Limits{Replicas: replicas, MaxUnavailable: share(nil, "20%", true)}
	}
	r := set.Spec.UpdateStrategy.RollingUpdate
	limits := rollout.Limits{Replicas: replicas, Partition: share(r.Partition, "0%", true)}
	if r.Partition != nil && r.Partition.Type == intstr.String && r.Partition.StrVal != "100%" && replicas > 1 {
		limits.Partition = min(limits.Partition, replicas-1)
	}
	limits.Partition = min(limits.Partition, replicas)
	if !r.Paused {
		limits.MaxSurge = share(r.MaxSurge, "0%", true)
	}
	limits.MaxUnavailable = share(r.MaxUnavailable, "20%", limits.MaxSurge == 0)
	return limits
}

func (r *rolloutRun) available(pod *corev1.Pod, set *appsv1beta1.CloneSet) bool {
	if !readiness.Active(pod) {
		return false
	}
	available, _ := readiness.Available(pod, set.Spec.MinReadySeconds, r.Now())
	return available
}

// serving tells whether users have the pod: it is ready, for however short a time.
func (r *rolloutRun) serving(pod *corev1.Pod) bool {
	return readiness.Active(pod) && readiness.Ready(pod) && readiness.Settled(pod)
}

// beforeWrite watches every write of the manager against the truth.
func (r *rolloutRun) beforeWrite(w simulation.Write, before, after client.Object) {
	if w.Key.Kind == "PersistentVolumeClaim" && w.Verb == "delete" {
		for _, pod := range r.active() {
			if pod.Labels[pub.CloneSetInstanceID] == before.GetLabels()[pub.CloneSetInstanceID] {
				r.fail("claim %s deleted under pod %s", w.Key.Name, pod.Name)
			}
		}
	}
	if w.Key.Kind != "Pod" {
		return
	}
	limits, set := r.limitsSeen()
	active := len(r.active())
	switch w.Verb {
	case "create":
		if r.staleLeaders { // each creates what it knows to be missing
			return
		}
		if set.Spec.ScaleStrategy.ExcludePreparingDelete { // CS-116 (part)
			for _, pod := range r.active() {
				if pod.Labels[pub.LifecycleState] == string(pub.LifecycleStatePreparingDelete) {
					active--
				}
			}
		}
		if active+1 > limits.Replicas+limits.MaxSurge {
			r.fail("surge: %d pods after creation of %s, replicas %d, maxSurge %d", active+1, w.Key.Name, limits.Replicas, limits.MaxSurge)
		}
		return
	case "delete":
		r.deletions++
		_, specified := before.GetLabels()[pub.SpecifiedDelete]
		// A deletion that waited for a hook with markPodNotReady is final (CS-118 (part)).
		if hook := set.Spec.Lifecycle; hook != nil && hook.PreDelete.MarkPodNotReady &&
			before.GetLabels()[pub.LifecycleState] == string(pub.LifecycleStatePreparingDelete) {
			specified = true
		}
		if !specified && !r.specified && r.calm && active <= limits.Replicas {
			r.fail("pod %s deleted without reason: %d pods, replicas %d", w.Key.Name, active, limits.Replicas)
		}
	}
	pod := before.(*corev1.Pod)
	if afterPod, ok := after.(*corev1.Pod); ok {
		if !r.staleLeaders {
			r.partitionHolds(pod, afterPod, limits, set)
		}
		for i := range pod.Spec.Containers {
			if pod.Spec.Containers[i].Image != afterPod.Spec.Containers[i].Image && readiness.Ready(pod) {
				r.fail("image of pod %s changed while it was in service", pod.Name)
			}
		}
		if r.available(afterPod, set) {
			return
		}
	}
	if w.Verb == "delete" && r.calm && r.serving(pod) {
		serving := 0
		for _, other := range r.active() {
			if r.serving(other) {
				serving++
			}
		}
		if serving-1 < limits.Replicas-limits.MaxUnavailable {
			r.fail("deletion of %s leaves %d ready of %d with maxUnavailable %d", pod.Name, serving-1, limits.Replicas,
				limits.MaxUnavailable)
		}
	}
	if !r.calm || !r.available(pod, set) {
		return
	}
	available := 0
	for _, other := range r.active() {
		if r.available(other, set) {
			available++
		}
	}
	if available-1 < limits.Replicas-limits.MaxUnavailable {
		r.fail("availability: %s of %s leaves %d available of %d with maxUnavailable %d", w.Verb, pod.Name, available-1, limits.Replicas,
			limits.MaxUnavailable)
	}
}

// newest is the revision of the highest number, which is the update revision of the plan that is being
// carried out.
func (r *rolloutRun) newest() string {
	name, number := "", int64(0)
	for _, object := range r.List("ControllerRevision", false) {
		if stored := object.(*appsv1.ControllerRevision); stored.Revision > number {
			name, number = stored.Name, stored.Revision
		}
	}
	return name
}

// partitionHolds counts the pods that were moved already. Those that will go have successors, and do not
// count (CS-120 (part)).
func (r *rolloutRun) partitionHolds(before, after *corev1.Pod, limits rollout.Limits, set *appsv1beta1.CloneSet) {
	to := after.Labels[pub.ControllerRevisionHash]
	if before.Labels[pub.ControllerRevisionHash] == to || r.kind.Features.PartitionRollback && !revision.SameLabel(to, r.newest()) {
		return
	}
	moved := 1
	for _, pod := range r.active() {
		_, goes := pod.Labels[pub.SpecifiedDelete]
		goes = goes || slices.Contains(set.Spec.ScaleStrategy.PodsToDelete, pod.Name) ||
			pod.Labels[pub.LifecycleState] == string(pub.LifecycleStatePreparingDelete)
		if pod.Name != before.Name && pod.Labels[pub.ControllerRevisionHash] == to && !goes {
			moved++
		}
	}
	allowed := limits.Replicas - limits.Partition
	if limits.MaxUnavailable == 0 { // surge pods are of the new revision, too (CS-102 (part))
		allowed += limits.MaxSurge
	}
	if moved > allowed {
		r.fail("partition: %d pods at %s, replicas %d, partition %d", moved, to, limits.Replicas, limits.Partition)
	}
}

// kubelet steps a random pod; a container that is stopped in service means that its update was called
// complete too early.
func (r *rolloutRun) kubelet(name string) {
	before, _ := r.Get(podKey(name)).(*corev1.Pod)
	r.Node.Step(name)
	after, _ := r.Get(podKey(name)).(*corev1.Pod)
	if before == nil || after == nil || before.DeletionTimestamp != nil {
		return
	}
	for i, status := range before.Status.ContainerStatuses {
		if !status.Ready || after.Status.ContainerStatuses[i].Ready {
			continue
		}
		held := readiness.Condition(before, pub.InPlaceUpdateReady)
		if held == nil || held.Status != corev1.ConditionFalse {
			r.fail("pod %s was admitted before its container %s was replaced; %s", name, status.Name,
				before.Annotations[pub.InPlaceUpdateState])
		}
	}
}

// operator does what the user's operator does for lifecycle hooks: it lets pods go, and takes them back.
func (r *rolloutRun) operator(name string) {
	r.Change(podKey(name), func(o client.Object) {
		labels := o.GetLabels()
		switch pub.LifecycleStateType(labels[pub.LifecycleState]) {
		case pub.LifecycleStatePreparingUpdate:
			delete(labels, "hook/update")
		case pub.LifecycleStatePreparingDelete:
			delete(labels, "hook/delete")
		default:
			labels["hook/update"], labels["hook/delete"] = "on", "on"
		}
	})
}

// operate lets the operator act on a pod if there is something to do.
func (r *rolloutRun) operate(pod *corev1.Pod) bool {
	if !r.hooked || !readiness.Active(pod) {
		return false
	}
	wanted := map[pub.LifecycleStateType]string{pub.LifecycleStatePreparingUpdate: "hook/update",
		pub.LifecycleStatePreparingDelete: "hook/delete"}
	switch state := pub.LifecycleStateType(pod.Labels[pub.LifecycleState]); state {
	case pub.LifecycleStatePreparingUpdate, pub.LifecycleStatePreparingDelete:
		if pod.Labels[wanted[state]] == "" {
			return false
		}
	case pub.LifecycleStateUpdating:
		return false
	default:
		if pod.Labels["hook/update"] != "" && pod.Labels["hook/delete"] != "" {
			return false
		}
	}
	r.operator(pod.Name)
	return true
}

func (r *rolloutRun) template() string { return r.spec.template(r.hooked) }

func hooks(mark bool) *pub.Lifecycle {
	hook := func(label string) *pub.LifecycleHook {
		return &pub.LifecycleHook{LabelsHandler: map[string]string{label: "on"}, MarkPodNotReady: mark}
	}
	return &pub.Lifecycle{InPlaceUpdate: hook("hook/update"), PreDelete: hook("hook/delete"), PreNormal: hook("hook/update")}
}

// newRun draws a set and a cluster from the seed.
func newRun(seed uint64) *rolloutRun {
	r := &rolloutRun{seed: seed, inPlaceable: true}
	draw := simulation.New(seed).Rand
	set := clonesettest.Set(int32(draw.IntN(8)))
	strategy := set.Spec.UpdateStrategy.RollingUpdate
	policies := []appsv1beta1.CloneSetPodUpdatePolicy{appsv1beta1.ReCreateCloneSetPodUpdatePolicy,
		appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy, appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy, appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy}
	strategy.PodUpdatePolicy = policies[draw.IntN(len(policies))]
	strategy.MaxUnavailable = new(intstr.FromInt32(int32(1 + draw.IntN(3))))
	if draw.IntN(3) == 0 {
		strategy.MaxUnavailable = new(intstr.FromString([]string{"1%", "20%", "50%", "100%"}[draw.IntN(4)]))
	}
	if strategy.PodUpdatePolicy != appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy && draw.IntN(3) == 0 {
		strategy.MaxSurge = new(intstr.FromInt32(int32(1 + draw.IntN(2))))
		if draw.IntN(2) == 0 {
			strategy.MaxUnavailable = new(intstr.FromInt32(0))
		}
	}
	if draw.IntN(4) == 0 {
		strategy.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{GracePeriodSeconds: int32(1 + draw.IntN(10))}
	}
	if draw.IntN(4) == 0 {
		set.Spec.MinReadySeconds = int32(1 + draw.IntN(5))
	}
	if draw.IntN(5) == 0 {
		set.Spec.ScaleStrategy.MaxUnavailable = new(intstr.FromInt32(int32(1 + draw.IntN(3))))
	}
	if draw.IntN(5) == 0 {
		deadline := int32(60)
		set.Spec.ProgressDeadlineSeconds = &deadline
	}
	if draw.IntN(3) == 0 {
		set.Spec.VolumeClaimTemplates = template.VolumeClaimTemplates{clonesettest.ClaimTemplate("data", "1Gi")}
		set.Spec.ScaleStrategy.EnablePVCReuse = draw.IntN(2) == 0
	}
	r.spec = podSpec{image: "nginx:1", agent: "agent:1", note: "a", config: "a", prioritized: draw.IntN(3) == 0,
		limitsAlone: draw.IntN(3) == 0}
	if r.hooked = draw.IntN(4) == 0; r.hooked {
		set.Spec.Lifecycle = hooks(draw.IntN(2) == 0)
	}
	set.Spec.ScaleStrategy.ExcludePreparingDelete = draw.IntN(4) == 0
	clonesettest.SetTemplate(set, r.template())
	r.calm = draw.IntN(2) == 0
	r.simulated = simulate(seed, set, cloneset.Features{RecreateOnClaimChange: true, PreparingUpdateAsUpdate: draw.IntN(5) > 0,
		ShortHash:         draw.IntN(5) == 0,
		PartitionRollback: draw.IntN(4) == 0, InPlace: inplace.Options{EnvFromMetadata: true,
			Resize: draw.IntN(4) > 0}, DeferredResize: time.Minute})
	r.Node.Daemon, r.Node.Unfit = draw.IntN(5) > 0, map[string]bool{}
	r.Node.Digests = map[string]string{"nginx:1": "a", "nginx:2": "b", "nginx:2-same": "b", "nginx:3": "c", "nginx:bad": ""}
	r.BeforeWrite = r.beforeWrite
	if draw.IntN(3) > 0 {
		r.Faults = simulation.Faults{Refuse: 0.03, Lose: 0.03, Die: 0.02}
	}
	return r
}

// user does something that users do.
func (r *rolloutRun) user() {
	only := r.set().Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy == appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy
	retemplate := func(set *appsv1beta1.CloneSet) { clonesettest.SetTemplate(set, r.template()) }
	switch r.Rand.IntN(18) {
	case 15, 16, 17:
		r.changeMidRollout()
	case 10:
		if only && !r.Node.Daemon {
			return
		}
		r.spec.config = strconv.Itoa(r.Rand.IntN(3))
		r.inPlaceable = r.inPlaceable && r.Node.Daemon
		r.Edit(retemplate)
	case 11:
		if only && !r.kind.Features.InPlace.Resize {
			return
		}
		r.spec.cpu = r.Rand.IntN(3)
		r.inPlaceable = r.inPlaceable && r.kind.Features.InPlace.Resize
		if pods := r.active(); r.Chance(0.2) && len(pods) > 0 && !r.calm {
			r.Node.Unfit[string(pods[r.Rand.IntN(len(pods))].UID)] = !only
		}
		r.Edit(retemplate)
	case 12:
		r.spec.agent = []string{"agent:1", "agent:2"}[r.Rand.IntN(2)]
		if r.Chance(0.3) && (!only || r.Node.Daemon) {
			r.spec.restart = strconv.Itoa(r.Rand.IntN(3))
			r.inPlaceable = r.inPlaceable && r.Node.Daemon
		}
		r.Edit(retemplate)
	case 13:
		r.deleteSome()
	case 14:
		if r.hooked {
			lifecycle := hooks(r.Chance(0.5))
			if r.Chance(0.3) {
				lifecycle = nil
			}
			r.Edit(func(set *appsv1beta1.CloneSet) { set.Spec.Lifecycle = lifecycle })
		}
	case 0, 1, 2:
		r.spec.image = []string{"nginx:1", "nginx:2", "nginx:2-same", "nginx:3", "nginx:bad"}[r.Rand.IntN(5)]
		r.broken = r.broken || r.spec.image == "nginx:bad"
		r.Edit(retemplate)
	case 3:
		if r.Chance(0.5) {
			r.spec.tier = r.Rand.IntN(3)
		} else {
			r.spec.note = strconv.Itoa(r.Rand.IntN(3))
		}
		r.Edit(retemplate)
	case 4:
		if !only {
			r.spec.env = strconv.Itoa(r.Rand.IntN(3))
			r.inPlaceable = false
			r.Edit(retemplate)
		}
	case 5:
		r.scaled = true
		replicas := int32(r.Rand.IntN(8))
		r.Edit(func(set *appsv1beta1.CloneSet) { set.Spec.Replicas = &replicas })
	case 6:
		partition := new(intstr.FromInt32(int32(r.Rand.IntN(4))))
		if r.Chance(0.3) {
			partition = new(intstr.FromString("40%"))
		}
		r.Edit(clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.Partition = partition }))
	case 7:
		r.Edit(clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.Paused = !s.Paused }))
	case 8, 9:
		pods := r.active()
		if r.calm || len(pods) == 0 {
			return
		}
		pod := pods[r.Rand.IntN(len(pods))]
		if r.Chance(0.5) {
			r.EndGracefully(podKey(pod.Name))
		} else {
			r.Node.Crash(pod.Name)
		}
	}
}

// deleteSome asks for the deletion of a pod, by label or by name.
func (r *rolloutRun) deleteSome() {
	pods := r.active()
	if len(pods) == 0 {
		return
	}
	r.specified = true
	name := pods[r.Rand.IntN(len(pods))].Name
	if r.Chance(0.5) {
		r.Change(podKey(name), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "" })
		return
	}
	r.Edit(func(set *appsv1beta1.CloneSet) {
		set.Spec.ScaleStrategy.PodsToDelete = append(set.Spec.ScaleStrategy.PodsToDelete, name)
	})
}

// play lets everybody act in random order.
func (r *rolloutRun) play(steps int) {
	for range steps {
		if r.failure != "" {
			return
		}
		r.Pass(time.Duration(r.Rand.IntN(1500)) * time.Millisecond)
		if r.Dead() && r.Chance(0.3) {
			r.Start()
		}
		if r.staleLeaders {
			r.RunStaleLeader()
		}
		switch n := r.Rand.IntN(100); {
		case n < 4:
			r.user()
		case n < 40:
			r.Events(1 + r.Rand.IntN(6))
		case n < 70:
			if pods := r.AllPods(); len(pods) > 0 {
				pod := pods[r.Rand.IntN(len(pods))]
				if !r.Chance(0.3) || !r.operate(pod) {
					r.kubelet(pod.Name)
				}
			}
		default:
			if !r.Dead() {
				r.Manage()
			}
		}
	}
}

// finish ends the disturbances with a good template and checks what must hold at rest.
func (r *rolloutRun) finish() {
	r.EndStaleLeader()
	r.BeforeWrite = r.beforeWrite
	r.Edit(func(set *appsv1beta1.CloneSet) {
		r.spec.image = "nginx:3"
		clonesettest.SetTemplate(set, r.template())
		set.Spec.UpdateStrategy.Type = appsv1beta1.RollingUpdateCloneSetUpdateStrategyType
		set.Spec.UpdateStrategy.RollingUpdate.Paused = false
		if r.broken { // old pods that never become ready use up what may be unavailable, for ever
			set.Spec.UpdateStrategy.RollingUpdate.Partition = nil
		}
	})
	if r.failure != "" {
		return
	}
	r.Others = func() bool { return slices.ContainsFunc(r.active(), r.operate) }
	if err := r.Settle(600); err != nil {
		r.fail("%v", err)
		return
	}
	set := r.set()
	limits, _ := r.limitsSeen()
	updated := 0
	for _, pod := range r.AllPods() {
		if !readiness.Active(pod) {
			r.fail("pod %s is left terminating", pod.Name)
			continue
		}
		stored, _ := r.revisionOf(pod)
		if stored == nil {
			r.fail("the revision %s of pod %s is not stored", pod.Labels[pub.ControllerRevisionHash], pod.Name)
			continue
		}
		r.runsWhatItShould(pod, stored)
		if revision.SameLabel(pod.Labels[pub.ControllerRevisionHash], set.Status.UpdateRevision) {
			updated++
			if !readiness.Ready(pod) {
				r.fail("pod %s is not ready at the end: %s %+v", pod.Name, pod.Annotations[pub.InPlaceUpdateState],
					pod.Status.ContainerStatuses)
			}
		}
		if pod.Labels["tier"] != stored.Labels["tier"] {
			r.fail("pod %s has label %q, its revision %q", pod.Name, pod.Labels["tier"], stored.Labels["tier"])
		}
		if pod.Annotations["note"] != stored.Annotations["note"] {
			r.fail("pod %s has annotation %q, its revision %q", pod.Name, pod.Annotations["note"], stored.Annotations["note"])
		}
		for i := range set.Spec.VolumeClaimTemplates {
			if !r.reclaimed && r.Get(claimKey(set.Spec.VolumeClaimTemplates[i].Name+"-"+pod.Name)) == nil {
				r.fail("pod %s has no claim", pod.Name)
			}
		}
	}
	if n := len(r.active()); n != limits.Replicas {
		r.fail("%d pods at the end, replicas %d", n, limits.Replicas)
	}
	if updated < limits.Replicas-limits.Partition {
		r.fail("%d pods updated at the end, %d expected:\n%s", updated, limits.Replicas-limits.Partition, r.describe())
	}
	if !set.Spec.ScaleStrategy.EnablePVCReuse {
		for _, claim := range r.List("PersistentVolumeClaim", false) {
			if pod := "web-" + claim.GetLabels()[pub.CloneSetInstanceID]; r.Get(podKey(pod)) == nil {
				r.fail("claim %s of %v is left without a pod and without reuse", claim.GetName(), metav1.GetControllerOfNoCopy(claim))
			}
		}
	}
	if r.calm && r.inPlaceable && !r.scaled && !r.specified && limits.MaxSurge == 0 && r.deletions > 0 &&
		set.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy != appsv1beta1.ReCreateCloneSetPodUpdatePolicy {
		r.fail("%d pods deleted although all changes could be applied in place", r.deletions)
	}
	if int(set.Status.UpdatedReplicas) != updated || int(set.Status.Replicas) != limits.Replicas ||
		set.Status.ObservedGeneration != set.Generation {
		r.fail("status %+v does not tell the truth: %d updated", set.Status, updated)
	}
	for _, c := range set.Status.Conditions {
		if c.Type == appsv1beta1.CloneSetConditionFailedScale || c.Type == appsv1beta1.CloneSetConditionFailedUpdate && r.spec.env == "" {
			r.fail("condition %s at the end: %s", c.Type, c.Message)
		}
	}
	r.rests()
}

// runsWhatItShould compares what the pod's containers really run with the revision that it carries.
func (r *rolloutRun) runsWhatItShould(pod *corev1.Pod, stored *corev1.PodTemplateSpec) {
	updated := revision.SameLabel(pod.Labels[pub.ControllerRevisionHash], r.set().Status.UpdateRevision)
	for i, wanted := range stored.Spec.Containers {
		container, runs := &pod.Spec.Containers[i], r.Node.Runs(pod, wanted.Name)
		if container.Image != wanted.Image {
			r.fail("pod %s carries %s and has image %s instead of %s", pod.Name, pod.Labels[pub.ControllerRevisionHash], container.Image,
				wanted.Image)
		}
		if (updated || !r.redirected) && wanted.Resources.Limits.Cpu().Cmp(*container.Resources.Limits.Cpu()) != 0 {
			r.fail("container %s of pod %s has %s cpu instead of %s", wanted.Name, pod.Name, container.Resources.Limits.Cpu(),
				wanted.Resources.Limits.Cpu())
		}
		if !updated {
			continue // it may have been broken when its turn was over
		}
		if runs.Image != wanted.Image || runs.Env != memcluster.Environment(pod, container) ||
			runs.Restart != stored.Annotations[pub.RestartedAt] && r.inPlaceable {
			r.fail("container %s of pod %s runs %+v: %s %s %s", wanted.Name, pod.Name, runs, wanted.Image, pod.Annotations["config"],
				stored.Annotations[pub.RestartedAt])
		}
	}
}

func (r *rolloutRun) revisionOf(pod *corev1.Pod) (*corev1.PodTemplateSpec, error) {
	for _, object := range r.List("ControllerRevision", false) {
		stored := object.(*appsv1.ControllerRevision)
		if !revision.SameLabel(stored.Name, pod.Labels[pub.ControllerRevisionHash]) {
			continue
		}
		raw, err := revision.Template(stored.Data.Raw)
		if err != nil {
			return nil, err
		}
		var spec template.PodTemplate
		return &spec.PodTemplateSpec, spec.UnmarshalJSON(raw)
	}
	return nil, nil
}

// rests checks that nothing is written when nothing happens: the plan for an unchanged world is empty.
func (r *rolloutRun) rests() {
	if extra := r.WrittenAtRest(); len(extra) > 0 {
		r.fail("written at rest: %v", extra)
	}
}

// TestSimulatedRollouts plays random rollouts.
func TestSimulatedRollouts(t *testing.T) {
	simulationtest.Seeds(t, 2000, func(t *testing.T, seed uint64) {
		r := newRun(seed)
		r.Trace, r.Apart = os.Getenv("TRACE") != "", seed%5 > 1
		r.play(150 + r.Rand.IntN(250))
		if r.finish(); r.failure != "" {
			t.Errorf("the simulated rollout: %s", r.failure)
		}
	})
}

// TestSimulatedStaleLeaders plays rollouts in which managers go on for a while after others took over from
// them. Two that count alike may take more pods together than the budget allows; each write is of exactly the
// version that it was decided for, so that nothing else goes wrong.
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
