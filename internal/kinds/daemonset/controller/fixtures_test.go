package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/simulation"
)

var everything = daemonset.Features{InPlace: inplace.Options{EnvFromMetadata: true, Resize: true}, DeferredResize: time.Minute}

// option changes a set.
type option = func(*appsv1beta1.DaemonSet)

func image(name string) option {
	return func(set *appsv1beta1.DaemonSet) {
		setTemplate(set, fmt.Sprintf(`{"metadata":{"labels":{"app":"agent"}},"spec":{"containers":[{"name":"agent","image":%q}]}}`, name))
	}
}

func inPlace(set *appsv1beta1.DaemonSet) {
	set.Spec.UpdateStrategy.RollingUpdate.Type = appsv1beta1.InPlaceIfPossibleRollingUpdateType
}

func rolling(change func(*appsv1beta1.RollingUpdateDaemonSet)) option {
	return func(set *appsv1beta1.DaemonSet) { change(set.Spec.UpdateStrategy.RollingUpdate) }
}

func maxUnavailable(n int) option {
	return rolling(func(r *appsv1beta1.RollingUpdateDaemonSet) { r.MaxUnavailable = number(n) })
}

func maxSurge(n int) option {
	return rolling(func(r *appsv1beta1.RollingUpdateDaemonSet) { r.MaxSurge, r.MaxUnavailable = number(n), nil })
}

func partition(n int) option {
	return rolling(func(r *appsv1beta1.RollingUpdateDaemonSet) { r.Partition = number(n) })
}

func paused(yes bool) option {
	return rolling(func(r *appsv1beta1.RollingUpdateDaemonSet) { r.Paused = yes })
}

func onDelete(set *appsv1beta1.DaemonSet) {
	set.Spec.UpdateStrategy.Type = appsv1beta1.OnDeleteDaemonSetStrategyType
}

func annotated(key, value string) option {
	return func(set *appsv1beta1.DaemonSet) { set.Annotations = map[string]string{key: value} }
}

// drained has pods wait for the removal of label drain, which they are made with, before they are deleted.
func drained(set *appsv1beta1.DaemonSet) {
	set.Spec.Lifecycle = &pub.Lifecycle{PreDelete: &pub.LifecycleHook{LabelsHandler: map[string]string{"drain": "yes"}, MarkPodNotReady: true}}
	setTemplate(set, `{"metadata":{"labels":{"app":"agent","drain":"yes"}},"spec":{"readinessGates":[{"conditionType":"KruisePodReady"}],`+
		`"containers":[{"name":"agent","image":"agent:1"}]}}`)
}

// started is a set whose pods are available on all of these nodes.
func started(t *testing.T, set *appsv1beta1.DaemonSet, features daemonset.Features, nodeNames ...string) *simulated {
	t.Helper()
	s := simulate(1, set, features, nodeNames...)
	s.Node.Daemon = true
	s.RunFor(5 * time.Minute)
	if got := s.set().Status.NumberAvailable; int(got) != len(nodeNames) {
		t.Fatal("it does not start: ", s.describe())
	}
	s.Recorded = nil
	return s
}

func verb(verb, kind string) func(*simulation.Request) bool {
	return func(r *simulation.Request) bool { return r.Verb == verb && r.Key.Kind == kind }
}

// only is the only pod on a node.
func (s *simulated) only(t *testing.T, node string) *corev1.Pod {
	t.Helper()
	pods := s.PodsOn(node)
	if len(pods) != 1 {
		t.Fatalf("%d pods on node %s: %s", len(pods), node, s.describe())
	}
	return pods[0]
}

// edit changes the only pod of a node.
func (s *simulated) edit(t *testing.T, node string, change func(*corev1.Pod)) {
	t.Helper()
	s.Change(podKey(s.only(t, node).Name), func(o client.Object) { change(o.(*corev1.Pod)) })
}

// images are those of the pods, in the order of their nodes, such as "1 2", with two on one node as "1+2".
func (s *simulated) images() string {
	var words []string
	for _, node := range s.nodes() {
		var tags []string
		for _, pod := range s.PodsOn(node.Name) {
			_, tag, _ := strings.Cut(pod.Spec.Containers[0].Image, ":")
			tags = append(tags, tag)
		}
		words = append(words, strings.Join(tags, "+"))
	}
	return strings.Join(words, " ")
}

func (s *simulated) taint(node, key string, effect corev1.TaintEffect) {
	s.Change(nodeKey(node), func(o client.Object) {
		o.(*corev1.Node).Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}}
	})
}

// report has a node say since now whether it is ready.
func (s *simulated) report(node string, is corev1.ConditionStatus) {
	s.Change(nodeKey(node), func(o client.Object) {
		o.(*corev1.Node).Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is,
			LastTransitionTime: metav1.NewTime(s.Now())}}
	})
}

// storeRevision stores a revision of another image, with these labels, that nobody owns.
func (s *simulated) storeRevision(name string, labels map[string]string) {
	s.Store(revisionKey(name), &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels},
		Revision: 1, Data: runtime.RawExtension{Raw: []byte(`{"spec":{"template":{"$patch":"replace",` +
			`"metadata":{"labels":{"app":"agent"}},"spec":{"containers":[{"name":"agent","image":"` + name + `"}]}}}}`)}})
}
