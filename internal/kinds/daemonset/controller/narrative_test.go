package controller

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller/guardtest"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
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
func (n *tale) then(title string, do option) {
	fmt.Fprintf(&n.text, "\n# %s\n", title)
	if do != nil {
		n.Edit(do)
	}
	n.RunFor(2 * time.Minute)
	is := n.set().Status
	fmt.Fprintf(&n.text, "\nThen: %d nodes, %d with an available pod; %d updated; images %s.\n", is.DesiredNumberScheduled, is.NumberAvailable,
		is.UpdatedNumberScheduled, n.images())
}

// halfway lets the user do something, and everybody act until a node has a pod of the image.
func (n *tale) halfway(title, image string, do option) {
	fmt.Fprintf(&n.text, "\n# %s\n", title)
	n.Edit(do)
	for !strings.Contains(n.images(), image) {
		n.Round()
	}
}

// TestNarratives plays rollouts and compares every plan, as printed, with a golden file; -update writes them.
func TestNarratives(t *testing.T) {
	strict := annotated(pub.DaemonSetStrictMaxUnavailable, "true")
	for title, story := range map[string]struct {
		set  *appsv1beta1.DaemonSet
		tell func(*tale)
	}{
		"updated in place, one node after the other": {makeSet(inPlace), func(n *tale) { n.then("image agent:2", image("agent:2")) }},
		"with a surge": {makeSet(maxSurge(1)), func(n *tale) { n.then("image agent:2", image("agent:2")) }},
		"a partition and a selector": {makeSet(maxUnavailable(3), partition(2)), func(n *tale) {
			n.then("image agent:2, partition 2", image("agent:2"))
			n.Change(nodeKey("n1"), func(o client.Object) { o.SetLabels(map[string]string{"canary": "yes"}) })
			n.then("only canaries, which n1 is, partition 1", func(set *appsv1beta1.DaemonSet) {
				rolling := set.Spec.UpdateStrategy.RollingUpdate
				rolling.Partition, rolling.Selector = number(1), &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}
			})
			n.then("all of them", rolling(func(r *appsv1beta1.RollingUpdateDaemonSet) { r.Partition, r.Selector = nil, nil }))
		}},
		"nodes come and go during a rollout": {makeSet(inPlace), func(n *tale) {
			n.halfway("image agent:2, and n2 is tainted, n4 comes, n1 goes", "2", image("agent:2"))
			n.taint("n2", "broken", corev1.TaintEffectNoExecute)
			n.addNode("n4", nil)
			n.Remove(nodeKey("n1"))
			n.then("two minutes later", nil)
			n.Change(nodeKey("n2"), func(o client.Object) { o.(*corev1.Node).Spec.Taints = nil })
			n.Node.Fail(n.PodsOn("n3")[0].Name)
			n.then("n2 is mended, and the pod of n3 fails", nil)
		}},
		"a broken image is corrected": {makeSet(inPlace), func(n *tale) {
			n.Node.Digests["agent:bad"] = ""
			n.then("image agent:bad", image("agent:bad"))
			n.then("image agent:2", image("agent:2"))
		}},
		"a hook before deletion": {makeSet(drained, maxUnavailable(2)), func(n *tale) {
			n.then("image agent:2", func(set *appsv1beta1.DaemonSet) {
				setTemplate(set, strings.Replace(string(set.Spec.Template.Raw()), "agent:1", "agent:2", 1))
			})
			for _, pod := range n.AllPods() {
				n.Change(podKey(pod.Name), func(o client.Object) { delete(o.GetLabels(), "drain") })
			}
			n.then("all pods are let go", nil)
		}},
		"a budget paces a rollout": {makeSet(inPlace, maxUnavailable(3)), func(n *tale) { // ADS-W4 (part), PUB-101 (part)
			n.under()
			n.then("image agent:2, one of three at a time", image("agent:2"))
		}},
		"taken over from the native kind": {makeSet(inPlace), func(n *tale) {
			native(n.simulated)
			n.then("the native set has left its pods and its revision", func(*appsv1beta1.DaemonSet) {})
			n.then("image agent:2, for which pods without the gate are made anew", image("agent:2"))
		}},
		"strict accounting": {makeSet(inPlace, strict), func(n *tale) {
			n.Node.Digests["agent:bad"] = ""
			n.then("image agent:bad", image("agent:bad"))
			n.then("image agent:2", image("agent:2"))
		}},
		"nodes that are not ready for long are left out": {makeSet(annotated(pub.DaemonSetIgnoreNotReadyNodesAfter, "5m")), func(n *tale) { // ADS-W3
			n.report("n3", corev1.ConditionUnknown)
			dead := n.PodsOn("n3")[0].Name
			n.Node.Frozen[dead] = true
			n.Change(podKey(dead), func(o client.Object) {
				o.(*corev1.Pod).Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
			})
			n.then("n3 is dead, and image agent:2", image("agent:2"))
			n.then("four minutes later", nil)
			n.then("six minutes later", nil)
			n.report("n3", corev1.ConditionTrue)
			n.Node.Frozen[dead] = false
			n.then("n3 is back", nil)
		}},
	} {
		t.Run(title, func(t *testing.T) {
			n := &tale{t: t, simulated: simulate(1, story.set, daemonset.Features{}, "n1", "n2", "n3")}
			n.Node.Observes = true
			n.Planned = func(plan *daemonset.Plan, _ podapply.Outcome) {
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
func (n *tale) under() {
	budget := podunavailablebudgettest.Budget(func(b *policyv1beta1.PodUnavailableBudget) {
		b.Namespace = "default"
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
	})
	guard := &guardtest.Guard{Budget: budget, Now: n.Now, Pods: n.AllPods,
		Replicas: func() int32 { return n.set().Status.DesiredNumberScheduled },
		Asked: func(pod *corev1.Pod, by disruption.Operation, answer podunavailablebudget.Decision) {
			fmt.Fprintf(&n.text, "asked: %s pod %s: %s\n", by, pod.Name, answer.Reason)
		}}
	n.Pass(time.Minute) // no pod is as young as a booking
	guard.Watch(n.Cluster, func(err error) { n.t.Errorf("the budget: %v", err) })
	n.kube.Guard = guard
}
