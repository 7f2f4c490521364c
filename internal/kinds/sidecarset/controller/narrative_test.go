package controller

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

var update = flag.Bool("update", false, "write the golden narratives")

// tale is a rollout whose every plan is written down.
type tale struct {
	*simulated
	t    *testing.T
	text simulationtest.Narrative
}

func (n *tale) note(plan *sidecarset.Plan) {
	n.text.Plan(n.Now(), plan.Headline())
}

// then lets the user do something and everything come to rest.
func (n *tale) then(title string, changes ...func(*appsv1beta1.SidecarSet)) {
	n.t.Helper()
	fmt.Fprintf(&n.text, "\n# %s\n", title)
	for _, change := range changes {
		n.change(change)
	}
	if err := n.Settle(500); err != nil {
		n.t.Fatal(err)
	}
	status := n.set().Status
	fmt.Fprintf(&n.text, "\nAt rest: %d pods, %d updated, %d ready, %d both.\n", status.MatchedPods, status.UpdatedPods, status.ReadyPods,
		status.UpdatedReadyPods)
	for _, pod := range n.AllPods() {
		var runs []string
		for i := range pod.Spec.Containers {
			runs = append(runs, pod.Spec.Containers[i].Name+"="+pod.Spec.Containers[i].Image)
		}
		fmt.Fprintf(&n.text, "%s: %s", pod.Name, strings.Join(runs, " "))
		if entries := sidecarset.UpgradableOf(pod); entries != nil {
			fmt.Fprintf(&n.text, ", upgradable %v", entries)
		}
		n.text.WriteString("\n")
	}
}

// TestNarratives plays upgrades and compares every plan, as printed, with a golden file; -update writes them.
func TestNarratives(t *testing.T) {
	env := func(value string) func(*appsv1beta1.SidecarSet) {
		return func(set *appsv1beta1.SidecarSet) {
			set.Spec.Containers[0].Env = nil
			if value != "" {
				set.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "E", Value: value}}
			}
		}
	}
	all := sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.MaxUnavailable = new(intstr.FromString("100%")) })
	tales := map[string]struct {
		set  *appsv1beta1.SidecarSet
		pods int
		play func(*tale)
	}{
		"an image in place": {sidecarsettest.Set(), 3, func(n *tale) { // SS-192, SS-219, SS-225, SS-230, SS-265
			n.then("proxy:2", sidecarsettest.Image("proxy", "proxy:2"))
		}},
		"a native sidecar in place": {sidecarsettest.Set(sidecarsettest.Containers(),
			sidecarsettest.Inits(sidecarsettest.NativeSidecar("net:1"))), 2, func(n *tale) { // SS-W01
			n.then("net:2", sidecarsettest.Image("net", "net:2"))
		}},
		"SS-D20 more than an image": {sidecarsettest.Set(), 2, func(n *tale) { // SS-211, SS-260 to SS-262
			n.then("proxy:2 and an environment", sidecarsettest.Image("proxy", "proxy:2"), env("x"))
			n.then("the environment is taken back", env(""))
			n.then("back to proxy:1", sidecarsettest.Image("proxy", "proxy:1"))
		}},
		"SS-D23 partition": {sidecarsettest.Set(all), 3, func(n *tale) {
			n.then("proxy:2 in one of three", sidecarsettest.Image("proxy", "proxy:2"),
				sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Partition = new(intstr.FromInt32(2)) }))
			n.then("in all", sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Partition = nil }))
		}},
		"paused and resumed": {sidecarsettest.Set(), 2, func(n *tale) { // SS-220
			n.then("proxy:2 while paused", sidecarsettest.Image("proxy", "proxy:2"),
				sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Paused = true }))
			n.then("resumed", sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Paused = false }))
		}},
		"a bad image stops the rollout and is mended": {sidecarsettest.Set(), 3, func(n *tale) { // SS-212, SS-218
			n.then("proxy:bad", sidecarsettest.Image("proxy", "proxy:bad"))
			n.then("proxy:2", sidecarsettest.Image("proxy", "proxy:2"))
		}},
		"SS-240 hot upgrade": {sidecarsettest.Set(sidecarsettest.Containers(sidecarsettest.Hot("proxy", "proxy:1"))), 2,
			func(n *tale) { // SS-241 to SS-244
				n.then("proxy:2", sidecarsettest.Image("proxy", "proxy:2"))
				n.then("proxy:3", sidecarsettest.Image("proxy", "proxy:3"))
			}},
		"SS-D05 a hot upgrade that fails is taken back": {sidecarsettest.Set(sidecarsettest.Containers(sidecarsettest.Hot("proxy", "proxy:1"))),
			2, func(n *tale) {
				n.then("proxy:bad", sidecarsettest.Image("proxy", "proxy:bad"))
				n.then("proxy:1 again", sidecarsettest.Image("proxy", "proxy:1"))
			}},
		"SS-D03 another tag of the same image": {sidecarsettest.Set(), 2, func(n *tale) {
			n.Node.Digests["proxy:1"], n.Node.Digests["proxy:1-same"] = "same", "same"
			n.then("proxy:1-same", sidecarsettest.Image("proxy", "proxy:1-same"))
		}},
		"SS-D02 a pod that is deleted during its upgrade": {sidecarsettest.Set(), 2, func(n *tale) {
			n.Node.Frozen = map[string]bool{"web-0": true}
			n.then("proxy:2, but nothing happens on the node of web-0", sidecarsettest.Image("proxy", "proxy:2"))
			n.Remove(podKey("web-0"))
			n.then("web-0 is gone")
		}},
		"SS-D04 counters of NotUpdate": {sidecarsettest.Set(sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Type = appsv1beta1.NotUpdateSidecarSetStrategyType })), 3, func(n *tale) {
			n.then("proxy:2", sidecarsettest.Image("proxy", "proxy:2"))
			n.Remove(podKey("web-0"))
			n.Change(podKey("web-1"), func(o client.Object) { o.(*corev1.Pod).Labels["app"] = "other" })
			n.inject("web-3")
			n.then("one pod is gone, one does not match any more, one is new")
		}},
		"SS-227 an upgrade that changes no image": {sidecarsettest.Set(), 1, func(n *tale) {
			n.Change(podKey("web-0"), func(o client.Object) { o.(*corev1.Pod).Spec.Containers[0].Image = "proxy:2" })
			n.then("proxy:2, which somebody gave the pod already", sidecarsettest.Image("proxy", "proxy:2"))
		}},
		"SS-005 deleted and made again": {sidecarsettest.Set(), 1, func(n *tale) {
			n.then("proxy:2", sidecarsettest.Image("proxy", "proxy:2"))
			n.Remove(setKey)
			fmt.Fprintf(&n.text, "\n# the SidecarSet is deleted\n")
			if err := n.Settle(100); err != nil {
				n.t.Fatal(err)
			}
			for _, pod := range n.AllPods() {
				fmt.Fprintf(&n.text, "%s: %s, upgradable %v\n", pod.Name, pod.Annotations[pub.SidecarSetInjectedList], sidecarset.UpgradableOf(pod))
			}
			again := sidecarsettest.Set(sidecarsettest.Image("proxy", "proxy:3"))
			sidecarsettest.Stamp(again)
			n.Store(setKey, again)
			n.then("made again with proxy:3")
		}},
	}
	for name, tt := range tales {
		t.Run(name, func(t *testing.T) {
			n := &tale{t: t, simulated: simulate(7, tt.set, tt.pods)}
			n.told = n.note
			n.Node.Digests["proxy:bad"] = ""
			n.then(fmt.Sprintf("%d pods were injected", tt.pods))
			tt.play(n)
			simulationtest.Golden(t, name, n.text.String(), n.Recorded, *update)
		})
	}
}
