package controller

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// spreadRun is one random run with the invariants that are watched while it goes on.
type spreadRun struct {
	*simulated
	failure  string
	versions int
	given    int
	percent  bool
}

func (r *spreadRun) fail(format string, args ...any) {
	if r.failure == "" {
		r.failure = fmt.Sprintf(format, args...)
	}
}

// booked: at the time of a booking there are fewer pods, with those that come, than the quota. A deletion that was admitted, and may
// be refused yet, frees no place (WS-074 (part), WS-114 (part), WS-150 (part)).
func (r *spreadRun) booked(version, subset string, quota int32) {
	n := int32(0)
	for _, pod := range slices.Concat(r.active(), r.coming) {
		placed, _ := pub.ParsePlacement(pod.Annotations)
		if placed.Subset == subset && placed.UID != "" && versioned.Of(pod) == version {
			n++
		}
	}
	if n >= quota {
		r.fail("a pod of version %s is booked in subset %s, which has %d of %d%s", version, subset, n, quota, r.describe())
	}
}

// beforeWrite watches what the manager writes against the truth.
func (r *spreadRun) beforeWrite(w simulation.Write, before, after client.Object) {
	switch {
	case w.Verb == "delete":
		r.given++
		pod := before.(*corev1.Pod)
		placed, _ := pub.ParsePlacement(pod.Annotations)
		patience, on := workloadspread.Critical(r.spread())
		c := readiness.Condition(pod, corev1.PodScheduled)
		if !on || pod.Spec.NodeName != "" || c == nil || c.Reason != corev1.PodReasonUnschedulable ||
			r.Now().Sub(pod.CreationTimestamp.Time) <= patience {
			r.fail("pod %s is deleted, which does not wait for a node for too long", pod.Name) // WS-171 (part), WS-175 (part)
		}
		if s := workloadspread.Schedulable(workloadspread.SubsetStatus(r.spread().Status.SubsetStatuses, placed.Subset)); s == nil ||
			s.Status != metav1.ConditionFalse {
			r.fail("pod %s is deleted before its subset %s is passed over", pod.Name, placed.Subset) // WS-130 (part)
		}
		r.admitDeletion(pod)
	case w.Key == spreadKey:
		was, is := before.(*appsv1beta1.WorkloadSpread), after.(*appsv1beta1.WorkloadSpread)
		for _, s := range is.Status.SubsetStatuses {
			old, next := workloadspread.Schedulable(workloadspread.SubsetStatus(was.Status.SubsetStatuses, s.Name)),
				workloadspread.Schedulable(workloadspread.SubsetStatus(is.Status.SubsetStatuses, s.Name))
			last := s.Name == is.Spec.Subsets[len(is.Spec.Subsets)-1].Name // WS-172 (part)
			if old != nil && !last && old.Status == metav1.ConditionFalse && next.Status == metav1.ConditionTrue &&
				r.Now().Before(old.LastTransitionTime.Add(r.window)) {
				// WS-204 (part)
				r.fail("the window of subset %s ends at %s, %s after its begin", s.Name, r.Now(), r.Now().Sub(old.LastTransitionTime.Time))
			}
		}
	default:
		if a, b := before.(*corev1.Pod), after.(*corev1.Pod); a.Annotations[pub.MatchedWorkloadSpread] != "" &&
			a.Annotations[pub.MatchedWorkloadSpread] != b.Annotations[pub.MatchedWorkloadSpread] {
			r.fail("pod %s is taken out of its subset", a.Name) // WS-140 (part)
		}
	}
}

func (r *spreadRun) act() {
	switch n := r.Rand.IntN(100); {
	case n < 30:
		r.Manage()
	case n < 50:
		r.Events(1 + r.Rand.IntN(6))
	case n < 68:
		r.workload()
	case n < 78:
		r.requests()
	case n < 86:
		r.kubelet()
	case n < 91:
		r.requests() // no request lasts for as long as a booking
		wait := time.Duration(r.Rand.IntN(9000)) * time.Millisecond
		if r.Chance(0.1) { // to about the end of a window; no cache lags for so long
			r.Events(1 << 20)
			wait += r.window - 8*time.Second
		}
		r.Pass(wait)
	case n < 95:
		r.user()
	case n < 97:
		if pods := r.active(); len(pods) > 0 {
			pod := pods[r.Rand.IntN(len(pods))]
			if r.Chance(0.5) {
				r.Change(podKey(pod.Name), func(o client.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodFailed })
			} else {
				r.admitDeletion(pod)
				r.EndGracefully(podKey(pod.Name))
			}
		}
	case n < 98 && len(r.coming) > 0:
		r.coming = r.coming[1:] // refused after it was admitted
	case n < 99 && len(r.going) > 0:
		r.going = r.going[1:] // likewise
	default:
		if r.Dead() {
			r.Start()
		}
	}
	if r.Dead() && r.Chance(0.2) {
		r.Start()
	}
}

// user scales, rolls out, changes quotas, fills zones, and gives subsets another order.
func (r *spreadRun) user() {
	switch r.Rand.IntN(6) {
	case 0, 1:
		r.scale(int32(r.Rand.IntN(10)))
	case 2:
		r.versions++
		r.rollOut(fmt.Sprintf("v%d", r.versions))
	case 3:
		zone := []string{"a", "b", "c"}[r.Rand.IntN(3)]
		r.full[zone] = !r.full[zone]
	case 4:
		r.Edit(func(spread *appsv1beta1.WorkloadSpread) {
			subset := r.limited(spread)
			most := intstr.FromInt32(int32(r.Rand.IntN(5)))
			if r.percent {
				most = intstr.FromString(fmt.Sprintf("%d%%", 10*r.Rand.IntN(8)))
			}
			subset.MaxReplicas = &most
		})
	case 5: // WS-002 (part), WS-156 (part)
		r.Edit(func(spread *appsv1beta1.WorkloadSpread) {
			a, b := r.limited(spread), r.limited(spread)
			*a, *b = *b, *a
		})
	}
}

// limited is one of the subsets that have a quota. One without stays as it is: nothing is booked there, so
// that nobody knows how many pods come when it gets one.
func (r *spreadRun) limited(spread *appsv1beta1.WorkloadSpread) *appsv1beta1.WorkloadSpreadSubset {
	for {
		if subset := &spread.Spec.Subsets[r.Rand.IntN(len(spread.Spec.Subsets))]; subset.MaxReplicas != nil {
			return subset
		}
	}
}

// TestSimulatedSpreads: whatever happens, no pod is booked into a full subset, pods are given up only where
// that is called for, no window ends early, numbers and costs become right, and then nothing is written
// (WS-114 (part), WS-130 (part), WS-150 to WS-156, WS-160 to WS-164, WS-170 (part) to WS-178 (part),
// WS-198 (part), WS-204 (part)).
func TestSimulatedSpreads(t *testing.T) {
	var given atomic.Int32
	many := simulationtest.Seeds(t, 300, func(t *testing.T, seed uint64) {
		r := newSpreads(seed)
		if r.play(300); r.failure == "" {
			r.failure = r.end()
		}
		if r.failure != "" {
			t.Errorf("run of the seed: %s", r.failure)
		}
		given.Add(int32(r.given))
	})
	if many && given.Load() == 0 {
		t.Error("no pod was ever given up: the simulation shows less than it says")
	}
}

func newSpreads(seed uint64) *spreadRun {
	r := &spreadRun{versions: 1}
	subsets := []appsv1beta1.WorkloadSpreadSubset{workloadspreadtest.Subset("a", 3, workloadspreadtest.Zone("a")),
		workloadspreadtest.Subset("b", 2, workloadspreadtest.Zone("b")),
		workloadspreadtest.Subset("c", nil, workloadspreadtest.Zone("c"))}
	switch seed % 4 {
	case 1:
		subsets, r.percent = []appsv1beta1.WorkloadSpreadSubset{workloadspreadtest.Subset("a", "30%", workloadspreadtest.Zone("a")),
			workloadspreadtest.Subset("b", "50%", workloadspreadtest.Zone("b")),
			workloadspreadtest.Subset("c", nil, workloadspreadtest.Zone("c"))}, true
	case 3: // not enough places: some pods come without rules and are found
		subsets[2] = workloadspreadtest.Subset("c", 2, workloadspreadtest.Zone("c"))
	}
	spread := workloadspreadtest.Spread(subsets...)
	if seed%4 != 3 {
		workloadspreadtest.Adaptive(spread, 20)
	}
	r.simulated = simulate(seed, spread, int32(seed%6))
	r.Trace, r.Apart = os.Getenv("TRACE") != "", seed%5 > 1
	r.admitted = r.booked
	r.BeforeWrite = r.beforeWrite
	r.Faults = simulation.Faults{Refuse: 0.03, Lose: 0.03, Die: 0.02}
	return r
}

// play lets everybody act in random order.
func (r *spreadRun) play(steps int) {
	for i := 0; i < steps && r.failure == ""; i++ {
		r.act()
	}
}

// end lets everything come to rest, and compares it with what it should be.
func (r *spreadRun) end() string {
	clear(r.full)
	if err := r.Settle(3000); err != nil {
		return err.Error()
	}
	r.Queue.Add()
	if err := r.Settle(100); err != nil {
		return err.Error()
	}
	if r.failure != "" {
		return r.failure
	}
	target, spread := targetFrom(r.Get(deploymentKey)), r.spread()
	if n := len(r.active()); n != int(target.Desired) {
		return fmt.Sprintf("%d of %d pods%s", n, target.Desired, r.describe())
	}
	if spread.Status.ObservedGeneration != spread.Generation {
		return "the last change of the spec was not seen"
	}
	for i, subset := range spread.Spec.Subsets {
		quota, err := workloadspread.Quota(subset.MaxReplicas, target.Desired)
		if err != nil {
			return err.Error()
		}
		costs, n := map[string]int32{}, int32(0)
		for _, pod := range r.active() {
			if placed, ok := pub.ParsePlacement(pod.Annotations); ok && placed.Subset == subset.Name {
				n++
				costs[pod.Annotations[pub.PodDeletionCost]]++
			} else if !ok && pod.Annotations[pub.PodDeletionCost] != "-400" {
				return fmt.Sprintf("pod %s is in no subset%s", pod.Name, r.describe()) // WS-164 (part)
			}
		}
		within, beyond := n, int32(0)
		missing := workloadspread.Unlimited
		if quota != workloadspread.Unlimited {
			within, beyond, missing = min(n, quota), max(n-quota, 0), max(quota-n, 0)
		}
		if costs[strconv.Itoa(100*(3-i))] != within || costs[strconv.Itoa(-100*(i+1))] != beyond { // WS-161 (part), WS-198 (part)
			return fmt.Sprintf("subset %s has %d pods, its quota is %d, costs %v%s", subset.Name, n, quota, costs, r.describe())
		}
		lists := [][]appsv1beta1.WorkloadSpreadSubsetStatus{spread.Status.SubsetStatuses}
		if list, ok := spread.Status.VersionedSubsetStatuses[target.Latest]; ok || target.Desired > 0 {
			lists = append(lists, list)
		}
		for _, list := range lists {
			if len(list) != 3 || list[i].Name != subset.Name || list[i].Replicas != n || list[i].MissingReplicas != missing ||
				len(list[i].CreatingPods)+len(list[i].DeletingPods) > 0 {
				return fmt.Sprintf("status %+v; subset %s has %d pods, its quota is %d%s", spread.Status, subset.Name, n, quota,
					r.describe())
			}
		}
	}
	if len(spread.Status.VersionedSubsetStatuses) > 1 {
		return fmt.Sprintf("status of versions without pods: %+v", spread.Status) // WS-155 (part)
	}
	r.Writes = nil
	r.Queue.Add()
	if err := r.Settle(100); err != nil || len(r.Writes) > 0 {
		return fmt.Sprintf("written at rest: %v %v", r.Writes, err) // WS-160 (part), WS-178 (part)
	}
	return ""
}
