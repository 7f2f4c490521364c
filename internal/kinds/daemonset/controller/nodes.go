package controller

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
)

// nodeEvents calls for a pass over those sets for which the change of a node matters (ADS-084 to 086). What
// it costs does not depend on how many pods or nodes there are.
func (k *Kube) nodeEvents() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]
	tell := func(ctx context.Context, q queue, before, after *corev1.Node) {
		for _, request := range k.setsOfNode(ctx, before, after) {
			q.Add(request)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if node, ok := e.Object.(*corev1.Node); ok && !e.IsInInitialList { // at the start every set gets a pass
				tell(ctx, q, nil, node)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok := e.ObjectOld.(*corev1.Node)
			if after, is := e.ObjectNew.(*corev1.Node); ok && is {
				tell(ctx, q, before, after)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if node, ok := e.Object.(*corev1.Node); ok {
				tell(ctx, q, node, nil)
			}
		},
	}
}

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
		rules := k.Rules.of(&sets.Items[i])
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

// Rules are what the templates of sets ask of nodes, which is read once for each generation of a set.
type Rules struct {
	mu   sync.Mutex
	sets map[types.UID]*rules
}

// rules are what one set asks of nodes.
type rules struct {
	generation int64
	patience   bool
	// pods selects the set's pods, nothing if it selects everything; selector selects nodes of its rollouts.
	pods, selector labels.Selector
	*nodes.Rules
}

// of returns the rules of a set.
func (r *Rules) of(set *appsv1beta1.DaemonSet) *rules {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, patience := set.Annotations[pub.DaemonSetIgnoreNotReadyNodesAfter]
	if known := r.sets[set.UID]; known != nil && known.generation == set.Generation && known.patience == patience {
		return known
	}
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
	if r.sets == nil {
		r.sets = map[types.UID]*rules{}
	}
	r.sets[set.UID] = read
	return read
}

func (r *Rules) forget(set types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sets, set)
}

// view is what a set sees of a node.
type view struct {
	eligible, tolerable, selected bool
	ready                         corev1.ConditionStatus
}

// seen is what the set sees of a node; nothing of one that does not exist.
func (r *rules) seen(node *corev1.Node) (v view) {
	if node == nil {
		return v
	}
	verdict := r.Judge(node)
	v.eligible, v.tolerable = verdict.Eligible, verdict.Tolerable
	if r.selector != nil {
		v.selected = r.selector.Matches(labels.Set(node.Labels))
	}
	if r.patience && v.tolerable {
		v.ready = ready(node)
	}
	return v
}
