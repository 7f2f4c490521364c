package controller

import (
	"flag"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller/guardtest"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

var update = flag.Bool("update", false, "write the golden narratives")

// tale is a rollout whose every plan is written down.
type tale struct {
	*simulated
	t    *testing.T
	text simulationtest.Narrative
}

// then lets the user do something, and everybody act for two minutes.
func (n *tale) then(title string, do func(*appsv1beta1.StatefulSet)) {
	fmt.Fprintf(&n.text, "\n# %s\n", title)
	if do != nil {
		n.Edit(do)
	}
	n.ActFor(2 * time.Minute)
	status := n.set().Status
	fmt.Fprintf(&n.text, "\nThen: %d pods, %d available; %d updated.\n", status.Replicas, status.AvailableReplicas, status.UpdatedReplicas)
}

func image(name string) func(*appsv1beta1.StatefulSet) {
	return func(set *appsv1beta1.StatefulSet) {
		setTemplate(set, fmt.Sprintf(`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":%q}]}}`, name))
	}
}

func inPlace(set *appsv1beta1.StatefulSet) {
	set.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = appsv1beta1.InPlaceIfPossibleStatefulSetPodUpdatePolicy
}

// TestNarratives plays rollouts and compares every plan, as printed, with a golden file; -update writes them.
func TestNarratives(t *testing.T) {
	for title, story := range map[string]struct {
		set  *appsv1beta1.StatefulSet
		tell func(*tale)
	}{
		"a broken revision is mended in order": {makeSet(3, inPlace), func(n *tale) { // ASTS-148, W1
			n.Node.Digests["nginx:bad"] = ""
			n.then("image nginx:bad", image("nginx:bad"))
			n.then("image nginx:2", image("nginx:2"))
		}},
		"parallel, by priority": {makeSet(4, inPlace, func(set *appsv1beta1.StatefulSet) { // ASTS-150, ASTS-153
			set.Spec.PodManagementPolicy = appsv1beta1.ParallelPodManagement
			set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = number(2)
			set.Spec.UpdateStrategy.RollingUpdate.UnorderedUpdate = orderedBy("rank")
		}), func(n *tale) {
			for i, rank := range []string{"r-1", "r-9", "r-10", "r-2"} {
				n.Change(podKey(fmt.Sprint("web-", i)), func(o client.Object) { o.GetLabels()["rank"] = rank })
			}
			n.then("image nginx:2, web-2 and web-1 rank first", image("nginx:2"))
		}},
		"an ordinal is reserved": {makeSet(3), func(n *tale) { // ASTS-127
			n.then("reserveOrdinals [1]", func(set *appsv1beta1.StatefulSet) {
				set.Spec.ReserveOrdinals = append(set.Spec.ReserveOrdinals, *number(1))
			})
			n.then("reserveOrdinals []", func(set *appsv1beta1.StatefulSet) { set.Spec.ReserveOrdinals = nil })
		}},
		"claims grow pod by pod": {makeSet(2, inPlace, func(set *appsv1beta1.StatefulSet) { // ASTS-272, ASTS-273
			setClaims(set, []string{"data"}, "1Gi")
			set.Spec.VolumeClaimUpdateStrategy.Type = appsv1beta1.OnPodRollingUpdateStatefulSetClaimUpdate
		}), func(n *tale) {
			n.then("storage 2Gi", func(set *appsv1beta1.StatefulSet) { setClaims(set, []string{"data"}, "2Gi") })
			n.then("storage 3Gi and image nginx:2", func(set *appsv1beta1.StatefulSet) {
				setClaims(set, []string{"data"}, "3Gi")
				image("nginx:2")(set)
			})
		}},
		"a budget paces a rollout in parallel": {makeSet(3, inPlace, func(set *appsv1beta1.StatefulSet) {
			set.Spec.PodManagementPolicy = appsv1beta1.ParallelPodManagement
			set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = number(3)
		}), func(n *tale) {
			// PUB-101: StatefulSets ask. CloneSets do in tales of theirs, SidecarSets in
			// TestBudgetsHoldUpgrades; in TestSimulatedBudgets the controllers of others are refused by the
			// webhooks, try again, and get what they want in the end.
			n.under()
			n.then("image nginx:2, one of three at a time", image("nginx:2"))
			n.then("replicas 1", func(set *appsv1beta1.StatefulSet) { *set.Spec.Replicas = 1 })
		}},
		"a budget that allows nothing holds a rollout in order": {makeSet(2), func(n *tale) {
			budget := n.under(podunavailablebudgettest.MinAvailable(number(2)))
			n.then("image nginx:2", image("nginx:2"))
			budget.Generation, budget.Spec.MinAvailable = 2, number(1)
			n.then("minAvailable 1", nil)
		}},
		"a bad image is mended while a budget holds deletions": {makeSet(3, inPlace, func(set *appsv1beta1.StatefulSet) {
			set.Spec.PodManagementPolicy = appsv1beta1.ParallelPodManagement
			set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = number(2)
		}), func(n *tale) {
			n.Node.Digests["nginx:bad"] = ""
			n.under()
			n.then("image nginx:bad", image("nginx:bad"))
			n.Change(podKey("web-0"), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
			n.then("web-0 is specified for deletion", nil)
			n.then("image nginx:2", image("nginx:2"))
		}},
		"pods of a native set are adopted": {makeSet(2, inPlace), func(n *tale) { // ASTS-070, W3
			native(n)
			n.then("the native set has left its pods and its revision", func(*appsv1beta1.StatefulSet) {})
			n.then("image nginx:2", image("nginx:2"))
		}},
	} {
		t.Run(title, func(t *testing.T) {
			n := &tale{t: t, simulated: simulate(1, story.set, statefulset.Features{PodIndexLabel: true, DeleteClaims: true, ResizeClaims: true})}
			n.Node.Observes = true
			n.Planned = func(plan *statefulset.Plan, _ podapply.Outcome) {
				n.text.Plan(n.Now(), plan.Headline())
			}
			n.then("created", nil)
			story.tell(n)
			simulationtest.Golden(t, title, n.text.String(), n.Recorded, *update)
		})
	}
}

// under has a PodUnavailableBudget limit what the manager does from a minute later on, and writes down what
// is asked. The webhooks find everything booked.
func (n *tale) under(options ...func(*policyv1beta1.PodUnavailableBudget)) *policyv1beta1.PodUnavailableBudget {
	budget := podunavailablebudgettest.Budget(append(options, func(b *policyv1beta1.PodUnavailableBudget) { b.Namespace = "default" })...)
	guard := &guardtest.Guard{Budget: budget, Now: n.Now, Pods: n.AllPods,
		Replicas: func() int32 { return *n.set().Spec.Replicas },
		Asked: func(pod *corev1.Pod, by disruption.Operation, answer podunavailablebudget.Decision) {
			fmt.Fprintf(&n.text, "asked: %s pod %s: %s\n", by, pod.Name, answer.Reason)
		}}
	n.Pass(time.Minute) // no pod is as young as a booking
	guard.Watch(n.Cluster, func(err error) { n.t.Errorf("the budget: %v", err) })
	n.kube.Guard = guard
	return budget
}

// native makes the pods and the revision of the set what a native set leaves that is deleted without them.
func native(n *tale) {
	const name = "web-native"
	for _, object := range n.List("ControllerRevision", false) {
		left := object.DeepCopyObject().(*appsv1.ControllerRevision)
		n.Remove(simulation.Key{Kind: "ControllerRevision", Name: left.Name})
		left.Name, left.UID, left.OwnerReferences, left.Annotations = name, "", nil, nil
		n.Store(simulation.Key{Kind: "ControllerRevision", Name: name}, left)
	}
	for _, pod := range n.AllPods() {
		n.Change(podKey(pod.Name), func(o client.Object) {
			pod := o.(*corev1.Pod)
			pod.OwnerReferences, pod.Annotations, pod.Spec.ReadinessGates = nil, nil, nil
			pod.Labels = map[string]string{"app": "web", appsv1.StatefulSetPodNameLabel: pod.Name, appsv1.ControllerRevisionHashLabelKey: name}
		})
	}
	n.Change(setKey, func(o client.Object) { o.(*appsv1beta1.StatefulSet).Status = appsv1beta1.StatefulSetStatus{} })
	n.Start()
}

func orderedBy(key string) *appsv1beta1.StatefulSetUnorderedUpdate {
	return &appsv1beta1.StatefulSetUnorderedUpdate{PriorityStrategy: &pub.UpdatePriorityStrategy{
		OrderPriority: []pub.UpdatePriorityOrderTerm{{OrderedKey: key}}}}
}
