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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// upgradeRun is one random rollout with the invariants that are watched while it runs.
type upgradeRun struct {
	*simulated
	failure string
	created int
	// disturbed are pods that were ready when they were upgraded.
	disturbed map[types.UID]bool
	// app counts the images of the application.
	app int
	// wild: the user changes more than images, so that pods are left behind that cannot be upgraded, and
	// deletes the SidecarSet.
	wild bool
	// limits: sidecars ask for limits alone where they are resized.
	limits bool
}

func (r *upgradeRun) fail(format string, args ...any) {
	if r.failure == "" {
		r.failure = fmt.Sprintf(format, args...)
	}
}

// looker knows the SidecarSet as the manager does.
func (r *upgradeRun) looker() (*sidecarset.PodInspector, *appsv1beta1.SidecarSet) {
	set, err := reconcile.Find[*appsv1beta1.SidecarSet](context.Background(), r.kube.API, types.NamespacedName{Name: setKey.Name})
	if err != nil || set == nil {
		set = r.set()
	}
	return sidecarset.NewPodInspector(sidecarset.Snapshot{Set: set, Namespaces: namespaces, Features: r.features, Now: r.Now()}), set
}

// matched are the pods as they are.
func (r *upgradeRun) matched(looker *sidecarset.PodInspector) []sidecarset.PodState {
	var matched []sidecarset.PodState
	for _, pod := range r.AllPods() {
		if readiness.Active(pod) {
			if state := looker.Inspect(pod); state.Matched {
				matched = append(matched, state)
			}
		}
	}
	return matched
}

// beforeWrite watches every write of the manager against the truth.
func (r *upgradeRun) beforeWrite(w simulation.Write, before, after client.Object) {
	if w.Key.Kind != "Pod" {
		return
	}
	if w.Verb != "patch" {
		r.fail("%s of a pod", w.Verb)
		return
	}
	old, new := before.(*corev1.Pod), after.(*corev1.Pod)
	looker, set := r.looker()
	r.onlySidecars(set, old, new)
	if w.Subresource != "" {
		return
	}
	was, is, hash := looker.Inspect(old), looker.Inspect(new), set.Annotations[pub.SidecarSetHash]
	if now := r.set(); now != nil && set.UID == now.UID && now.Annotations[pub.SidecarSetHash] != hash &&
		was.Hash == now.Annotations[pub.SidecarSetHash] && is.Hash == hash {
		r.fail("%s was made with what the SidecarSet has now, and gets what it had before", w.Key.Name)
	}
	if was.Matched && !was.Updated && is.Updated && was.Ready {
		used, ours := 0, 0
		for _, pod := range r.matched(looker) {
			// of those that stay in service as many as there are may be given something else (SS-219 (part))
			if was.Serves && pod.Serves {
				continue
			}
			if pod.Updated && !pod.Available {
				used++
			}
			// the others wait for nothing
			if r.disturbed[pod.Pod.UID] && pod.Underway && (pod.Updated || pod.Upgradable) && pod.Pod.UID != old.UID {
				ours++
			}
		}
		limit := 1
		if m := set.Spec.UpdateStrategy.MaxUnavailable; m != nil {
			seen := 0 // percentages are of the pods that the manager knows
			laid, err := r.kube.Injected(setKey.Name, set.UID)
			if err != nil {
				r.fail("%v", err)
			}
			cached, err := r.Pods().InjectedBy(setKey.Name) // an answer in this pass may show the end of one that the plan counted
			if err != nil {
				r.fail("%v", err)
			}
			for _, known := range [][]*corev1.Pod{laid, cached} {
				matched := 0
				for _, pod := range known {
					if readiness.Active(pod) && looker.Inspect(pod).Matched {
						matched++
					}
				}
				seen = max(seen, matched)
			}
			limit, _ = rollout.Scaled(*m, seen, true)
		}
		r.disturbed[old.UID] = true
		if ours+1 > limit {
			r.fail("%s is upgraded beside %d others, maxUnavailable %d", w.Key.Name, ours, limit)
		}
		// Pods may come and go, and crash, in the manager's back: the cache decides what it may know.
		if used+1 > limit && r.Undelivered() == 0 {
			r.fail("%s is upgraded, %d are unavailable, maxUnavailable %d", w.Key.Name, used, limit)
		}
	}
}

// recovered forgets pods that have come out of their upgrade: what befalls them later is not the manager's
// doing.
func (r *upgradeRun) recovered() {
	if len(r.disturbed) == 0 {
		return
	}
	looker, _ := r.looker()
	for _, pod := range r.AllPods() {
		if r.disturbed[pod.UID] && looker.Inspect(pod).Available {
			delete(r.disturbed, pod.UID)
		}
	}
}

// onlySidecars holds a write to images and annotations of ours: no label, owner or finalizer is
// (SS-004 (part), SS-225 (part), SS-250 (part)).
func (r *upgradeRun) onlySidecars(set *appsv1beta1.SidecarSet, before, after *corev1.Pod) {
	a, b := before.DeepCopy(), after.DeepCopy()
	names := sidecarset.PodNames(&set.Spec)
	for _, pod := range []*corev1.Pod{a, b} {
		for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range list {
				if slices.Contains(names, list[i].Name) {
					list[i].Image, list[i].Resources = "", corev1.ResourceRequirements{}
				}
			}
		}
	}
	if !equality.Semantic.DeepEqual(a.Spec, b.Spec) || !equality.Semantic.DeepEqual(a.Labels, b.Labels) ||
		!equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) || !equality.Semantic.DeepEqual(a.Finalizers, b.Finalizers) {
		r.fail("more than images of sidecars and annotations changed: %+v %+v", a, b)
	}
	for _, key := range []string{"theirs", pub.SidecarSetInjectedList} {
		if before.Annotations[key] != after.Annotations[key] {
			r.fail("annotation %s changed", key)
		}
	}
	if states, err := sidecarset.ReadStates(after.Annotations[pub.SidecarSetInPlaceUpdateState]); err != nil ||
		states["other"].Revision != "kept" {
		r.fail("the state of another SidecarSet was lost: %v %v", states, err)
	}
}

// act lets somebody do something.
func (r *upgradeRun) act() {
	switch n := r.Rand.IntN(100); {
	case n < 30:
		r.Manage()
	case n < 50:
		r.Events(1 + r.Rand.IntN(6))
	case n < 80:
		if pods := r.AllPods(); len(pods) > 0 {
			r.Node.Step(pods[r.Rand.IntN(len(pods))].Name)
		}
	case n < 86:
		r.Pass(time.Duration(r.Rand.IntN(3000)) * time.Millisecond)
	case n < 90:
		r.user()
	case n < 92:
		if pods := r.AllPods(); len(pods) > 0 {
			r.Node.Crash(pods[r.Rand.IntN(len(pods))].Name)
		}
	case n < 94:
		if pods := r.AllPods(); len(pods) > 0 {
			r.EndGracefully(podKey(pods[r.Rand.IntN(len(pods))].Name))
		}
	case n < 96:
		r.created++
		r.inject(fmt.Sprintf("new-%d", r.created), theirs)
	case n < 98: // the pod's workload updates its own container in place
		if pods := r.AllPods(); len(pods) > 0 {
			r.app++
			r.Change(podKey(pods[r.Rand.IntN(len(pods))].Name), func(o client.Object) {
				pod := o.(*corev1.Pod)
				pod.Spec.Containers[len(pod.Spec.Containers)-1].Image = fmt.Sprintf("app:%d", r.app)
				pod.Generation++
			})
		}
	default:
		if r.Dead() {
			r.Start()
		}
	}
	if r.Dead() && r.Chance(0.2) {
		r.Start()
	}
}

// user changes the SidecarSet.
func (r *upgradeRun) user() {
	version := fmt.Sprintf("%d", 1+r.Rand.IntN(4))
	if r.wild && r.Chance(0.4) {
		r.upset()
		return
	}
	if r.features.Resize && r.Chance(0.3) {
		r.resize()
		return
	}
	r.change(func(set *appsv1beta1.SidecarSet) {
		u := &set.Spec.UpdateStrategy
		switch r.Rand.IntN(8) {
		case 0, 1, 2:
			sidecarsettest.Image("proxy", "proxy:"+version)(set)
		case 3:
			sidecarsettest.Image("agent", "agent:"+version)(set)
			sidecarsettest.Image("net", "net:"+version)(set)
		case 4:
			u.Partition = new(intstr.FromInt32(int32(r.Rand.IntN(4))))
		case 5:
			u.MaxUnavailable = []*intstr.IntOrString{new(intstr.FromInt32(0)), new(intstr.FromInt32(2)), new(intstr.FromString("50%")), nil}[r.Rand.IntN(4)]
		case 6:
			u.Paused = !u.Paused
		case 7:
			sidecarsettest.Image("proxy", "proxy:bad")(set)
		}
	})
}

// resize changes the size of a sidecar, or what fits on a node.
func (r *upgradeRun) resize() {
	if pods := r.AllPods(); r.Chance(0.5) && len(pods) > 0 {
		uid := string(pods[r.Rand.IntN(len(pods))].UID)
		r.Node.Unfit[uid] = !r.Node.Unfit[uid]
		return
	}
	r.change(r.size(1 + r.Rand.IntN(3)))
}

// size is a request of cpu, or a limit alone.
func (r *upgradeRun) size(cpu int) func(*appsv1beta1.SidecarSet) {
	if r.limits {
		return sidecarsettest.Asks(nil, sidecarsettest.Resources("cpu", strconv.Itoa(cpu)))
	}
	return sidecarsettest.Sized(strconv.Itoa(cpu))
}

// upset changes what pods cannot be given in place, or who they belong to.
func (r *upgradeRun) upset() {
	switch r.Rand.IntN(5) {
	case 0:
		again := r.set().DeepCopy()
		r.Remove(setKey)
		again.UID, again.ResourceVersion, again.Generation, again.Status = "", "", 1, appsv1beta1.SidecarSetStatus{}
		r.Store(setKey, again)
	case 1:
		r.change(func(set *appsv1beta1.SidecarSet) {
			u := &set.Spec.UpdateStrategy
			u.Type = []appsv1beta1.SidecarSetUpdateStrategyType{appsv1beta1.NotUpdateSidecarSetStrategyType,
				appsv1beta1.RollingUpdateSidecarSetStrategyType}[r.Rand.IntN(2)]
		})
	case 2:
		r.change(func(set *appsv1beta1.SidecarSet) {
			for i := range set.Spec.Containers {
				if c := &set.Spec.Containers[i]; sidecarset.IsHot(c) {
					c.UpgradeStrategy.HotUpgradeEmptyImage = fmt.Sprintf("empty:%d", 1+r.Rand.IntN(2))
				} else {
					c.Command = []string{fmt.Sprint(r.Rand.IntN(2))}
				}
			}
		})
	case 3:
		r.change(func(set *appsv1beta1.SidecarSet) {
			set.Spec.PatchPodMetadata = []appsv1beta1.SidecarSetPatchPodMetadata{{PatchPolicy: appsv1beta1.SidecarSetMergePatchJSONPatchPolicy,
				Annotations: map[string]string{"merged": fmt.Sprintf(`{"a":%d}`, r.Rand.IntN(3))}}}
		})
	case 4:
		if pods := r.AllPods(); len(pods) > 0 {
			r.Change(podKey(pods[r.Rand.IntN(len(pods))].Name), func(o client.Object) {
				o.GetLabels()["app"] = []string{"web", "other"}[r.Rand.IntN(2)]
			})
		}
	}
}

func theirs(pod *corev1.Pod) {
	pod.Annotations["theirs"] = "kept"
	pod.Annotations[pub.SidecarSetInPlaceUpdateState] = `{"other":{"revision":"kept","updateTimestamp":"2030-01-01T00:00:00Z","lastContainerStatuses":{}}}`
}

// TestSimulatedUpgrades: whatever happens, no more pods are unavailable by upgrades than allowed, nothing but
// images and annotations of ours changes, all pods arrive, and then nothing is written (SS-193 (part),
// SS-210 (part), SS-219 (part), SS-225 (part), SS-229 (part), SS-230 (part), SS-240 to SS-244, SS-250 (part),
// SS-D02 (part)).
func TestSimulatedUpgrades(t *testing.T) {
	simulationtest.Seeds(t, 500, func(t *testing.T, seed uint64) {
		if problem := simulatedUpgrade(seed); problem != "" {
			t.Errorf("problem of the simulated upgrade: got %q, want %q", problem, "")
		}
	})
}

func simulatedUpgrade(seed uint64) string {
	r := newUpgrade(seed)
	if r.play(250); r.failure != "" {
		return r.failure
	}
	return r.end()
}

func newUpgrade(seed uint64) *upgradeRun {
	r := &upgradeRun{disturbed: map[types.UID]bool{}}
	choice := seed % 4
	set := sidecarsettest.Set(func(set *appsv1beta1.SidecarSet) {
		switch choice {
		case 1:
			set.Spec.Containers = []appsv1beta1.SidecarContainer{sidecarsettest.Hot("proxy", "proxy:1")}
		case 2:
			set.Spec.Containers = append(set.Spec.Containers, sidecarsettest.Cold("agent", "agent:1"))
			set.Spec.InitContainers = []appsv1beta1.SidecarContainer{sidecarsettest.NativeSidecar("net:1"), sidecarsettest.Cold("boot", "boot:1")}
		case 3:
			set.Spec.Containers = []appsv1beta1.SidecarContainer{sidecarsettest.Hot("proxy", "proxy:1"), sidecarsettest.Hot("agent", "agent:1")}
		}
	})
	resizes := seed%8 < 4
	if r.limits = seed%16 < 8; resizes {
		r.size(1)(set)
	}
	r.simulated = simulate(seed, set, 2+int(seed%5), theirs)
	r.Trace, r.wild = os.Getenv("TRACE") != "", seed%3 == 0
	if r.Node.Unfit = map[string]bool{}; resizes {
		r.features.Resize = true
		r.Start()
	}
	r.Node.Daemon, r.Apart = r.Chance(0.3), seed%5 > 1
	r.Node.Digests["proxy:bad"] = ""
	r.Node.Digests["proxy:3"], r.Node.Digests["proxy:2"] = "same", "same" // another tag of one image
	r.BeforeWrite = r.beforeWrite
	r.Faults = simulation.Faults{Refuse: 0.03, Lose: 0.03, Die: 0.02}
	return r
}

// play lets everybody act in random order.
func (r *upgradeRun) play(steps int) {
	for i := 0; i < steps && r.failure == ""; i++ {
		r.act()
		r.recovered()
	}
}

// strange tells of a pod that was injected from a spec that was another one before the manager had kept it:
// nobody knows what it has.
func (r *upgradeRun) strange(pod sidecarset.PodState) bool {
	return r.features.Resize && !slices.ContainsFunc(r.List("ControllerRevision", false), func(o client.Object) bool {
		return o.GetAnnotations()[pub.SidecarSetHash] == pod.Hash
	})
}

// end lets the last wish come true and everything come to rest.
func (r *upgradeRun) end() string {
	clear(r.Node.Unfit)
	r.change(func(set *appsv1beta1.SidecarSet) {
		set.Spec.UpdateStrategy = appsv1beta1.SidecarSetUpdateStrategy{Type: appsv1beta1.RollingUpdateSidecarSetStrategyType}
		sidecarsettest.Image("proxy", "proxy:1")(set)
	})
	if err := r.Settle(3000); err != nil {
		return err.Error()
	}
	if r.failure != "" {
		return r.failure
	}
	looker, set := r.looker()
	matched := r.matched(looker)
	stay := 0
	for _, pod := range matched {
		if (r.wild || r.strange(pod)) && !pod.Updated && !pod.Upgradable {
			stay++
			if entries := sidecarset.UpgradableOf(pod.Pod); entries["mesh"] || entries == nil {
				return fmt.Sprintf("pod %s does not say that it cannot be upgraded: %v%s", pod.Pod.Name, entries, r.describe())
			}
			continue
		}
		if entry, listed := sidecarset.UpgradableOf(pod.Pod)["mesh"]; listed && !entry {
			return fmt.Sprintf("pod %s says that it cannot be upgraded%s", pod.Pod.Name, r.describe())
		}
		if !pod.Updated || !pod.Available {
			return fmt.Sprintf("pod %s: updated %v, %s %s%s", pod.Pod.Name, pod.Updated, pod.Behind, pod.NotReady, r.describe())
		}
		if images, resources := looker.Lacks(pod.Pod); images != "" || resources != "" && !r.wild {
			return fmt.Sprintf("pod %s lacks %s%s%s", pod.Pod.Name, images, resources, r.describe())
		}
		for i := range set.Spec.Containers {
			c := &set.Spec.Containers[i]
			if !sidecarset.IsHot(c) {
				continue
			}
			half := pod.Working[c.Name]
			first, standby := sidecarset.HotNames(c.Name)
			if half != first {
				standby = first
			}
			version, alt := pod.Pod.Annotations[pub.SidecarSetVersionPrefix+half], pod.Pod.Annotations[pub.SidecarSetVersionAltPrefix+half]
			// The empty image may be one of a former spec, which is left where it is (SS-242 (part)).
			if !strings.HasPrefix(sidecarset.ImageOf(pod.Pod, standby), "empty:") || sidecarset.ImageOf(pod.Pod, half) != c.Image ||
				version == "0" ||
				alt != "0" ||
				pod.Pod.Annotations[pub.SidecarSetVersionPrefix+standby] != "0" {
				return fmt.Sprintf("the pair %s of pod %s: %v%s", c.Name, pod.Pod.Name, pod.Pod.Annotations, r.describe())
			}
		}
	}
	for _, pod := range r.AllPods() {
		if _, listed := sidecarset.UpgradableOf(pod)["mesh"]; listed && pod.Labels["app"] != "web" {
			return fmt.Sprintf("pod %s is not matched and still listed%s", pod.Name, r.describe())
		}
	}
	if status := r.set().Status; int(status.MatchedPods) != len(matched) || int(status.UpdatedReadyPods) != len(matched)-stay ||
		stay == 0 && status.ReadyPods != status.MatchedPods ||
		status.ObservedGeneration != r.set().Generation {
		return fmt.Sprintf("status %+v of %d pods", status, len(matched))
	}
	r.Writes = nil
	r.Queue.Add()
	if err := r.Settle(100); err != nil || len(r.Writes) > 0 {
		return fmt.Sprintf("written at rest: %v %v", r.Writes, err)
	}
	return ""
}
