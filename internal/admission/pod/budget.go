package pod

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	podunavailablebudgetcontroller "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller"
	"github.com/afloat-project/afloat/internal/reconcile/booking"
)

// +kubebuilder:rbac:groups=policy,roleName=kruise-manager-budget-role,resources=poddisruptionbudgets,verbs=get;list;watch

// Budgets enforces PodUnavailableBudgets.
type Budgets struct {
	// Guard finds budgets, and books disruptions in them.
	Guard interface {
		Book(ctx context.Context,
			request podunavailablebudgetcontroller.Request) (podunavailablebudgetcontroller.Answer, error)
		Covering(ctx context.Context, pod *corev1.Pod) (*policyv1beta1.PodUnavailableBudget, error)
	}
	// Cached lists PodDisruptionBudgets.
	Cached client.Reader
	// Tell is called for a disruption that is rejected, and Passed for a deletion by the cluster itself that
	// a budget would reject.
	Tell, Passed func(disruption *Disruption, why string)
}

// ofCluster are the users whose deletions no budget blocks: the scheduler, which preempts pods for others of
// a higher priority, and the controllers of Kubernetes that delete pods because of a taint or because their
// node is gone. Users who may write budgets in one namespace must not decide about these. A forged review
// with such a user has no effect: the API server sends its own review before it deletes anything.
var ofCluster = []string{
	"system:kube-scheduler", "system:serviceaccount:kube-system:taint-eviction-controller",
	"system:serviceaccount:kube-system:node-controller",
	"system:serviceaccount:kube-system:pod-garbage-collector",
}

// controllerManager is the user of all controllers of Kubernetes in clusters where they have no service
// accounts of their own. The condition that they write before a deletion shows its purpose, and only users
// who may write the status of pods can write that condition.
const controllerManager = "system:kube-controller-manager"

// byCluster reports whether this is a deletion that no budget blocks.
func (d *Disruption) byCluster() bool {
	switch {
	case d.By != policyv1beta1.Delete:
		return false
	case d.User == controllerManager:
		return slices.ContainsFunc(d.Pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue &&
				(c.Reason == "DeletionByTaintManager" || c.Reason == "DeletionByPodGC")
		})
	}
	return slices.Contains(ofCluster, d.User)
}

// ends reports whether a namespace is being deleted. Its workloads and budgets go only when all of its pods are gone, and nothing
// takes the place of a pod that goes.
func (b *Budgets) ends(ctx context.Context, name string) bool {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return b.Cached.Get(ctx, client.ObjectKey{Name: name}, namespace) == nil && namespace.DeletionTimestamp != nil
}

// Check returns the check that rejects what budgets do not allow, and books the rest (PUB-080 to PUB-093).
func (b *Budgets) Check() Check { return Check{Name: "podunavailablebudget", Apply: b.check} }

func (b *Budgets) check(ctx context.Context, d *Disruption) error {
	request := podunavailablebudgetcontroller.Request{Pod: d.Pod, By: d.By, DryRun: d.DryRun}
	if d.By == policyv1beta1.Evict && !d.DryRun {
		// An eviction that a PodDisruptionBudget will reject afterwards must not use up the budget, even
		// repeatedly.
		answer, err := b.Guard.Book(ctx,
			podunavailablebudgetcontroller.Request{Pod: d.Pod, By: d.By, DryRun: true})
		if err != nil {
			return &InternalError{err}
		}
		if !answer.Allowed || answer.Booked || answer.Renewed {
			switch why, err := b.disruptionBudget(ctx, d.Pod, answer.Free); {
			case answer.Free && err == nil && why != "":
				return nil // it is not booked, and left to the API server
			case !answer.Allowed && err == nil && why != "": // by the cache; the API server may know that it is allowed
				b.Tell(d, answer.Reason)
				return &Refused{answer.Reason, answer.Pending}
			case answer.Free, !answer.Allowed: // it is booked if that is possible
			case err != nil:
				return &InternalError{err}
			case why != "":
				return &Refused{Message: why}
			}
		}
	}

	answer, err := b.Guard.Book(ctx, request)
	if (err != nil || !answer.Allowed) && (d.byCluster() || d.By == policyv1beta1.Delete && b.ends(ctx, d.Pod.Namespace)) {
		if !d.DryRun {
			if err != nil {
				answer.Reason = err.Error()
			}
			b.Passed(d, answer.Reason)
		}
		return nil
	}

	if d.By == policyv1beta1.Evict && (errors.Is(err, booking.ErrNotBooked) || errors.Is(err, booking.ErrBusy) ||
		errors.Is(err, booking.ErrReplaced) || errors.Is(err, booking.ErrBehind)) {
		return &Refused{Message: err.Error(), Pending: true} // a drain of many pods comes again, and does not abort
	}
	if err != nil {
		return &InternalError{err}
	}
	if answer.Allowed {
		return nil
	}
	if !d.DryRun {
		b.Tell(d, answer.Reason)
	}

	return &Refused{answer.Reason, answer.Pending}
}

// disruptionBudget returns which PodDisruptionBudget is about to reject the eviction of a pod, or "". The API server
// does not ask them about pods that are pending.
func (b *Budgets) disruptionBudget(ctx context.Context, pod *corev1.Pod, free bool) (string, error) {
	if pod.Status.Phase == corev1.PodPending {
		return "", nil
	}
	if free {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, podunavailablebudgetcontroller.FreeTime)
		defer cancel()
	}

	var budgets policyv1.PodDisruptionBudgetList
	if err := b.Cached.List(ctx, &budgets, client.InNamespace(pod.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}

	condition := readiness.Condition(pod, corev1.PodReady)
	ready := condition != nil && condition.Status == corev1.ConditionTrue
	for i := range budgets.Items {
		budget := &budgets.Items[i]
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) ||
			!ready && ofUnhealthy(budget) {
			continue
		}
		if _, admitted := budget.Status.DisruptedPods[pod.Name]; !admitted &&
			budget.Status.DisruptionsAllowed <= 0 {
			return fmt.Sprintf(
				"PodDisruptionBudget %s allows no disruption: %d healthy pods are needed, and there are %d",
				budget.Name, budget.Status.DesiredHealthy, budget.Status.CurrentHealthy,
			), nil
		}
	}

	return "", nil
}

// ofUnhealthy reports whether a PodDisruptionBudget lets the API server evict pods that are not ready whatever it
// allows otherwise.
func ofUnhealthy(budget *policyv1.PodDisruptionBudget) bool {
	if policy := budget.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		return true
	}
	return budget.Status.DesiredHealthy > 0 && budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy
}

// Step returns the step that records in a new pod which budget covers it (PUB-071). An error does not block
// the pod, and the controller looks at it later (PUB-074).
func (b *Budgets) Step() Step {
	return Step{
		Name: "podunavailablebudget",
		Apply: func(ctx context.Context, request *Request) ([]operations.Operation, error) {
			pod := request.Pod.DeepCopy()
			pod.Namespace = request.Namespace
			budget, err := b.Guard.Covering(ctx, pod)
			if err != nil || budget == nil {
				return nil, nil //nolint:nilerr // PUB-074
			}
			return annotate(request.Pod,
				map[string]any{pub.RelatedBudget: budget.Name, pub.RelatedBudgetLegacy: budget.Name}), nil
		},
	}
}

// annotate returns the operations that set annotations of a pod.
func annotate(pod *corev1.Pod, annotations map[string]any) []operations.Operation {
	if pod.Annotations == nil {
		return []operations.Operation{operations.NewOperation("add", "/metadata/annotations", annotations)}
	}
	var changes []operations.Operation
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		changes = append(changes, operations.NewOperation("add",
			"/metadata/annotations/"+strings.ReplaceAll(key, "/", "~1"), annotations[key]))
	}
	return changes
}
