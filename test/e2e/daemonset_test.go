//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
)

// realNodes is how many nodes the cluster has.
const realNodes = 3

// onNodes is a DaemonSet under test.
type onNodes struct{ *workload }

// placed makes a DaemonSet of nginx pods from a v1beta1 spec, and waits until so many nodes have an available
// pod.
func placed(t *testing.T, name, spec string, pods int) *onNodes {
	t.Helper()
	set := &appsv1beta1.DaemonSet{}
	document(t, set, name, namespace(t), spec)
	if err := kube.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	d := &onNodes{&workload{t: t, object: &appsv1beta1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: name}},
		key: client.ObjectKeyFromObject(set)}}
	d.settled(pods)
	d.seen = d.pods()
	return d
}

func (d *onNodes) get() *appsv1beta1.DaemonSet {
	d.t.Helper()
	set := &appsv1beta1.DaemonSet{}
	if err := kube.Get(d.t.Context(), d.key, set); err != nil {
		d.t.Fatal(err)
	}
	return set
}

// settled waits until so many nodes should have a pod, and have an available one of the present template, and
// no pod is left beside them.
func (d *onNodes) settled(pods int) {
	d.t.Helper()
	eventually(d.t, "the DaemonSet", func(context.Context) string {
		set := d.get()
		if is := set.Status; is.ObservedGeneration != set.Generation || int(is.DesiredNumberScheduled) != pods ||
			int(is.NumberAvailable) != pods || int(is.UpdatedNumberScheduled) != pods || len(d.pods()) != pods || is.NumberMisscheduled > 0 {
			return fmt.Sprintf("%+v, %d pods", is, len(d.pods()))
		}
		return ""
	})
}

// update gives the container of the template image nginx:1.27.
func (d *onNodes) update() {
	d.t.Helper()
	patch := client.RawPatch(types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"nginx:1.27"}]`))
	if err := kube.Patch(d.t.Context(), d.object.DeepCopyObject().(client.Object), patch); err != nil {
		d.t.Fatal(err)
	}
}

// onEach checks that each of the nodes has exactly one pod, with that image.
func (d *onNodes) onEach(image string, count int) {
	d.t.Helper()
	byNode := map[string]int{}
	for name, pod := range d.pods() {
		byNode[nodes.Target(&pod)]++
		if got := pod.Spec.Containers[0].Image; got != image {
			d.t.Errorf("pod %s has %s, not %s", name, got, image)
		}
	}
	if len(byNode) != count {
		d.t.Errorf("pods on %v, not on %d nodes", byNode, count)
	}
	for node, n := range byNode {
		if n != 1 {
			d.t.Errorf("%d pods on node %s", n, node)
		}
	}
}

// TestDaemonSetInPlace: each node gets one pod, which the scheduler binds, and an update in place takes one
// after the other (ADS-001 (part), ADS-002 (part), ADS-081 (part), ADS-114 (part), ADS-130 (part),
// ADS-140 (part)).
func TestDaemonSetInPlace(t *testing.T) {
	t.Parallel()
	d := placed(t, "agent", "updateStrategy: {rollingUpdate: {rollingUpdateType: InPlaceIfPossible}}", realNodes)
	d.onEach("nginx:1.26", realNodes)
	events := watchPods(t, d.key.Namespace)
	since := time.Now()
	d.update()
	d.settled(realNodes)
	d.inPlace("nginx:1.27", 1)
	for name := range d.pods() {
		tookAtMost(t, 3, name, since)
	}
	notBelow(t, events, realNodes, realNodes-1)
}

// TestDaemonSetSurge: with a surge a node gets its new pod before it loses the old one (ADS-095 (part),
// ADS-160 (part), ADS-161 (part)).
func TestDaemonSetSurge(t *testing.T) {
	t.Parallel()
	d := placed(t, "surge", "minReadySeconds: 1\nupdateStrategy: {rollingUpdate: {maxSurge: 1}}", realNodes)
	events := watchPods(t, d.key.Namespace)
	d.update()
	d.settled(realNodes)
	d.onEach("nginx:1.27", realNodes)
	for name := range d.pods() {
		if _, old := d.seen[name]; old {
			t.Errorf("pod %s has the name of an old one", name)
		}
	}
	notBelow(t, events, realNodes, realNodes)
}

// TestDaemonSetFollowsNodes: pods come and go with the label that the template asks for; a node that comes in
// the middle of a rollout and never runs anything does not hold it up where the set says so, and its pod goes
// with it (ADS-083 to 086 (part), ADS-090 (part), ADS-136 (part)).
func TestDaemonSetFollowsNodes(t *testing.T) {
	t.Parallel()
	const label, taint = "afloat.dev/e2e-daemonset", "afloat.dev/e2e-no-kubelet"
	var names []string
	for _, node := range kubelets(t) {
		names = append(names, node.Name)
	}
	mark := func(node, value string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+label+`":`+value+`}}}`))
		if err := kube.Patch(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		for _, name := range names {
			mark(name, "null")
		}
	})
	mark(names[0], `"on"`)
	mark(names[1], `"on"`)
	d := placed(t, "follows", `
updateStrategy: {rollingUpdate: {maxUnavailable: 1}}
template: {spec: {nodeSelector: {`+label+`: "on"}, tolerations: [{key: `+taint+`}]}}
`, 2)
	mark(names[2], `"on"`)
	d.settled(3)
	mark(names[0], "null")
	d.settled(2)
	if pods := d.pods(); len(pods) != 2 {
		t.Errorf("%d pods are left", len(pods))
	}

	d.change(`metadata: {annotations: {apps.kruise.io/daemonset-ignore-not-ready-nodes-after: 1s}}`)
	unserved := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "unserved-" + d.key.Namespace, Labels: map[string]string{label: "on"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: taint, Effect: corev1.TaintEffectNoSchedule}}}}
	if err := kube.Create(t.Context(), unserved); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(kube.Delete(context.Background(), unserved)); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "a pod for the node that came", func(context.Context) string {
		for _, pod := range d.pods() {
			if nodes.Target(&pod) == unserved.Name {
				return ""
			}
		}
		return "none"
	})
	d.update()
	eventually(t, "the rollout on the other nodes", func(context.Context) string {
		updated := 0
		for _, pod := range d.pods() {
			if nodes.Target(&pod) != unserved.Name && pod.Spec.Containers[0].Image == "nginx:1.27" {
				updated++
			}
		}
		if is := d.get().Status; updated != 2 || is.NumberAvailable != 2 {
			return fmt.Sprintf("%d updated, %+v", updated, is)
		}
		return ""
	})
	eventually(t, "what is left out", func(ctx context.Context) string {
		return eventWith(ctx, d.key.Namespace, "NodesLeftOut", unserved.Name)
	})
	if err := kube.Delete(t.Context(), unserved); err != nil {
		t.Fatal(err)
	}
	d.settled(2)
	d.onEach("nginx:1.27", 2)
}

// TestDaemonSetTakesOverANativeOne: pods of a DaemonSet of Kubernetes that was deleted without them become
// those of one of ours with the manifest as its author wrote it: they get another owner and nothing else.
// They are updated, and can be given back in the same way (ADS-002 (part), ADS-046 (part), ADS-061 (part)).
func TestDaemonSetTakesOverANativeOne(t *testing.T) {
	t.Parallel()
	native := &appsv1.DaemonSet{}
	const spec = "updateStrategy: {rollingUpdate: {maxUnavailable: 3}}"
	document(t, native, "kept", namespace(t), spec)
	written := native.DeepCopy()
	if err := kube.Create(t.Context(), native); err != nil {
		t.Fatal(err)
	}
	d := &onNodes{&workload{t: t, object: &appsv1beta1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: native.Namespace,
		Name: native.Name}}, key: client.ObjectKeyFromObject(native)}}
	nativeDaemons(t, native)
	before := d.pods()
	give := func(set client.Object) {
		t.Helper()
		if err := kube.Delete(t.Context(), set, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the end of the DaemonSet", func(ctx context.Context) string {
			if err := kube.Get(ctx, client.ObjectKeyFromObject(set), set.DeepCopyObject().(client.Object)); !apierrors.IsNotFound(err) {
				return fmt.Sprint("it is there: ", err)
			}
			return ""
		})
	}
	give(native)
	since := time.Now()
	ours := &appsv1beta1.DaemonSet{}
	document(t, ours, "kept", native.Namespace, spec)
	if err := kube.Create(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	d.settled(realNodes)
	for name, pod := range d.pods() {
		old := before[name]
		old.OwnerReferences, old.ManagedFields, old.ResourceVersion = pod.OwnerReferences, pod.ManagedFields, pod.ResourceVersion
		if !equality.Semantic.DeepEqual(pod, old) || !metav1.IsControlledBy(&pod, d.get()) {
			t.Errorf("pod %s is now\n%s\nand was\n%s", name, pod.String(), old.String())
		}
		if writes := podWrites(t, since)[name]; len(writes) != 1 {
			t.Errorf("pod %s took %v, not one write of its owner", name, writes)
		}
	}
	d.update()
	d.settled(realNodes)
	d.onEach("nginx:1.27", realNodes)
	before = d.pods()

	give(d.get())
	written.Spec.Template.Spec.Containers[0].Image = "nginx:1.27"
	if err := kube.Create(t.Context(), written); err != nil {
		t.Fatal(err)
	}
	nativeDaemons(t, written)
	for name, pod := range d.pods() {
		if old, ok := before[name]; !ok || old.UID != pod.UID || pod.Status.ContainerStatuses[0].RestartCount != 0 ||
			!metav1.IsControlledBy(&pod, written) {
			t.Errorf("pod %s was not there before, or restarted, or is not the other's: %v", name, pod.ObjectMeta)
		}
	}
}

// nativeDaemons waits until a DaemonSet of Kubernetes has its pods.
func nativeDaemons(t *testing.T, set *appsv1.DaemonSet) {
	t.Helper()
	eventually(t, "the DaemonSet of Kubernetes", func(ctx context.Context) string {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
			return err.Error()
		}
		if is := set.Status; is.ObservedGeneration != set.Generation || is.NumberAvailable != realNodes || is.UpdatedNumberScheduled != realNodes {
			return fmt.Sprintf("%+v", is)
		}
		return ""
	})
}

// TestDaemonSetDrain: a node is drained in the middle of a rollout: its pod is evicted, the next one comes to
// the same node although it is cordoned, and the rollout ends (ADS-081 (part), ADS-097 (part)).
func TestDaemonSetDrain(t *testing.T) {
	d := placed(t, "drained", "updateStrategy: {rollingUpdate: {rollingUpdateType: InPlaceIfPossible}}", realNodes)
	node := ""
	for _, pod := range d.pods() {
		node = pod.Spec.NodeName
	}
	t.Cleanup(func() {
		if out, err := exec.CommandContext(context.Background(), os.Getenv("KUBECTL"), "uncordon", node).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	d.update()
	// kubectl does not know DaemonSets of another group: it wants to be told that their pods may go.
	out, err := exec.CommandContext(t.Context(), os.Getenv("KUBECTL"), "drain", node, "--ignore-daemonsets", "--force",
		"--pod-selector=app=drained", "--timeout=150s").CombinedOutput()
	if err != nil {
		t.Fatalf("drain: %v: %s", err, out)
	}
	d.settled(realNodes)
	d.onEach("nginx:1.27", realNodes)
}
