package podunavailablebudget

import (
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

// Reference names a workload of a namespace, whatever the version of its API (PUB-071).
type Reference struct {
	schema.GroupKind
	Name string
}

// ControllerOf is the controller of an object; false if it has none.
func ControllerOf(object metav1.Object) (Reference, bool) {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil {
		return Reference{}, false
	}
	return Reference{schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind(), owner.Name}, true
}

// Rules are what of a budget is read for each pod. They are made once for each generation, and not changed.
type Rules struct {
	Budget *policyv1beta1.PodUnavailableBudget
	// Target is the workload that it names; the zero value if it has a selector.
	Target Reference
	// selector and ignored select nothing where the budget has none, or one that cannot be read.
	selector, ignored labels.Selector
	operations        sets.Set[disruption.Operation]
	windows           []Window
}

// NewRules compiles the rules of a budget.
func NewRules(budget *policyv1beta1.PodUnavailableBudget) *Rules {
	r := &Rules{Budget: budget, selector: compiled(budget.Spec.Selector),
		ignored: compiled(budget.Spec.IgnoredPodSelector), operations: Operations(budget),
		windows: Windows(budget)}
	if ref := budget.Spec.TargetReference; ref != nil {
		r.Target = Reference{schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind(), ref.Name}
	}
	return r
}

// compiled never selects everything: admission refuses empty selectors.
func compiled(selector *metav1.LabelSelector) labels.Selector {
	if selector == nil {
		return labels.Nothing()
	}
	made, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || made.Empty() {
		return labels.Nothing()
	}
	return made
}

// Targets tells whether the budget names a workload.
func (r *Rules) Targets() bool { return r.Target.Name != "" }

// Selects tells whether the budget has a selector that selects the pod (PUB-037).
func (r *Rules) Selects(pod *corev1.Pod) bool { return r.selector.Matches(labels.Set(pod.Labels)) }

// Covers tells whether the pod is of the set of the budget. above are what controls the pod, what controls
// that, and so on (PUB-072).
func (r *Rules) Covers(pod *corev1.Pod, above []Reference) bool {
	if r.Target.Name == "" {
		return r.Selects(pod)
	}
	for _, reference := range above {
		if reference == r.Target {
			return true
		}
	}
	return false
}

// Ignores tells whether the pod is counted, but not protected (PUB-038).
func (r *Rules) Ignores(pod *corev1.Pod) bool { return r.ignored.Matches(labels.Set(pod.Labels)) }

// Options are the gates that rules depend on.
type Options struct {
	// Deletes and Updates are gates PodUnavailableBudgetDeleteGate, for deletion and eviction, and
	// PodUnavailableBudgetUpdateGate, for updates and resizes (PUB-016).
	Deletes, Updates bool
	// Resizes: a resize is expected to restart nothing (gate InPlacePodVerticalScaling, PUB-085).
	Resizes bool
}

// Protects tells whether the budget limits the operation (PUB-012, PUB-016, PUB-085).
func (r *Rules) Protects(by disruption.Operation, options Options) bool {
	switch by {
	case policyv1beta1.Delete, policyv1beta1.Evict:
		return options.Deletes && r.operations.Has(by)
	case policyv1beta1.Resize:
		return options.Updates && (r.operations.Has(by) ||
			!options.Resizes && r.operations.Has(policyv1beta1.Update))
	}
	return options.Updates && r.operations.Has(by)
}

// Related returns of the budgets that cover a pod the one that decides about it; nil if there is none. That
// is the one that the pod names, or else one with targetRef before one with a selector, the older before the
// younger, and then the first by name (PUB-070, PUB-073).
func Related(pod *corev1.Pod, covering []*Rules) *Rules {
	var best *Rules
	named := RelatedName(pod)
	for _, r := range covering {
		if r.Budget.Name == named {
			return r
		}
		if best == nil || r.before(best) {
			best = r
		}
	}
	return best
}

func (r *Rules) before(o *Rules) bool {
	if byTarget := r.Target.Name != ""; byTarget != (o.Target.Name != "") {
		return byTarget
	}
	a, b := &r.Budget.ObjectMeta, &o.Budget.ObjectMeta
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// Rivals are the names of other budgets that cover active pods of this one, or decide about them.
func (r *Rules) Rivals(pods []*corev1.Pod, all []*Rules) []string {
	rivals := sets.New[string]()
	for _, other := range all {
		name := other.Budget.Name
		if name != r.Budget.Name && other.Budget.DeletionTimestamp == nil &&
			slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
				return readiness.Active(pod) && (other.Selects(pod) || RelatedName(pod) == name)
			}) {
			rivals.Insert(name)
		}
	}
	return sets.List(rivals)
}

// RelatedName is the name of the budget that the pod says to be covered by, empty if it says none (PUB-070).
func RelatedName(pod *corev1.Pod) string {
	if name := pod.Annotations[pub.RelatedBudget]; name != "" {
		return name
	}
	return pod.Annotations[pub.RelatedBudgetLegacy]
}

// Desired is how many of so many expected pods must stay in service (PUB-050, PUB-051).
func Desired(spec *policyv1beta1.PodUnavailableBudgetSpec, total int32) (int32, error) {
	if spec.MaxUnavailable != nil {
		unavailable, err := resolve(spec.MaxUnavailable, total)
		return max(total-unavailable, 0), err
	}
	return resolve(spec.MinAvailable, total)
}

// resolve is a number or a part of the total, rounded up. Without a number nothing is allowed.
func resolve(number *intstr.IntOrString, total int32) (int32, error) {
	if number == nil {
		return 0, errNoNumber
	}
	if number.Type == intstr.Int {
		return max(number.IntVal, 0), nil
	}
	resolved, err := intstr.GetScaledValueFromIntOrPercent(number, int(total), true)
	if err != nil {
		return 0, err
	}
	return int32(min(max(resolved, 0), math.MaxInt32)), nil //nolint:gosec // bounded in this line
}

// With returns the rules for another version of the budget that has the same spec.
func (r *Rules) With(budget *policyv1beta1.PodUnavailableBudget) *Rules {
	same := *r
	same.Budget = budget
	return &same
}

// Same tells whether the rules are those of that version of a budget.
func (r *Rules) Same(budget *policyv1beta1.PodUnavailableBudget) bool {
	return r.Budget.UID == budget.UID && r.Budget.Generation == budget.Generation &&
		maps.Equal(r.Budget.Annotations, budget.Annotations)
}
