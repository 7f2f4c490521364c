package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	clonesetcontroller "github.com/afloat-project/afloat/internal/kinds/cloneset/controller"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

const (
	namespace = "default"
	setName   = "web"
)

var (
	setKey        = simulation.Key{Kind: "CloneSet", Name: setName}
	deploymentKey = simulation.Key{Kind: "Deployment", Name: "dep"}
)

func podKey(name string) simulation.Key { return simulation.Key{Kind: "Pod", Name: name} }

func budgetKey(name string) simulation.Key {
	return simulation.Key{Kind: "PodUnavailableBudget", Name: name}
}

// budgetRun is one random world of budgets, workloads, managers and users, with an oracle.
type budgetRun struct {
	*simulation.Cluster
	node     *simulation.Node
	oracle   *oracle
	options  podunavailablebudget.Options
	managers []*replica
	// leader has the lease; nil while nobody has. acting is the manager that acts.
	leader, acting *replica
	// depth is how many act in the middle of what others do.
	depth, created, refusals int
	// calm: nobody but who asks takes pods out of service.
	calm, trace bool
	// undisturbed: nobody acts in the middle of what others do. unasked: no webhook sees creations.
	undisturbed, unasked bool
	// immortal: managers do not die of a request.
	immortal bool
	// restless: leaders change all the time, caches are late, and all pods are to be evicted.
	restless bool
	// unscaled: managers have no right to read scale subresources.
	unscaled bool
	// noScale fails requests for scale subresources of a kind.
	noScale func(kind string) error
	// rollout is how many pods the Rollout shall have; 0 is for none.
	rollout  int
	draining []types.UID
	// healthy is how many pods of app web a PodDisruptionBudget wants to stay; none below 0.
	healthy int
	// touched are pods whose image a user has changed, and when.
	touched map[string]time.Time
	// told are the events, each with the name of what it is about.
	told    []string
	failure string
}

func (r *budgetRun) fail(format string, args ...any) {
	if r.failure == "" {
		r.failure = fmt.Sprintf(format, args...)
		r.tracef("FAILURE %s", r.failure)
	}
}

func (r *budgetRun) tracef(format string, args ...any) {
	if r.trace {
		fmt.Printf("%s %s%s\n", r.Now().Format("04:05.000"), strings.Repeat("    ", r.depth), fmt.Sprintf(format, args...))
	}
}

func (r *budgetRun) pods() []*corev1.Pod {
	return simulationtest.All[*corev1.Pod](r.Cluster, "Pod", false)
}

func (r *budgetRun) budgets() []*policyv1beta1.PodUnavailableBudget {
	return simulationtest.All[*policyv1beta1.PodUnavailableBudget](r.Cluster, "PodUnavailableBudget", false)
}

func (r *budgetRun) budget(name string) *policyv1beta1.PodUnavailableBudget {
	budget, _ := r.Get(budgetKey(name)).(*policyv1beta1.PodUnavailableBudget)
	if budget == nil {
		return &policyv1beta1.PodUnavailableBudget{}
	}
	return budget
}

// newWorld is a cluster without workloads and managers.
func newWorld(seed uint64) *budgetRun {
	r := &budgetRun{Cluster: simulation.New(seed), touched: map[string]time.Time{}, healthy: -1, trace: os.Getenv("TRACE") != ""}
	r.oracle = newOracle(r)
	r.Apart, r.calm, r.Slim, r.Delivered, r.BeforeWrite = seed%5 > 1, r.Chance(0.5), slim.Any, r.delivered, r.beforeWrite
	r.AfterWrite = func(simulation.Write) { r.oracle.observe() }
	r.restless = r.Chance(0.3)
	r.options = podunavailablebudget.Options{Deletes: true, Updates: !r.Chance(0.1)}
	r.node = r.NewNode()
	r.node.Observes = r.Chance(0.5)
	if err := errors.Join(clonesetcontroller.Index(context.Background(), r.Cluster), podapply.IndexRevisions(context.Background(), r.Cluster),
		r.IndexField(context.Background(), podapply.NewPullJob(), podapply.OwnerIndex, podapply.IndexByController)); err != nil {
		panic(err)
	}
	r.Answer = func(request *simulation.Request) error {
		if request.Verb == "get" && r.Chance(r.Faults.Refuse) {
			return apierrors.NewInternalError(errors.New("not read"))
		}
		return nil
	}
	r.Store(simulation.Key{Kind: "Node", Name: "node"}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	return r
}

// withSet adds the CloneSet, and withDeployment the Deployment.
func (r *budgetRun) withSet(replicas int32, maxUnavailable int) {
	set := clonesettest.Set(replicas, clonesettest.MaxUnavailable(maxUnavailable), setImage("app:1"))
	set.Name, set.Namespace = setName, namespace
	r.Store(setKey, set)
}

func (r *budgetRun) withDeployment(replicas int32) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "dep", Annotations: map[string]string{"version": "1"}}}
	deployment.Spec.Replicas = &replicas
	r.Store(deploymentKey, deployment)
	r.replicaSet("dep-1", "dep", replicas, deployment)
}

// newRun draws a world from the seed.
func newRun(seed uint64) *budgetRun {
	r := newWorld(seed)
	r.withSet(int32(2+r.Rand.IntN(6)), 1+r.Rand.IntN(4))
	if r.Chance(0.5) {
		r.withDeployment(int32(1 + r.Rand.IntN(5)))
	}
	if r.Chance(0.4) {
		r.replicaSet("rs", "rs", int32(1+r.Rand.IntN(4)), nil)
	}
	if r.Chance(0.3) {
		r.healthy = r.Rand.IntN(4)
	}
	for i := range 1 + r.Rand.IntN(3) {
		r.newBudget(i)
	}
	r.begin()
	return r
}

// begin starts the replicas of the manager.
func (r *budgetRun) begin() {
	for i := range 2 {
		m := &replica{run: r, name: string(rune('A' + i)), view: r.Fork()}
		if r.Chance(0.5) {
			m.skew = time.Duration(r.Rand.IntN(2*int(skewAtMost/time.Millisecond))-int(skewAtMost/time.Millisecond)) * time.Millisecond
		}
		r.managers = append(r.managers, m)
		m.start()
	}
	r.leader = r.managers[0]
	r.leader.lead()
	r.oracle.observe()
}

// skewAtMost is how much a manager's clock differs from the true one.
const skewAtMost = 30 * time.Second

func setImage(image string) func(*appsv1beta1.CloneSet) {
	return clonesettest.Templated(fmt.Sprintf(`{"metadata":{"labels":{"app":"web","team":"a"}},"spec":{"containers":[{"name":"app","image":%q}]}}`, image))
}

// newBudget makes the budget of that number, if there is none: each covers pods by another way.
func (r *budgetRun) newBudget(i int) {
	name := fmt.Sprint("b", i)
	if r.Get(budgetKey(name)) != nil {
		return
	}
	b := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	label := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	switch i {
	case 0:
		b.Spec.TargetReference = &policyv1beta1.TargetReference{APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet", Name: setName}
		if r.Chance(0.4) {
			b.Spec.TargetReference, b.Spec.Selector = nil, label("app", "web")
		}
	case 1:
		b.Spec.Selector = label("team", "a")
	case 2:
		b.Spec.TargetReference = &policyv1beta1.TargetReference{APIVersion: "apps/v1", Kind: []string{"Deployment", "ReplicaSet"}[r.Rand.IntN(2)], Name: "dep"}
		if b.Spec.TargetReference.Kind == "ReplicaSet" {
			b.Spec.TargetReference.Name = "rs"
		}
	}
	r.number(b)
	if r.Chance(0.15) {
		b.Spec.ProtectTotalReplicas = new(int32(1 + r.Rand.IntN(8)))
	}
	if r.Chance(0.2) {
		b.Spec.IgnoredPodSelector = label("tier", "spare")
	}
	if r.Chance(0.2) {
		b.Spec.ProtectOperations = [][]operation{{"DELETE"}, {"DELETE", "EVICT"}, {"EVICT", "UPDATE"}, {"DELETE", "UPDATE", "EVICT", "RESIZE"}}[r.Rand.IntN(4)]
	}
	r.Store(budgetKey(name), b)
}

func (r *budgetRun) number(b *policyv1beta1.PodUnavailableBudget) {
	numbers := []*intstr.IntOrString{new(intstr.FromInt32(1)), new(intstr.FromInt32(1)), new(intstr.FromInt32(2)), new(intstr.FromInt32(int32(r.Rand.IntN(6)))), new(intstr.FromString("20%")),
		new(intstr.FromString("50%")), new(intstr.FromString("80%"))}
	b.Spec.MaxUnavailable, b.Spec.MinAvailable = numbers[r.Rand.IntN(len(numbers))], nil
	if r.Chance(0.3) {
		b.Spec.MaxUnavailable, b.Spec.MinAvailable = nil, b.Spec.MaxUnavailable
	}
}

// scale sets the replicas of a workload.
func (r *budgetRun) scale(key simulation.Key, replicas int32) {
	r.Change(key, func(o client.Object) {
		switch w := o.(type) {
		case *appsv1beta1.CloneSet:
			w.Spec.Replicas = &replicas
		case *appsv1.ReplicaSet:
			w.Spec.Replicas = &replicas
		case *appsv1.Deployment:
			w.Spec.Replicas = &replicas
		}
		o.SetGeneration(o.GetGeneration() + 1)
	})
}

func (r *budgetRun) edit(name string, change func(*policyv1beta1.PodUnavailableBudget)) {
	r.Change(budgetKey(name), func(o client.Object) {
		change(o.(*policyv1beta1.PodUnavailableBudget))
		o.SetGeneration(o.GetGeneration() + 1)
	})
}

// beforeWrite watches what managers write.
func (r *budgetRun) beforeWrite(w simulation.Write, before, after client.Object) {
	r.tracef("%s %s %s of %s", r.acting.name, w.Verb, w.Subresource, w.Key.Name)
	switch {
	case w.Key.Kind == "PodUnavailableBudget" && (r.acting.led == nil || r.acting.led.counting != w.Key.Name):
		r.oracle.wrote(before.(*policyv1beta1.PodUnavailableBudget), after.(*policyv1beta1.PodUnavailableBudget))
	case w.Key.Kind == "Pod" && w.Verb != "create":
		pod := before.(*corev1.Pod)
		if !r.oracle.inService(pod) {
			return
		}
		if w.Verb == "delete" {
			r.oracle.judge(pod, policyv1beta1.Delete)
		} else if !r.oracle.inService(after.(*corev1.Pod)) {
			r.oracle.judge(pod, policyv1beta1.Update)
		}
	}
}

// meddle lets others act in the middle of what somebody does.
func (r *budgetRun) meddle() {
	if r.depth > 1 || r.undisturbed || !r.Chance(0.15) {
		return
	}
	r.depth++
	r.Pass(time.Duration(r.Rand.IntN(200)) * time.Millisecond)
	r.act(90)
	r.depth--
}

// act lets somebody do something; some only if nothing else is under way.
func (r *budgetRun) act(some int) {
	pods := r.pods()
	m := r.managers[r.Rand.IntN(len(r.managers))]
	if r.restless && r.depth == 0 {
		r.restlessly(pods)
	}
	switch n := r.Rand.IntN(some); {
	case n < 30:
		m.work()
	case n < 45:
		if !r.restless || r.Chance(0.2) {
			m.as(func() { r.Deliver(1 + r.Rand.IntN(6)) })
		}
	case n < 65:
		for _, pod := range pods {
			if r.Chance(0.5) {
				r.kubelet(pod.Name)
			}
		}
	case n < 72:
		r.replicaSets()
	case n < 82:
		r.drain()
	case n < 90:
		r.user(pods)
	case n < 92:
		r.collectGarbage()
	case n < 96:
		r.elect()
	default:
		r.Pass(time.Duration(r.Rand.IntN(3000)) * time.Millisecond)
	}
	r.oracle.observe()
}

func (r *budgetRun) restlessly(pods []*corev1.Pod) {
	switch n := r.Rand.IntN(10); {
	case n == 0:
		r.elect()
	case n < 4 && len(pods) > 0:
		if uid := pods[r.Rand.IntN(len(pods))].UID; len(r.draining) < 5 && !slices.Contains(r.draining, uid) {
			r.draining = append(r.draining, uid)
		}
		r.drain()
	case n < 6:
		r.managers[r.Rand.IntN(len(r.managers))].work()
	case n < 8:
		for _, pod := range pods {
			r.kubelet(pod.Name)
		}
	}
}

// elect starts managers that have died, and gives the lease to another one.
func (r *budgetRun) elect() {
	for _, m := range r.managers {
		if m.dead {
			m.start()
			if r.leader == m {
				r.leader = nil
			}
		}
	}
	if r.leader != nil && r.Chance(0.7) {
		return
	}
	if r.leader != nil {
		r.leader.ends = r.Now().Add(time.Duration(r.Rand.IntN(5000)) * time.Millisecond)
	}
	var able []*replica
	for _, m := range r.managers {
		if m != r.leader && m.ends.IsZero() && m.led == nil {
			able = append(able, m)
		}
	}
	r.leader = nil
	if len(able) > 0 {
		r.leader = able[r.Rand.IntN(len(able))]
		r.leader.lead()
		r.tracef("%s leads", r.leader.name)
	}
}

// endStaleLeaders ends those that have gone on for long enough without the lease.
func (r *budgetRun) endStaleLeaders() {
	for _, m := range r.managers {
		if !m.ends.IsZero() && r.Now().After(m.ends) {
			m.start()
		}
	}
}

func (r *budgetRun) play(steps int) {
	for i := 0; i < steps && r.failure == ""; i++ {
		r.Pass(time.Duration(r.Rand.IntN(300)) * time.Millisecond)
		r.kubelets()
		r.endStaleLeaders()
		if i == 60 { // all have begun
			r.Faults = simulation.Faults{Refuse: 0.02, Lose: 0.02, Die: 0.005}
			if r.Chance(0.3) {
				r.Faults = simulation.Faults{}
			}
			if r.immortal {
				r.Faults.Die = 0
			}
		}
		r.act(100)
	}
}

// round lets everybody act once, with caches that keep up, and tells whether anything happened.
func (r *budgetRun) round() bool {
	writes := len(r.Writes)
	for _, m := range r.managers {
		m.as(func() { r.Deliver(1 << 20) })
		for m.work() {
		}
	}
	moved := len(r.Writes) > writes
	for _, pod := range r.pods() {
		moved = r.kubelet(pod.Name) || moved
	}
	moved = r.replicaSets() || moved
	moved = r.drain() || moved
	moved = r.collectGarbage() || moved
	r.oracle.observe()
	return moved
}

// finish ends the disturbances, and checks what must hold at rest: what was begun ends, the numbers are
// exact, and nothing is written.
func (r *budgetRun) finish() {
	r.Faults, r.healthy, r.undisturbed = simulation.Faults{}, -1, true
	for _, m := range r.managers {
		if m.dead || m != r.leader {
			m.start()
		}
	}
	if r.leader == nil || r.leader.led == nil {
		r.leader = r.managers[0]
		r.leader.lead()
	}
	for _, b := range r.budgets() {
		r.edit(b.Name, func(b *policyv1beta1.PodUnavailableBudget) {
			b.Spec.MaxUnavailable, b.Spec.MinAvailable, b.Spec.ProtectTotalReplicas = new(intstr.FromInt32(1)), nil, nil
		})
	}
	for _, pod := range r.pods() {
		r.Change(podKey(pod.Name), func(o client.Object) {
			delete(o.GetLabels(), unavailablePrefix+"x")
			o.GetLabels()["team"] = "a"
		})
	}
	if r.rest(); r.failure != "" {
		return
	}
	set := r.Get(setKey).(*appsv1beta1.CloneSet)
	for _, object := range slices.Concat(r.List("ReplicaSet", false), []client.Object{set}) {
		pods := r.ofController(object.GetUID())
		if len(pods) != int(replicasOf(object)) {
			r.fail("%s has %d pods, and shall have %d%s", object.GetName(), len(pods), replicasOf(object), r.describe())
		}
		for _, pod := range pods {
			if !r.oracle.inService(pod) || object == client.Object(set) && pod.Spec.Containers[0].Image != set.Spec.Template.Spec.Containers[0].Image {
				r.fail("pod %s is not in service, or not updated%s", pod.Name, r.describe())
			}
		}
	}
	if len(r.draining) > 0 {
		r.fail("%d pods are still to be evicted%s", len(r.draining), r.describe())
	}
	r.exact()
	writes := len(r.Writes)
	for range 40 {
		r.Pass(5 * time.Second)
		r.round()
	}
	if len(r.Writes) > writes {
		r.fail("written at rest: %v", r.Writes[writes:])
	}
}

// rest waits until nothing happens any more for longer than anything waits.
func (r *budgetRun) rest() {
	for quiet, begin := r.Now(), r.Now(); r.Now().Sub(quiet) < 90*time.Second && r.failure == ""; {
		step := 3 * time.Second
		if r.round() {
			quiet, step = r.Now(), 500*time.Millisecond
		}
		if r.Now().Sub(begin) > 30*time.Minute {
			r.fail("no rest: %s", r.describe())
		}
		r.Pass(step)
	}
}

// exact compares the numbers of all budgets with an exact count.
func (r *budgetRun) exact() {
	for _, b := range r.budgets() {
		if wrong := r.oracle.exact(b); wrong != "" {
			r.fail("%s%s", wrong, r.describe())
		}
	}
}

func (r *budgetRun) describe() string {
	var b strings.Builder
	for _, budget := range r.budgets() {
		fmt.Fprintf(&b, "\nbudget %s generation %d %+v status %+v", budget.Name, budget.Generation, budget.Spec, budget.Status)
	}
	for _, pod := range r.pods() {
		fmt.Fprintf(&b, "\npod %s in service %v deleted %v image %s labels %v annotations %v", pod.Name, r.oracle.inService(pod), pod.DeletionTimestamp != nil,
			pod.Spec.Containers[0].Image, pod.Labels, pod.Annotations)
	}
	for _, m := range r.managers {
		fmt.Fprintf(&b, "\nmanager %s dead %v leads %v", m.name, m.dead, m.led != nil)
	}
	return b.String()
}

// TestSimulatedBudgets: whoever takes pods out of service, however many managers answer, die, lag, and go on
// after others took over from them, so many others stay in service as the budget wants; nobody is charged
// twice; what waits for a budget goes on when it allows more; a budget that is gone holds nobody
// (PUB-087 (part), PUB-089 (part), PUB-090 (part)).
func TestSimulatedBudgets(t *testing.T) {
	var judged, refused atomic.Int64
	many := simulationtest.Seeds(t, 2000, func(t *testing.T, seed uint64) {
		r := newRun(seed)
		r.play(200 + r.Rand.IntN(250))
		if r.failure == "" {
			r.finish()
		}
		if r.failure != "" {
			t.Errorf("failure: got %q, want %q", r.failure, "")
		}
		judged.Add(int64(r.oracle.judged))
		refused.Add(int64(r.refusals))
	})
	t.Logf("%d disruptions, %d refusals", judged.Load(), refused.Load())
	if many && (judged.Load() == 0 || refused.Load() == 0) {
		t.Error("nothing was disrupted, or refused: the simulation shows less than it says")
	}
}
