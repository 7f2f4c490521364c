package controller

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/cputime"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// ADS-030, ADS-040 (parts): a tenant has a DaemonSet whose template has a node affinity of thousands of expressions, for which an object has
// room, and updates it again and again. The first event of a node, or of a pod that nobody controls, after each update reads the affinity, in
// the goroutine that handles the events of all nodes, or pods: those of the DaemonSets of all other tenants wait
// meanwhile, as with long selectors, which are refused. Reading it takes a time that is proportional to the square of
// its length, and each pass does it again.
func TestLongAffinitiesOfSetsDoNotHoldUpEventsOfNodes(t *testing.T) {
	const updates = 3
	node := func(labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}}
	}
	before, after := node(map[string]string{"a": "b"}), node(map[string]string{"a": "c"})
	event := func(terms int) (admitted bool, each time.Duration) {
		set := makeSet(func(set *appsv1beta1.DaemonSet) {
			term := corev1.NodeSelectorTerm{}
			for k := range terms {
				term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
					Key: fmt.Sprintf("k%d", k), Operator: corev1.NodeSelectorOpDoesNotExist})
			}
			set.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}}}
		})
		if text, err := json.Marshal(set); err != nil || len(text) > 1400<<10 {
			t.Fatalf("no API server stores %d bytes (%v)", len(text), err)
		}
		if len(daemonset.Validate(daemonset.WrittenInV1beta1(set), nil)) > 0 {
			return false, 0
		}
		lister := &setLister{sets: []appsv1beta1.DaemonSet{*set}}
		kube := &Kube{Reader: podapply.Reader{API: &reconcile.API{Client: lister}}}
		spent := cputime.Start(t)
		for range updates {
			lister.sets[0].Generation++
			kube.setsOfNode(t.Context(), before, after)
		}
		return true, spent() / updates
	}
	if admitted, usual := event(100); !admitted || usual > 100*time.Millisecond {
		t.Fatalf("a usual affinity: admitted %v, %s", admitted, usual)
	}
	// An object has room for 25,000.
	if admitted, long := event(8000); admitted && long > 200*time.Millisecond {
		t.Errorf("an event of one node takes %s of the goroutine that handles the events of all nodes", long)
	}
}
