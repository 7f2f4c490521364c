package pod

import (
	"context"
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
	podunavailablebudgetcontroller "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller"
)

// +kubebuilder:rbac:groups=policy,roleName=kruise-manager-budget-role,resources=poddisruptionbudgets,verbs=get;list;watch

// Budgets heeds PodUnavailableBudgets.
type Budgets struct {
	// Guard knows the budgets, and books in them.
	Guard interface {
		Book(ctx context.Context,
			request podunavailablebudgetcontroller.Request) (podunavailablebudgetcontroller.Answer, error)
		Covering(ctx context.Context, pod *corev1.Pod) (*policyv1beta1.PodUnavailableBudget, error)
	}
	// Cached lists PodDisruptionBudgets.
	Cached client.Reader
	// Tell is called with what is refused, and Passed with what a budget would refuse and the cluster itself
	// does.
	Tell, Passed func(disruption *Disruption, why string)
}

// ofCluster are the users whose deletions no budget holds: the scheduler, which deletes pods for others of a
// higher priority, and the controllers of Kubernetes that delete pods which a taint drives away, or whose
// node is gone. Who may write budgets in one namespace must not decide about these. A review that somebody
// forges with such a name changes nothing: the API server asks for itself before it deletes anything.
var ofCluster = []string{
	"system:kube-scheduler", "system:serviceaccount:kube-system:taint-eviction-controller",
	"system:serviceaccount:kube-system:node-controller",
	"system:serviceaccount:kube-system:pod-garbage-collector",
}

// controllerManager is the user of all controllers of Kubernetes where they have no service accounts of their
// own. What a deletion is for is in the condition that they write before, which only those can who may write
// the status of pods.
const controllerManager = "system:kube-controller-manager"

// byCluster tells whether it is a deletion that no budget holds.
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

// Check returns the check that refuses what budgets do not allow, and books the rest (PUB-080 to PUB-093).
func (b *Budgets) Check() Check { return Check{Name: "podunavailablebudget", Apply: b.check} }

func (b *Budgets) check(ctx context.Context, d *Disruption) error {
	request := podunavailablebudgetcontroller.Request{Pod: d.Pod, By: d.By, DryRun: d.DryRun}
	if d.By == policyv1beta1.Evict && !d.DryRun {
		// What a PodDisruptionBudget refuses after this is not to use up the budget, nor to go on doing so.
		answer, err := b.Guard.Book(ctx,
			podunavailablebudgetcontroller.Request{Pod: d.Pod, By: d.By, DryRun: true})
		if err != nil {
			return &InternalError{err}
		}
		if answer.Allowed && (answer.Booked || answer.Renewed) {
			if why, err := b.disruptionBudget(ctx, d.Pod); err != nil {
				return &InternalError{err}
			} else if why != "" {
				return &Refused{Message: why}
			}
		}
	}
	answer, err := b.Guard.Book(ctx, request)
	if d.byCluster() && (err != nil || !answer.Allowed) {
		if !d.DryRun {
			if err != nil {
				answer.Reason = err.Error()
			}
			b.Passed(d, answer.Reason)
		}
		return nil
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

// disruptionBudget says which PodDisruptionBudget is about to refuse the eviction of a pod in service; empty
// if none is.
func (b *Budgets) disruptionBudget(ctx context.Context, pod *corev1.Pod) (string, error) {
	var budgets policyv1.PodDisruptionBudgetList
	if err := b.Cached.List(ctx, &budgets, client.InNamespace(pod.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	for i := range budgets.Items {
		budget := &budgets.Items[i]
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
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

// Step returns the step that tells a new pod which budget covers it (PUB-071). What cannot be found out
// blocks no pod, and the controller looks at it later (PUB-074).
func (b *Budgets) Step() Step {
	return Step{Name: "podunavailablebudget", Apply: func(ctx context.Context, request *Request) ([]operations.Operation, error) {
		pod := request.Pod.DeepCopy()
		pod.Namespace = request.Namespace
		budget, err := b.Guard.Covering(ctx, pod)
		if err != nil || budget == nil {
			return nil, nil //nolint:nilerr
		}
		return annotate(request.Pod,
			map[string]any{pub.RelatedBudget: budget.Name, pub.RelatedBudgetLegacy: budget.Name}), nil
	},
	}
}

// annotate sets annotations of a pod.
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
