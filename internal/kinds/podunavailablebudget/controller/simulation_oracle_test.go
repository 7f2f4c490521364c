package controller

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/simulation"
)

// What the simulation lets happen at most: lagAtMost is how far caches are behind, and requestAtMost how long
// a request takes from its admission to its effect, and kubeletAtMost how long a kubelet leaves a container
// of a former image alone.
const (
	lagAtMost     = 2 * time.Second
	requestAtMost = 2 * time.Second
	kubeletAtMost = 3 * time.Second
)

// oracle judges by the words of the specification, on what is stored in the API server, with nothing of the
// code that is tested. It forgives what nobody can know: what has changed within the lag of the caches, or
// since the pods were counted last.
type oracle struct {
	r *budgetRun
	// worlds are the budgets as they were, the latest last.
	worlds []world
	// totals are, by budget, how many pods there were expected to be; losses are when pods left service that
	// were not booked in it.
	totals map[types.UID][]total
	losses map[types.UID][]time.Time
	// counts are those that have ended, by budget.
	counts map[types.UID][]count
	// serving are the pods in service when it looked last, with the budgets that cover them.
	serving map[types.UID][]types.UID
	// came is when each pod came into service last.
	came map[types.UID]time.Time
	// decided is the budget by which a pod was taken out of service.
	decided map[types.UID]types.UID
	// said is what pods say that tells which budgets cover them, and since when.
	said   map[types.UID]saying
	judged int
}

type world struct {
	at      time.Time
	text    string
	budgets []*policyv1beta1.PodUnavailableBudget
}

type saying struct {
	at   time.Time
	text string
}

type count struct{ begin, end time.Time }

// total is how many pods there shall be by workload, how many there are, and how many of them, also of those
// in service, have none.
type total struct {
	at                  time.Time
	of                  map[string]int
	pods, bare, serving int
}

// gone tells whether all that the pods belonged to is gone (PUB-052).
func (t total) gone() bool { return len(t.of) == 0 && t.bare == 0 && t.pods > 0 }

func (t total) same(o total) bool {
	return maps.Equal(t.of, o.of) && t.pods == o.pods && t.bare == o.bare && t.serving == o.serving
}

func (t total) sum() int {
	n := 0
	for _, replicas := range t.of {
		n += replicas
	}
	return n
}

func newOracle(r *budgetRun) *oracle {
	return &oracle{r: r, totals: map[types.UID][]total{}, losses: map[types.UID][]time.Time{}, counts: map[types.UID][]count{},
		serving: map[types.UID][]types.UID{}, came: map[types.UID]time.Time{}, decided: map[types.UID]types.UID{}, said: map[types.UID]saying{}}
}

func active(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

// inService tells whether users have the pod (PUB-055, PUB-056): what it runs is what it should.
func (o *oracle) inService(pod *corev1.Pod) bool {
	if !active(pod) || pod.Status.Phase != corev1.PodRunning {
		return false
	}
	ready := false
	for _, c := range pod.Status.Conditions {
		ready = ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		if c.Type == pub.InPlaceUpdateReady && c.Status != corev1.ConditionTrue {
			return false
		}
	}
	for key := range pod.Labels {
		if strings.HasPrefix(key, "unavailable-pod.kruise.io/") {
			return false
		}
	}
	for _, c := range pod.Spec.Containers {
		ready = ready && o.r.node.Runs(pod, c.Name).Image == c.Image
	}
	return ready
}

// above are kind and name of what controls the pod, what controls that, and so on, and which of these lives
// (PUB-036).
func (o *oracle) above(pod *corev1.Pod) (chain, living []string) {
	for owner := metav1.GetControllerOf(pod); owner != nil; {
		name := owner.Kind + " " + owner.Name
		chain = append(chain, name)
		if owner.Kind == rollouts.Kind { // it is no object of the simulation
			return chain, append(living, name)
		}
		object := o.r.Get(simulation.Key{Kind: owner.Kind, Name: owner.Name})
		if object == nil || object.GetUID() != owner.UID {
			break
		}
		if object.GetDeletionTimestamp() == nil {
			living = append(living, name)
		}
		owner = metav1.GetControllerOf(object)
	}
	return chain, living
}

func matches(selector *metav1.LabelSelector, pod *corev1.Pod) bool {
	if selector == nil {
		return false
	}
	for key, value := range selector.MatchLabels {
		if actual, has := pod.Labels[key]; !has || actual != value {
			return false
		}
	}
	return true
}

func (o *oracle) covers(budget *policyv1beta1.PodUnavailableBudget, pod *corev1.Pod) bool {
	if target := budget.Spec.TargetReference; target != nil {
		_, living := o.above(pod)
		return slices.Contains(living, target.Kind+" "+target.Name)
	}
	return matches(budget.Spec.Selector, pod)
}

// deciding is the budget that decides about a pod (PUB-070, PUB-073).
func (o *oracle) deciding(budgets []*policyv1beta1.PodUnavailableBudget, pod *corev1.Pod) *policyv1beta1.PodUnavailableBudget {
	named := pod.Annotations["pub.kruise.io/related-pub"]
	if named == "" {
		named = pod.Annotations["kruise.io/related-pub"]
	}
	var best *policyv1beta1.PodUnavailableBudget
	for _, b := range budgets { // by name
		if !o.covers(b, pod) {
			continue
		}
		if b.Name == named {
			return b
		}
		if best == nil || best.Spec.TargetReference == nil && b.Spec.TargetReference != nil ||
			(best.Spec.TargetReference == nil) == (b.Spec.TargetReference == nil) && b.CreationTimestamp.Before(&best.CreationTimestamp) {
			best = b
		}
	}
	return best
}

// expected is how many pods there shall be without an override (PUB-040, PUB-041).
func (o *oracle) expected(budget *policyv1beta1.PodUnavailableBudget) total {
	t := total{at: o.r.Now(), of: map[string]int{}}
	tops := map[string]bool{}
	if target := budget.Spec.TargetReference; target != nil {
		tops[target.Kind+" "+target.Name] = true
	} else {
		for _, pod := range o.r.pods() {
			if !active(pod) || !o.covers(budget, pod) {
				continue
			}
			t.pods++
			if chain, _ := o.above(pod); len(chain) > 0 {
				tops[chain[len(chain)-1]] = true
			} else if t.bare++; o.inService(pod) {
				t.serving++
			}
		}
	}
	for top := range tops {
		kind, name, _ := strings.Cut(top, " ")
		if object := o.r.Get(simulation.Key{Kind: kind, Name: name}); object != nil && object.GetDeletionTimestamp() == nil {
			t.of[top] = int(replicasOf(object))
		}
	}
	return t
}

// desired is how many pods must stay in service (PUB-050 to PUB-052).
func desired(spec *policyv1beta1.PodUnavailableBudgetSpec, of total) int {
	n := of.sum()
	most := math.MaxInt
	switch {
	case spec.ProtectTotalReplicas != nil && spec.TargetReference == nil && of.gone():
		return 0
	case spec.ProtectTotalReplicas != nil:
		n = int(*spec.ProtectTotalReplicas)
	case n == 0 && of.bare == 0:
		return 0
	case n == 0 && of.bare < of.pods:
		most = of.serving
	}
	value := func(v *intstr.IntOrString) int {
		if v.Type == intstr.Int {
			return int(v.IntVal)
		}
		percent := 0
		if _, err := fmt.Sscanf(v.StrVal, "%d%%", &percent); err != nil {
			panic(err)
		}
		return (percent*n + 99) / 100
	}
	if spec.MaxUnavailable != nil {
		return max(0, n-value(spec.MaxUnavailable))
	}
	return min(value(spec.MinAvailable), most)
}

// free tells whether the budget does not limit the operation (PUB-012, PUB-014, PUB-016).
func (o *oracle) free(budget *policyv1beta1.PodUnavailableBudget, pod *corev1.Pod, by policyv1beta1.PodUnavailableBudgetOperation) bool {
	operations := budget.Spec.ProtectOperations
	if len(operations) == 0 {
		operations = []policyv1beta1.PodUnavailableBudgetOperation{"DELETE", "UPDATE", "EVICT"}
	}
	return matches(budget.Spec.IgnoredPodSelector, pod) || !slices.Contains(operations, by) || by == "UPDATE" && !o.r.options.Updates
}

// judge is called when a pod in service is about to be taken out of it on purpose: so many others must be in
// service (PUB-002).
func (o *oracle) judge(pod *corev1.Pod, by policyv1beta1.PodUnavailableBudgetOperation) {
	o.observe()
	delete(o.decided, pod.UID)
	if pod.Annotations["pub.kruise.io/no-protect"] == "true" {
		return
	}
	if o.r.Now().Sub(o.said[pod.UID].at) <= lagAtMost+requestAtMost { // it may be another budget that was asked
		return
	}
	o.judged++
	now, words := o.r.Now(), ""
	for i := len(o.worlds) - 1; i >= 0; i-- {
		w := &o.worlds[i]
		b := o.deciding(w.budgets, pod)
		if b == nil || o.free(b, pod, by) {
			return
		}
		since := o.since(b.UID, now.Add(-requestAtMost)) // it may have been admitted by that count
		floor := o.floor(b, since)
		// Nothing is booked where nothing is demanded, and that may be decided by numbers of before the last
		// count.
		if floor == 0 || o.floor(b, o.since(b.UID, now.Add(-lagAtMost-requestAtMost))) == 0 {
			return
		}
		others, lost := 0, 0
		for _, other := range o.r.pods() {
			if other.UID != pod.UID && o.inService(other) && o.covers(b, other) {
				others++
			}
		}
		for _, at := range o.losses[b.UID] {
			if !at.Before(since) {
				lost++
			}
		}
		if others+lost >= floor {
			o.decided[pod.UID] = b.UID
			return
		}
		words += fmt.Sprintf("\nbudget %s generation %d: %d others in service, %d lost unseen since %s, desired %d, status %+v", b.Name, b.Generation,
			others, lost, since.Format("05.000"), floor, o.r.budget(b.Name).Status)
		if now.Sub(w.at) > lagAtMost+requestAtMost {
			break // it was in force all the time
		}
	}
	o.r.fail("%s of pod %s, which is in service:%s", by, pod.Name, words)
}

// counted notes that the count of a budget has ended which began then.
func (o *oracle) counted(uid types.UID, begin time.Time) {
	o.counts[uid] = append(o.counts[uid], count{begin, o.r.Now()})
}

// since is from when on what happened may be missing in the last count of a budget that had ended at a time.
func (o *oracle) since(uid types.UID, at time.Time) time.Time {
	begin := time.Time{}
	for _, c := range o.counts[uid] {
		if !c.end.After(at) {
			begin = c.begin
		}
	}
	return begin.Add(-lagAtMost - requestAtMost)
}

// floor is the least number of pods that a budget may have demanded to stay in service since then: caches lag
// by kind, so that each of the workloads may have been seen as it was at another time.
func (o *oracle) floor(b *policyv1beta1.PodUnavailableBudget, since time.Time) int {
	list := o.totals[b.UID]
	least := list[len(list)-1]
	least.of = maps.Clone(least.of)
	for i, t := range list {
		if i+1 < len(list) && !list[i+1].at.After(since) {
			continue
		}
		if t.gone() {
			return 0
		}
		for top := range least.of {
			least.of[top] = min(least.of[top], t.of[top])
		}
		least.bare, least.serving, least.pods = min(least.bare, t.bare), min(least.serving, t.serving), max(least.pods, t.pods)
	}
	return desired(&b.Spec, least)
}

// observe notes what has changed in the API server.
func (o *oracle) observe() {
	r, now := o.r, o.r.Now()
	w := world{at: now}
	for _, b := range r.budgets() {
		if b.DeletionTimestamp == nil {
			w.budgets = append(w.budgets, b)
			w.text += fmt.Sprintln(b.UID, b.Generation)
		}
	}
	if n := len(o.worlds); n == 0 || o.worlds[n-1].text != w.text {
		o.worlds = append(o.worlds, w)
	}
	for _, b := range w.budgets {
		t, list := o.expected(b), o.totals[b.UID]
		if n := len(list); n == 0 || !list[n-1].same(t) {
			o.totals[b.UID] = append(list, t)
		}
	}
	serving := map[types.UID][]types.UID{}
	for _, pod := range r.pods() {
		text := fmt.Sprint(pod.Labels["app"], pod.Labels["team"], pod.Labels["tier"], pod.Annotations["pub.kruise.io/related-pub"],
			pod.Annotations["kruise.io/related-pub"])
		if o.said[pod.UID].text != text {
			o.said[pod.UID] = saying{now, text}
		}
		if !o.inService(pod) {
			continue
		}
		serving[pod.UID] = nil
		if _, served := o.serving[pod.UID]; !served {
			o.came[pod.UID] = now
		}
		for _, b := range w.budgets {
			if o.covers(b, pod) {
				serving[pod.UID] = append(serving[pod.UID], b.UID)
			}
		}
	}
	for pod, covering := range o.serving {
		still, serves := serving[pod]
		for _, b := range covering {
			if !slices.Contains(still, b) && o.decided[pod] != b {
				at := now
				if left := r.byUID(pod); left != nil && !r.touched[left.Name].IsZero() {
					at = now.Add(kubeletAtMost) // until then nobody sees it
				}
				o.losses[b] = append(o.losses[b], at)
			}
		}
		if !serves {
			delete(o.decided, pod)
		}
	}
	o.serving = serving
}

// wrote judges a write of a budget's status: a booking charges one for a pod that was not booked, and nothing
// for one that was, or that is out of service and is to be deleted (PUB-086, PUB-087).
func (o *oracle) wrote(before, after *policyv1beta1.PodUnavailableBudget) {
	o.observe() // a pod may have come into service since it looked last
	was, is := &before.Status, &after.Status
	if is.UnavailableAllowed < 0 || is.ObservedGeneration != was.ObservedGeneration || is.DesiredAvailable != was.DesiredAvailable ||
		is.TotalReplicas != was.TotalReplicas {
		o.r.fail("a booking changes numbers that are not its own: %+v, before %+v", is, was)
	}
	booked := func(s *policyv1beta1.PodUnavailableBudgetStatus, name string) bool {
		_, deleted := s.DisruptedPods[name]
		_, updated := s.UnavailablePods[name]
		return deleted || updated
	}
	charged, fresh, free := was.UnavailableAllowed-is.UnavailableAllowed, int32(0), int32(0)
	for _, entries := range []map[string]metav1.Time{is.DisruptedPods, is.UnavailablePods} {
		for name := range entries {
			wasOf, _, _ := strings.Cut(string(was.BookedPods[name]), "/")
			isOf, more, _ := strings.Cut(string(is.BookedPods[name]), "/")
			if free := strings.HasSuffix(string(was.BookedPods[name]), "uncharged"); booked(was, name) && wasOf == isOf && free == strings.HasSuffix(more, "uncharged") {
				continue
			}
			fresh++
			if _, deleted := is.DisruptedPods[name]; !deleted {
				continue
			}
			if pod := o.r.byUID(types.UID(isOf)); pod == nil || !o.inService(pod) || o.r.Now().Sub(o.came[pod.UID]) <= lagAtMost+requestAtMost {
				free++ // by what the manager knows, perhaps
			}
		}
	}
	if charged > fresh || charged < fresh-free || charged > 1 {
		o.r.fail("%d charged, %d booked: %+v, before %+v", charged, fresh, is, was)
	}
	for name := range is.DisruptedPods {
		if _, both := is.UnavailablePods[name]; both {
			o.r.fail("pod %s is booked twice", name)
		}
	}
}

// exact compares the status of a budget with an exact count, when all is quiet.
func (o *oracle) exact(b *policyv1beta1.PodUnavailableBudget) string {
	t := o.expected(b)
	want := policyv1beta1.PodUnavailableBudgetStatus{ObservedGeneration: b.Generation, TotalReplicas: int32(t.sum()), DesiredAvailable: int32(desired(&b.Spec, t))}
	if b.Spec.ProtectTotalReplicas != nil && (b.Spec.TargetReference != nil || !t.gone()) {
		want.TotalReplicas = *b.Spec.ProtectTotalReplicas
	}
	for _, pod := range o.r.pods() {
		if o.inService(pod) && o.covers(b, pod) {
			want.CurrentAvailable++
		}
		if d := o.deciding(o.r.budgets(), pod); active(pod) && d != nil && (pod.Annotations["pub.kruise.io/related-pub"] != d.Name ||
			pod.Annotations["kruise.io/related-pub"] != d.Name) {
			return fmt.Sprintf("pod %s is covered by budget %s, and says %v", pod.Name, d.Name, pod.Annotations)
		}
	}
	want.UnavailableAllowed = max(0, want.CurrentAvailable-want.DesiredAvailable)
	got := b.Status
	got.UsedBy = "" // words that change may be written later
	if len(got.DisruptedPods)+len(got.UnavailablePods) == 0 {
		got.DisruptedPods, got.UnavailablePods = nil, nil
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		return fmt.Sprintf("status of budget %s %+v; an exact count gives %+v", b.Name, got, want)
	}
	return ""
}
