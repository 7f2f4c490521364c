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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// rolloutRun is one random life of a set. The rules by which it judges every write share nothing with the
// planner.
type rolloutRun struct {
	*simulated
	seed    uint64
	failure string
	image   string
	note    string
	hooked  bool
	// calm: nobody but the manager takes pods out of service, and kubelets bring all of them up.
	calm bool
	// staleLeaders: managers overlap. deletesClaims: PVCs may go, because the retention policy was one that
	// deletes at some time. forgetful: a user deleted revisions.
	staleLeaders, deletesClaims, forgetful bool
	// claims are all PVCs that ever existed, by name.
	claims map[string]bool
	// former is the spec before a user's last change; nil if that was taken back.
	former *appsv1beta1.StatefulSetSpec
}

func (r *rolloutRun) fail(format string, args ...any) {
	if r.failure == "" {
		r.failure = fmt.Sprintf("SEED=%d at %s: ", r.seed, r.Now().Format("15:04:05")) + fmt.Sprintf(format, args...) + r.describe()
	}
}

// seen is the set as the manager sees it: the answers of its own writes may be newer than the cache.
func (r *rolloutRun) seen() *appsv1beta1.StatefulSet {
	set, err := reconcile.Find[*appsv1beta1.StatefulSet](context.Background(), r.kube.API, client.ObjectKeyFromObject(r.set()))
	if err != nil || set == nil {
		panic(err)
	}
	return set
}

// slotsOf counts the slots of a set one by one.
func slotsOf(set *appsv1beta1.StatefulSet) []int {
	reserved := map[int]bool{}
	for _, entry := range set.Spec.ReserveOrdinals {
		from, to, found := strings.Cut(entry.String(), "-")
		first, _ := strconv.Atoi(from)
		last := first
		if found {
			last, _ = strconv.Atoi(to)
		}
		for i := first; i <= last; i++ {
			reserved[i] = true
		}
	}
	start := 0
	if set.Spec.Ordinals != nil {
		start = int(set.Spec.Ordinals.Start)
	}
	var slots []int
	for i := start; len(slots) < int(*set.Spec.Replicas); i++ {
		if !reserved[i] {
			slots = append(slots, i)
		}
	}
	return slots
}

func ordinal(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return -1
	}
	return n
}

func isOrdered(set *appsv1beta1.StatefulSet) bool {
	return set.Spec.PodManagementPolicy != appsv1beta1.ParallelPodManagement
}

func onDelete(set *appsv1beta1.StatefulSet) bool {
	return set.Spec.UpdateStrategy.Type == appsv1beta1.OnDeleteStatefulSetStrategyType
}

// limitOf is how many slots may be unavailable.
func limitOf(set *appsv1beta1.StatefulSet) int {
	r := set.Spec.UpdateStrategy.RollingUpdate
	if isOrdered(set) || onDelete(set) || r == nil || r.MaxUnavailable == nil {
		return 1
	}
	n := int(r.MaxUnavailable.IntVal)
	if percent, ok := strings.CutSuffix(r.MaxUnavailable.StrVal, "%"); ok {
		whole, _ := strconv.Atoi(percent)
		n = whole * int(*set.Spec.Replicas) / 100
	}
	return max(n, 1)
}

// available is what users have of a pod: it is ready, runs, and its lifecycle lets it serve.
func (r *rolloutRun) available(pod *corev1.Pod) bool {
	if pod == nil || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return false
	}
	if state := pod.Labels[pub.LifecycleState]; state != "" && state != string(pub.LifecycleStateNormal) {
		return false
	}
	ready, minReady := false, time.Duration(0)
	set := r.seen() // what a user has just changed is no matter of the manager's yet
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.MinReadySeconds != nil && !onDelete(set) {
		minReady = time.Duration(*rolling.MinReadySeconds) * time.Second
	}
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
	set := r.seen()
	switch w.Key.Kind {
	case "PersistentVolumeClaim":
		if w.Verb == "create" {
			r.claims[w.Key.Name] = true
		}
		if w.Verb == "delete" {
			r.fail("claim %s is deleted", w.Key.Name)
		} else if before == nil || !slices.Equal(before.GetOwnerReferences(), after.GetOwnerReferences()) {
			if before != nil { // the set is looked at before
				set = r.set()
			}
			r.owners(set, w.Key.Name, after)
		}
	case "Pod":
		slots := slotsOf(set)
		switch w.Verb {
		case "create":
			r.creation(set, slots, w.Key.Name, after)
		default:
			r.disruption(set, slots, w, before.(*corev1.Pod), after)
		}
	}
}

func (r *rolloutRun) creation(set *appsv1beta1.StatefulSet, slots []int, name string, after client.Object) {
	if r.staleLeaders || set.UID != r.set().UID { // what a set gets that is gone goes with it
		return
	}
	rank := slices.Index(slots, ordinal(name))
	if rank < 0 {
		r.fail("pod %s is created, and is no slot of %v", name, slots)
		return
	}
	if isOrdered(set) && r.calm {
		for _, lower := range slots[:rank] {
			if pod := r.Pod(fmt.Sprintf("web-%d", lower)); !r.available(pod) {
				r.fail("pod %s is created, and web-%d is not available", name, lower)
			}
		}
	}
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.UnorderedUpdate != nil || onDelete(set) || r.forgetful {
		return
	}
	partition := 0
	if rolling.Partition != nil {
		partition = int(*rolling.Partition)
	}
	if newest := r.newest(); rank >= partition && after.GetLabels()[pub.ControllerRevisionHash] != newest {
		r.fail("pod %s of rank %d is created at %s and not at %s, partition %d", name, rank, after.GetLabels()[pub.ControllerRevisionHash],
			newest, partition)
	}
}

// newest is the revision of the highest number that is not somebody else's. A set that was there before its
// former one gave up the revisions gives a number twice; then the younger one counts.
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
func (r *rolloutRun) disruption(set *appsv1beta1.StatefulSet, slots []int, w simulation.Write, before *corev1.Pod, after client.Object) {
	name := before.Name
	slot := slices.Contains(slots, ordinal(name))
	pod, stays := after.(*corev1.Pod)
	stays = stays && w.Verb != "delete"
	if stays {
		for i := range before.Spec.Containers {
			if before.Spec.Containers[i].Image != pod.Spec.Containers[i].Image && r.available(before) && gated(before) {
				r.fail("image of pod %s changed while it was in service", name)
			}
		}
		if runs, image := r.Node.Runs(before, "nginx").Image, before.Spec.Containers[0].Image; inService(pod) && !inService(before) &&
			runs != image && before.Status.Phase == corev1.PodRunning {
			r.fail("pod %s comes into service and runs %q, not %s", name, runs, image)
		}
		r.keepsPartition(set, slots, before, pod)
	}
	if w.Verb == "delete" && slices.Contains(slotsOf(r.set()), ordinal(name)) && slot {
		r.keepsClaims(before)
	}
	if r.staleLeaders || !r.calm || !r.available(before) || stays && r.available(pod) {
		return
	}
	down, all := 0, 0
	for _, ordinal := range slots {
		if all++; !r.available(r.Pod(fmt.Sprintf("web-%d", ordinal))) {
			down++
		}
	}
	switch {
	case slot && down+1 > limitOf(set):
		r.fail("%s of %s leaves %d of %d slots down, and %d may be", w.Verb, name, down+1, all, limitOf(set))
	case !slot && isOrdered(set) && down > 0:
		r.fail("pod %s is condemned and goes, and %d slots are down", name, down)
	case !slot && isOrdered(set):
		for _, other := range r.AllPods() {
			if n := ordinal(other.Name); n > ordinal(name) && !slices.Contains(slots, n) && controllerOf(other) == set.UID {
				r.fail("pod %s is condemned and goes before %s", name, other.Name)
			}
		}
	}
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

// keepsClaims: no PVC goes with a pod that is made anew.
func (r *rolloutRun) keepsClaims(pod *corev1.Pod) {
	for _, claim := range r.List("PersistentVolumeClaim", false) {
		for _, owner := range claim.GetOwnerReferences() {
			if owner.UID == pod.UID && claim.GetDeletionTimestamp() == nil {
				r.fail("pod %s of a slot is deleted, and claim %s goes with it", pod.Name, claim.GetName())
			}
		}
	}
}

func gated(pod *corev1.Pod) bool {
	return slices.Contains(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: pub.InPlaceUpdateReady})
}

// keepsPartition: what partition keeps is not moved in place.
func (r *rolloutRun) keepsPartition(set *appsv1beta1.StatefulSet, slots []int, before, after *corev1.Pod) {
	to := after.Labels[pub.ControllerRevisionHash]
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	if before.Labels[pub.ControllerRevisionHash] == to || r.staleLeaders {
		return
	}
	switch {
	case onDelete(set):
		r.fail("pod %s is updated under OnDelete", before.Name)
	case rolling == nil || rolling.Partition == nil:
	case rolling.UnorderedUpdate == nil:
		if rank := slices.Index(slots, ordinal(before.Name)); rank < int(*rolling.Partition) {
			r.fail("pod %s of rank %d is updated, partition %d", before.Name, rank, *rolling.Partition)
		}
	default:
		moved := 1
		for _, n := range slots {
			if pod := r.Pod(fmt.Sprintf("web-%d", n)); pod != nil && pod.Name != before.Name && pod.DeletionTimestamp == nil &&
				pod.Labels[pub.ControllerRevisionHash] == to {
				moved++
			}
		}
		if moved > len(slots)-int(*rolling.Partition) {
			r.fail("partition: %d pods at %s of %d, partition %d", moved, to, len(slots), *rolling.Partition)
		}
	}
}

// owners compares the owners of a PVC with the retention policy.
func (r *rolloutRun) owners(set *appsv1beta1.StatefulSet, name string, claim client.Object) {
	slot := slices.Contains(slotsOf(set), ordinal(name))
	policy := set.Spec.PersistentVolumeClaimRetentionPolicy
	for _, owner := range claim.GetOwnerReferences() {
		switch {
		case owner.Kind == "Pod" && (slot || policy == nil || policy.WhenScaled != appsv1beta1.DeleteStatefulSetClaims):
			r.fail("claim %s goes with pod %s, slot %t, policy %+v", name, owner.Name, slot, policy)
		case owner.Kind == "StatefulSet" && (policy == nil || policy.WhenDeleted != appsv1beta1.DeleteStatefulSetClaims):
			r.fail("claim %s goes with the set, policy %+v", name, policy)
		}
	}
}

func (r *rolloutRun) template() string {
	labels := `"app":"web"`
	if r.hooked {
		labels += `,"hook/update":"on","hook/delete":"on"`
	}
	return fmt.Sprintf(`{"metadata":{"labels":{%s},"annotations":{"note":%q}},"spec":{"containers":[{"name":"nginx","image":%q}]}}`, labels,
		r.note, r.image)
}

var policies = []appsv1beta1.StatefulSetPodUpdatePolicy{"", appsv1beta1.ReCreateStatefulSetPodUpdatePolicy,
	appsv1beta1.InPlaceIfPossibleStatefulSetPodUpdatePolicy, appsv1beta1.InPlaceIfPossibleStatefulSetPodUpdatePolicy,
	appsv1beta1.InPlaceOnlyStatefulSetPodUpdatePolicy}

// newRun draws a set and a cluster from the seed.
func newRun(seed uint64) *rolloutRun {
	r := &rolloutRun{seed: seed, image: "nginx:1", note: "a", claims: map[string]bool{}}
	draw := simulation.New(seed).Rand
	set := makeSet(int32(draw.IntN(6)))
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	rolling.PodUpdatePolicy = policies[draw.IntN(len(policies))]
	if draw.IntN(2) == 0 {
		set.Spec.PodManagementPolicy = appsv1beta1.ParallelPodManagement
		if draw.IntN(2) == 0 {
			rolling.MaxUnavailable = number(1 + draw.IntN(3))
		} else if draw.IntN(2) == 0 {
			percent := intstr.FromString([]string{"1%", "40%", "100%"}[draw.IntN(3)])
			rolling.MaxUnavailable = &percent
		}
		if draw.IntN(3) == 0 {
			set.Spec.ScaleStrategy = &appsv1beta1.StatefulSetScaleStrategy{MaxUnavailable: number(1 + draw.IntN(3))}
		}
		if draw.IntN(3) == 0 {
			rolling.UnorderedUpdate = &appsv1beta1.StatefulSetUnorderedUpdate{}
		}
	}
	if draw.IntN(4) == 0 {
		seconds := int32(1 + draw.IntN(5))
		rolling.MinReadySeconds = &seconds
	}
	if draw.IntN(4) == 0 {
		rolling.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{GracePeriodSeconds: int32(1 + draw.IntN(10))}
	}
	if draw.IntN(2) == 0 {
		setClaims(set, []string{"data"}, "1Gi")
		set.Spec.PersistentVolumeClaimRetentionPolicy = r.retention(draw.IntN(5))
		if draw.IntN(2) == 0 {
			set.Spec.VolumeClaimUpdateStrategy.Type = appsv1beta1.OnPodRollingUpdateStatefulSetClaimUpdate
		}
	}
	if r.hooked = draw.IntN(4) == 0; r.hooked {
		hook := func(label string) *pub.LifecycleHook {
			return &pub.LifecycleHook{LabelsHandler: map[string]string{label: "on"}, MarkPodNotReady: draw.IntN(2) == 0}
		}
		set.Spec.Lifecycle = &pub.Lifecycle{InPlaceUpdate: hook("hook/update"), PreDelete: hook("hook/delete")}
		if draw.IntN(2) == 0 {
			set.Spec.Lifecycle.PreNormal = hook("hook/update")
		}
	}
	setTemplate(set, r.template())
	r.calm = draw.IntN(2) == 0
	r.simulated = simulate(seed, set, statefulset.Features{StartOrdinal: true, PodIndexLabel: draw.IntN(2) == 0, DeleteClaims: true,
		ResizeClaims: true, InPlace: inplace.Options{EnvFromMetadata: true, Resize: true}, DeferredResize: time.Minute})
	r.Node.Digests = map[string]string{"nginx:1": "a", "nginx:2": "b", "nginx:3": "c", "nginx:bad": ""}
	r.Node.Daemon = true
	r.BeforeWrite = r.beforeWrite
	if draw.IntN(3) > 0 {
		r.Faults = simulation.Faults{Refuse: 0.03, Lose: 0.03, Die: 0.02}
	}
	return r
}

// retention is one of the retention policies.
func (r *rolloutRun) retention(n int) *appsv1beta1.StatefulSetClaimRetentionPolicy {
	const keep, remove = appsv1beta1.RetainStatefulSetClaims, appsv1beta1.DeleteStatefulSetClaims
	policy := []*appsv1beta1.StatefulSetClaimRetentionPolicy{nil, {WhenDeleted: keep, WhenScaled: keep},
		{WhenDeleted: remove, WhenScaled: keep}, {WhenDeleted: keep, WhenScaled: remove}, {WhenDeleted: remove, WhenScaled: remove}}[n]
	if policy != nil && policy.WhenScaled == remove {
		r.deletesClaims = true
	}
	return policy
}

// user does something that users do.
func (r *rolloutRun) user() {
	n := r.Rand.IntN(25)
	switch pods := r.AllPods(); {
	case n == 24:
		r.handOver()
		return
	case n > 19:
		r.toRecords(n)
		return
	case n > 12 && len(pods) > 0:
		r.toPod(pods[r.Rand.IntN(len(pods))], n)
		return
	}
	if r.former != nil && r.Chance(0.3) { // what was just begun is to be undone
		r.Edit(func(set *appsv1beta1.StatefulSet) { set.Spec = *r.former })
		r.former = nil
		return
	}
	r.former = r.set().Spec.DeepCopy()
	r.Edit(func(set *appsv1beta1.StatefulSet) {
		rolling := set.Spec.UpdateStrategy.RollingUpdate
		switch n {
		case 0, 1, 2:
			if r.image = fmt.Sprintf("nginx:%d", 1+r.Rand.IntN(3)); !r.calm && r.Rand.IntN(5) == 0 {
				r.image = "nginx:bad"
			}
			setTemplate(set, r.template())
		case 3:
			r.note = strconv.Itoa(r.Rand.IntN(3))
			setTemplate(set, r.template())
		case 4, 5:
			replicas := int32(r.Rand.IntN(7))
			set.Spec.Replicas = &replicas
		case 6:
			set.Spec.ReserveOrdinals = nil
			for range r.Rand.IntN(3) {
				from := r.Rand.IntN(6)
				set.Spec.ReserveOrdinals = append(set.Spec.ReserveOrdinals, intstr.FromInt32(int32(from)),
					intstr.FromString(fmt.Sprintf("%d-%d", from+2, from+2+r.Rand.IntN(3))))
			}
		case 7:
			if rolling != nil {
				partition := int32(r.Rand.IntN(5))
				rolling.Partition = &partition
			}
		case 8:
			if rolling != nil {
				rolling.Paused = r.Rand.IntN(2) == 0
			}
		case 9:
			set.Spec.Ordinals = &appsv1beta1.StatefulSetOrdinals{Start: int32(r.Rand.IntN(3))}
		case 11:
			set.Spec.UpdateStrategy.Type = []appsv1beta1.StatefulSetUpdateStrategyType{appsv1beta1.OnDeleteStatefulSetStrategyType,
				appsv1beta1.RollingUpdateStatefulSetStrategyType}[r.Rand.IntN(2)]
		case 12:
			if rolling != nil {
				rolling.PodUpdatePolicy = policies[r.Rand.IntN(len(policies))]
			}
		case 10:
			if len(set.Spec.VolumeClaimTemplates) > 0 {
				set.Spec.PersistentVolumeClaimRetentionPolicy = r.retention(r.Rand.IntN(5))
				setClaims(set, []string{"data", "logs"}[:1+r.Rand.IntN(2)], []string{"1Gi", "2Gi", "3Gi"}[r.Rand.IntN(3)])
			}
		}
	})
}

// toRecords loses something of what the manager wrote down, as a backup does, or a hand.
func (r *rolloutRun) toRecords(n int) {
	kind := "ControllerRevision"
	switch n {
	case 20:
		r.Change(setKey, func(o client.Object) { o.(*appsv1beta1.StatefulSet).Status = appsv1beta1.StatefulSetStatus{} })
		return
	case 21:
		kind = "PersistentVolumeClaim"
	}
	objects := r.List(kind, false)
	if len(objects) == 0 {
		return
	}
	key := simulation.Key{Kind: kind, Name: objects[r.Rand.IntN(len(objects))].GetName()}
	if n == 22 {
		r.forgetful = true
		r.Remove(key)
		return
	}
	r.Change(key, func(o client.Object) { o.SetOwnerReferences(nil) })
}

// handOver deletes the set without its pods, and makes it anew.
func (r *rolloutRun) handOver() {
	old := r.set()
	for _, kind := range []string{"Pod", "PersistentVolumeClaim", "ControllerRevision"} {
		for _, object := range r.List(kind, false) {
			r.Change(simulation.Key{Kind: kind, Name: object.GetName()}, func(o client.Object) {
				o.SetOwnerReferences(slices.DeleteFunc(slices.Clone(o.GetOwnerReferences()),
					func(owner metav1.OwnerReference) bool { return owner.UID == old.UID }))
			})
		}
	}
	r.Remove(setKey)
	next := makeSet(0)
	next.Spec = *old.Spec.DeepCopy()
	r.Store(setKey, next)
}

// toPod does something to a pod.
func (r *rolloutRun) toPod(pod *corev1.Pod, n int) {
	switch n {
	case 13:
		r.Change(podKey(pod.Name), func(o client.Object) {
			if _, specified := o.GetLabels()[pub.SpecifiedDelete]; specified {
				delete(o.GetLabels(), pub.SpecifiedDelete)
				return
			}
			o.GetLabels()[pub.SpecifiedDelete] = "true"
		})
	case 14:
		r.Change(podKey(pod.Name), func(o client.Object) { o.SetOwnerReferences(nil) })
	case 15:
		if !r.calm {
			r.Node.Fail(pod.Name)
		}
	case 16:
		if !r.calm {
			r.EndGracefully(podKey(pod.Name))
		}
	case 17:
		if !r.calm {
			r.Change(podKey(pod.Name), func(o client.Object) { o.GetLabels()["app"] = "debug" })
		}
	case 18, 19:
		if claims := claimsOf(pod); !r.calm && len(claims) > 0 {
			r.deletesClaims = true
			r.deleteClaim(claims[r.Rand.IntN(len(claims))])
		}
	}
}

// operate lets the user's operator act on a pod if its hooks ask for it.
func (r *rolloutRun) operate(pod *corev1.Pod) bool {
	if !r.hooked || pod.DeletionTimestamp != nil {
		return false
	}
	want := map[string]string{"hook/update": "on", "hook/delete": "on"}
	switch pub.LifecycleStateType(pod.Labels[pub.LifecycleState]) {
	case pub.LifecycleStatePreparingUpdate:
		delete(want, "hook/update")
	case pub.LifecycleStatePreparingDelete:
		delete(want, "hook/delete")
	case pub.LifecycleStateUpdating:
		return false
	}
	same := true
	for _, key := range []string{"hook/update", "hook/delete"} {
		same = same && pod.Labels[key] == want[key]
	}
	if same {
		return false
	}
	r.Change(podKey(pod.Name), func(o client.Object) {
		labels := o.GetLabels()
		for _, key := range []string{"hook/update", "hook/delete"} {
			if delete(labels, key); want[key] != "" {
				labels[key] = want[key]
			}
		}
	})
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
		switch n := r.Rand.IntN(100); {
		case n < 4 || n < 12 && r.former != nil && r.Chance(0.3):
			r.user()
		case n < 40:
			r.Events(1 + r.Rand.IntN(6))
		case n < 70:
			if pods := r.AllPods(); len(pods) > 0 {
				pod := pods[r.Rand.IntN(len(pods))]
				if (!r.Chance(0.3) || !r.operate(pod)) && r.mountable(pod) {
					r.Node.Step(pod.Name)
				}
			}
		case n < 73:
			r.ProvisionVolumes()
		case n < 75:
			r.CollectGarbage()
			r.unprotect()
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
	r.Edit(func(set *appsv1beta1.StatefulSet) {
		r.image = "nginx:3"
		setTemplate(set, r.template())
		set.Spec.UpdateStrategy.Type = appsv1beta1.RollingUpdateStatefulSetStrategyType
		set.Spec.UpdateStrategy.RollingUpdate.Paused = false
		if set.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy == appsv1beta1.InPlaceOnlyStatefulSetPodUpdatePolicy {
			set.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = appsv1beta1.InPlaceIfPossibleStatefulSetPodUpdatePolicy
		}
		if !r.calm { // what partition keeps may never come up, and uses up what may be unavailable
			set.Spec.UpdateStrategy.RollingUpdate.Partition = nil
		}
	})
	if r.failure != "" {
		return
	}
	r.Others = func() bool {
		return slices.ContainsFunc(r.AllPods(), r.operate) || slices.ContainsFunc(r.AllPods(), r.giveUp)
	}
	if err := r.Settle(900); err != nil {
		r.fail("%v", err)
		return
	}
	r.check()
	if r.failure == "" {
		r.rests()
	}
}

// giveUp deletes a pod that was taken out of the set, whose name the set needs, and one that waits for a PVC
// which a user deleted, and of which there is no template any more.
func (r *rolloutRun) giveUp(pod *corev1.Pod) bool {
	set := r.set()
	for _, claim := range claimsOf(pod) {
		if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && r.Get(claimKey(claim)) == nil &&
			!slices.ContainsFunc(set.Spec.VolumeClaimTemplates, func(t template.VolumeClaimTemplate) bool { return t.Name+"-"+pod.Name == claim }) {
			r.EndGracefully(podKey(pod.Name))
			return true
		}
	}
	if pod.Labels["app"] != "web" && pod.DeletionTimestamp == nil && metav1.GetControllerOf(pod) == nil {
		r.EndGracefully(podKey(pod.Name))
		return true
	}
	return false
}

func (r *rolloutRun) check() {
	set := r.set()
	slots, partition := slotsOf(set), 0
	if p := set.Spec.UpdateStrategy.RollingUpdate.Partition; p != nil {
		partition = int(*p)
	}
	updated := 0
	for _, n := range slots {
		pod := r.Pod(fmt.Sprintf("web-%d", n))
		switch {
		case pod == nil:
			r.fail("no pod in slot %d", n)
			return
		case !r.available(pod):
			r.fail("pod %s is not available", pod.Name)
		case metav1.GetControllerOf(pod) == nil:
			r.fail("pod %s is nobody's", pod.Name)
		case pod.Labels[appsv1.StatefulSetPodNameLabel] != pod.Name || pod.Spec.Hostname != pod.Name:
			r.fail("pod %s has not its identity", pod.Name)
		}
		if pod.Labels[pub.ControllerRevisionHash] == set.Status.UpdateRevision { // managers that overlap may give a number twice
			updated++
			if got := pod.Spec.Containers[0].Image; got != r.image || r.Node.Runs(pod, "nginx").Image != got ||
				pod.Annotations["note"] != r.note {
				r.fail("pod %s has %s, runs %+v, note %q", pod.Name, got, r.Node.Runs(pod, "nginx"), pod.Annotations["note"])
			}
		}
		r.checkClaims(set, pod)
	}
	if n := len(r.AllPods()); n != len(slots) {
		r.fail("%d pods, %d slots", n, len(slots))
	}
	if updated < len(slots)-partition {
		r.fail("%d of %d pods are updated, partition %d", updated, len(slots), partition)
	}
	if !r.deletesClaims {
		for name := range r.claims {
			if r.Get(claimKey(name)) == nil {
				r.fail("claim %s is gone", name)
			}
		}
	}
	status := set.Status
	if int(status.Replicas) != len(slots) || int(status.AvailableReplicas) != len(slots) || int(status.UpdatedReplicas) != updated ||
		status.ObservedGeneration != set.Generation || len(status.Conditions) > 0 {
		r.fail("status %+v does not tell the truth: %d updated", status, updated)
	}
}

// checkClaims checks that the pod has its PVCs, with the owners and the size that they shall have.
func (r *rolloutRun) checkClaims(set *appsv1beta1.StatefulSet, pod *corev1.Pod) {
	for i := range set.Spec.VolumeClaimTemplates {
		template := &set.Spec.VolumeClaimTemplates[i]
		claim, _ := r.Get(claimKey(template.Name + "-" + pod.Name)).(*corev1.PersistentVolumeClaim)
		if claim != nil && claim.DeletionTimestamp != nil && slices.Contains(claimsOf(pod), claim.Name) {
			continue // a user deleted it, and it goes when the pod does
		}
		if claim == nil || claim.DeletionTimestamp != nil {
			if partition := set.Spec.UpdateStrategy.RollingUpdate.Partition; partition == nil || *partition == 0 {
				r.fail("pod %s has no claim %s", pod.Name, template.Name)
			}
			continue
		}
		want := 0
		if policy := set.Spec.PersistentVolumeClaimRetentionPolicy; policy != nil &&
			policy.WhenDeleted == appsv1beta1.DeleteStatefulSetClaims {
			want = 1
		}
		if len(claim.OwnerReferences) != want {
			r.fail("claim %s has owners %v", claim.Name, claim.OwnerReferences)
		}
	}
}

// rests checks that nothing is written when nothing happens.
func (r *rolloutRun) rests() {
	if extra := r.WrittenAtRest(); len(extra) > 0 {
		r.fail("written at rest: %v", extra)
	}
}

// TestSimulatedStatefulSets plays random lives of sets.
func TestSimulatedStatefulSets(t *testing.T) {
	simulationtest.Seeds(t, 2000, func(t *testing.T, seed uint64) {
		r := newRun(seed)
		r.Trace, r.Apart = os.Getenv("TRACE") != "", seed%5 > 1
		r.play(150 + r.Rand.IntN(250))
		if r.finish(); r.failure != "" {
			t.Errorf("the simulated rollout: %s", r.failure)
		}
	})
}

// TestSimulatedStaleLeaders plays lives in which managers go on for a while after others took over from them
// (ASTS-119 (part)).
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
