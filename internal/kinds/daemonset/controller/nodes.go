package controller

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
)

// setsOfNode are the sets for which it matters that a node came (before is nil), went (after is nil), or
// changed.
func (k *Kube) setsOfNode(ctx context.Context, before, after *corev1.Node) []ctrl.Request {
	if before != nil && after != nil && sameForSets(before, after) {
		return nil
	}
	var sets appsv1beta1.DaemonSetList
	if err := k.Client.List(ctx, &sets, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the caches hold them
	}
	var requests []ctrl.Request
	for i := range sets.Items {
		rules := k.rulesOf(&sets.Items[i])
		if rules.seen(before) != rules.seen(after) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&sets.Items[i])})
		}
	}
	return requests
}

// sameForSets tells whether nothing changed that any set looks at.
func sameForSets(before, after *corev1.Node) bool {
	return maps.Equal(before.Labels, after.Labels) && before.Spec.Unschedulable == after.Spec.Unschedulable &&
		slices.EqualFunc(before.Spec.Taints, after.Spec.Taints, func(a, b corev1.Taint) bool { return equality.Semantic.DeepEqual(a, b) }) &&
		ready(before) == ready(after)
}

func ready(node *corev1.Node) corev1.ConditionStatus {
	if condition := nodes.Ready(node); condition != nil {
		return condition.Status
	}
	return corev1.ConditionUnknown
}

// rules are what one set asks of nodes.
type rules struct {
	generation int64
	patience   bool
	// pods selects the set's pods, nothing if it selects everything; selector selects nodes of its rollouts.
	pods, selector labels.Selector
	*nodes.Rules
}

// rulesOf returns the rules of a set, which are read once for each generation of it.
func (k *Kube) rulesOf(set *appsv1beta1.DaemonSet) *rules {
	_, patience := set.Annotations[pub.DaemonSetIgnoreNotReadyNodesAfter]
	return k.rules.Of(set, func(present *rules) *rules {
		if present != nil && present.generation == set.Generation && present.patience == patience {
			return present
		}
		return readRules(set, patience)
	})
}

func readRules(set *appsv1beta1.DaemonSet, patience bool) *rules {
	read := &rules{generation: set.Generation, patience: patience, Rules: nodes.ForDaemon(&set.Spec.Template.Spec)}
	if selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector); err == nil && !selector.Empty() {
		read.pods = selector
	} else {
		read.pods = labels.Nothing()
	}
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.Selector != nil &&
		set.Spec.UpdateStrategy.Type != appsv1beta1.OnDeleteDaemonSetStrategyType {
		if selector, err := metav1.LabelSelectorAsSelector(rolling.Selector); err == nil && !selector.Empty() {
			read.selector = selector
		}
	}
	return read
}

// view is what a set sees of a node.
type view struct {
	nodes.Verdict
	selected bool
	ready    corev1.ConditionStatus
}

// seen is what the set sees of a node; nothing of one that does not exist.
func (r *rules) seen(node *corev1.Node) (v view) {
	if node == nil {
		return v
	}
	v.Verdict = r.Judge(node)
	v.Why = "" // it may change all the time
	if r.selector != nil {
		v.selected = r.selector.Matches(labels.Set(node.Labels))
	}
	if r.patience && v.Tolerable {
		v.ready = ready(node)
	}
	return v
}
