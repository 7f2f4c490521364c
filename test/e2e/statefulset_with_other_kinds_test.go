//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/test/story"
)

// named is the name of the pod of an ordinal.
func (s *stateful) named(ordinal int) string { return fmt.Sprintf("%s-%d", s.key.Name, ordinal) }

// TestStatefulSetOnDelete: under OnDelete a new template touches no pod; one that somebody deletes comes back
// with it, and RolloutWaiting is not told of the others (ASTS-107 (part), ASTS-145 (part)).
func TestStatefulSetOnDelete(t *testing.T) {
	t.Parallel()
	s := settle(t, "ondelete", "replicas: 3\nupdateStrategy: {type: OnDelete}")
	s.image("nginx:1.27")
	s.pass()
	s.happened()
	pod := s.seen[s.named(1)]
	if err := kube.Delete(t.Context(), &pod); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod that comes back", func(context.Context) string {
		now := s.pods()[pod.Name]
		if now.UID == pod.UID || now.Name == "" || !story.Ready(&now) || now.Spec.Containers[0].Image != "nginx:1.27" {
			return fmt.Sprintf("%s with %v", now.UID, now.Spec.Containers)
		}
		return ""
	})
	s.pass()
	s.happened("1 goes", "1 gone", "1 created", "1 ready")
	if is := s.get().Status; is.UpdatedReplicas != 1 || is.CurrentReplicas != 2 {
		t.Errorf("status %+v", is)
	}
}

// TestStatefulSetHookInOrder: an update in place in order waits for its hook without holding up itself when
// the hook lets go (ASTS-125 (part), ASTS-220 (part)): defect D1 of the reference.
func TestStatefulSetHookInOrder(t *testing.T) {
	t.Parallel()
	const hook = "traffic"
	s := settle(t, "hooked", "replicas: 2\nlifecycle: {inPlaceUpdate: {labelsHandler: {"+hook+": \"on\"}, markPodNotReady: true}}\n"+
		"template: {metadata: {labels: {app: hooked, "+hook+": \"on\"}}}"+inPlaceInOrder)
	label := func(name, value string) {
		t.Helper()
		pod := s.pods()[name]
		if err := kube.Patch(t.Context(), &pod, client.RawPatch("application/merge-patch+json",
			fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, hook, value))); err != nil {
			t.Fatal(err)
		}
	}
	state := func(name string, want pub.LifecycleStateType) {
		t.Helper()
		eventually(t, fmt.Sprintf("pod %s in state %s", name, want), func(context.Context) string {
			if got := s.pods()[name].Labels[pub.LifecycleState]; got != string(want) {
				return got
			}
			return ""
		})
	}
	s.image("nginx:1.27")
	for _, ordinal := range []int{1, 0} {
		name := s.named(ordinal)
		state(name, pub.LifecycleStatePreparingUpdate)
		s.pass()
		if image := s.pods()[name].Spec.Containers[0].Image; image != "nginx:1.26" {
			t.Errorf("pod %s has %s while its hook holds it", name, image)
		}
		label(name, "null") // whoever drains it is done
		state(name, pub.LifecycleStateUpdated)
		label(name, `"on"`) // and takes it back into service
		state(name, pub.LifecycleStateNormal)
	}
	s.settled()
	s.inPlace("nginx:1.27", 1)
	if happened, lowest := s.told(); lowest != 1 {
		t.Errorf("%d of 2 pods were ready at the least, not 1: %v", lowest, happened)
	}
}

// TestStatefulSetBesideOthers: the ordinals of a StatefulSet are spread by a WorkloadSpread, its pods have a
// sidecar that is upgraded without them, and one of their containers is restarted by a request; the
// StatefulSet then updates them in place (ASTS-361 (part)).
func TestStatefulSetBesideOthers(t *testing.T) {
	t.Parallel()
	of := zones(t)
	agents := createSidecars(t, "stateful", `
containers: [{name: agent, image: "app:v1", imagePullPolicy: IfNotPresent, args: [sh, -c, "while true; do sleep 0.2; done"]}]
updateStrategy: {maxUnavailable: 2}
`)
	// The set comes first, without pods, since the WorkloadSpread is for this one of its namespace.
	s := declare(t, "stateful", "replicas: 0\nreserveOrdinals: [1]"+inPlaceTwo)
	spread(t, s.key.Namespace, `{apiVersion: apps.kruise.io/v1beta1, kind: StatefulSet, name: stateful}`, `subsets: [`+
		in("a", `, maxReplicas: 1`)+`, `+in("b", `, maxReplicas: 2`)+`, `+in("c", ``)+`]`)
	s.change(`spec: {replicas: 4}`)
	s.settled()
	agents.settled(4)
	s.seen = s.pods()
	s.told()
	zones := map[string]string{}
	for name, pod := range s.seen {
		placed, _ := pub.ParsePlacement(pod.Annotations)
		zones[strings.TrimPrefix(name, "stateful-")] = placed.Subset + " in " + of[pod.Spec.NodeName]
	}
	for ordinal, want := range map[string]string{"0": "zone-a in a", "2": "zone-b in b", "3": "zone-b in b", "4": "zone-c in c"} {
		if zones[ordinal] != want {
			t.Errorf("pod %s is in %q, not %q", ordinal, zones[ordinal], want)
		}
	}

	agents.image("containers/0", "app:v2")
	agents.settled(4)
	s.untouched()
	s.workload.restarted("agent", "app:v2", 1)

	pod := s.pods()[s.named(2)]
	succeeded(t, recreated(t, &pod, "restart", "containers: [{name: nginx}]"))
	restarted(t, &pod, map[string]int32{"nginx": 1})

	s.seen = s.pods()
	s.image("nginx:1.27")
	s.settled()
	s.workload.restarted("nginx", "nginx:1.27", 1)
	s.workload.restarted("agent", "app:v2", 0)
	for name, before := range s.seen {
		if after := s.pods()[name]; after.UID != before.UID || len(after.Spec.Containers) != 2 {
			t.Errorf("pod %s was replaced, or has %d containers", name, len(after.Spec.Containers))
		}
	}
}
