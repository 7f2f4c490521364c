package dashboard

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubectl/pkg/util/podutils"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// budget is what the page shows of a PodUnavailableBudget or a PodDisruptionBudget.
type budget struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Total     int32  `json:"total"`
	Desired   int32  `json:"desired"`
	Available int32  `json:"available"`
	Allowed   int32  `json:"allowed"`
	Message   string `json:"message,omitempty"`
	// Unavailable are the pods of the workload that use the budget.
	Unavailable []use `json:"unavailable"`
}

// use says why a pod uses a budget.
type use struct {
	Pod string `json:"pod"`
	Why string `json:"why"`
}

// names reports whether a reference names a workload. The version does not matter.
func names(o *unstructured.Unstructured, apiVersion, kind, name string) bool {
	group := schema.FromAPIVersionAndKind(apiVersion, kind).Group
	return (apiVersion == "" || group == o.GroupVersionKind().Group) && kind == o.GetKind() && name == o.GetName()
}

// covered returns whether a selector, or else a reference, covers the pods of a workload.
func covered(o *unstructured.Unstructured, selector *metav1.LabelSelector, target *policyv1beta1.TargetReference) bool {
	if target != nil {
		return names(o, target.APIVersion, target.Kind, target.Name)
	}
	if selector == nil {
		return false
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false
	}
	paths, err := workload.Templates(o)
	if err != nil {
		return false
	}
	for _, path := range paths {
		of, _, _ := unstructured.NestedStringMap(o.Object, path.Child("metadata", "labels")...)
		if parsed.Matches(labels.Set(of)) {
			return true
		}
	}
	return false
}

// unavailableBudget returns what is shown of a PodUnavailableBudget.
func unavailableBudget(b *policyv1beta1.PodUnavailableBudget, pods map[string]*corev1.Pod) budget {
	shown := budget{
		Name:      b.Name,
		Kind:      "PodUnavailableBudget",
		Total:     b.Status.TotalReplicas,
		Desired:   b.Status.DesiredAvailable,
		Available: b.Status.CurrentAvailable,
		Allowed:   b.Status.UnavailableAllowed,
		Message:   b.Status.UsedBy,
	}
	shown.fill(pods, func(name string) string {
		if _, ok := b.Status.DisruptedPods[name]; ok {
			return "being deleted"
		}
		if _, ok := b.Status.UnavailablePods[name]; ok {
			return "being updated"
		}
		return ""
	})
	return shown
}

// disruptionBudget returns what is shown of a PodDisruptionBudget.
func disruptionBudget(b *policyv1.PodDisruptionBudget, pods map[string]*corev1.Pod) budget {
	shown := budget{
		Name:      b.Name,
		Kind:      "PodDisruptionBudget",
		Total:     b.Status.ExpectedPods,
		Desired:   b.Status.DesiredHealthy,
		Available: b.Status.CurrentHealthy,
		Allowed:   b.Status.DisruptionsAllowed,
	}
	shown.fill(pods, func(name string) string {
		if _, ok := b.Status.DisruptedPods[name]; ok {
			return "being evicted"
		}
		return ""
	})
	return shown
}

// fill lists the pods that use the budget. booked returns why the budget counts a pod as unavailable, or an empty
// string.
func (b *budget) fill(pods map[string]*corev1.Pod, booked func(name string) string) {
	b.Unavailable = []use{}
	for _, pod := range pods {
		why := booked(pod.Name)
		switch {
		case why != "":
		case pod.DeletionTimestamp != nil:
			why = "being deleted"
		case !podutils.IsPodReady(pod):
			why = "not ready"
		default:
			continue
		}
		b.Unavailable = append(b.Unavailable, use{pod.Name, why})
	}
	slices.SortFunc(b.Unavailable, func(x, y use) int { return cmp.Compare(x.Pod, y.Pod) })
}

// subset is what the page shows of a subset of a WorkloadSpread or a UnitedDeployment.
type subset struct {
	Name    string `json:"name"`
	Wanted  *int64 `json:"wanted,omitempty"`
	Present int64  `json:"present"`
	Message string `json:"message,omitempty"`
}

// subsetsOf returns the subsets in the status of a WorkloadSpread or a UnitedDeployment, in either version.
func subsetsOf(o *unstructured.Unstructured) []subset {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "subsetStatuses")
	united := o.GetKind() == "UnitedDeployment"
	all := []subset{}
	for _, one := range list {
		fields, _ := one.(map[string]any)
		number := func(key string) int64 { n, _ := fields[key].(int64); return n }

		s := subset{Present: number("replicas")}
		s.Name, _ = fields["name"].(string)
		switch missing := number("missingReplicas"); {
		case united:
			s.Wanted, s.Present = new(number("replicas")), number("readyReplicas")
		case missing >= 0:
			s.Wanted = new(s.Present + missing)
		}
		for _, c := range conditions(&unstructured.Unstructured{Object: map[string]any{"status": fields}}) {
			if c.Status == "False" && s.Message == "" {
				s.Message = c.Message
			}
		}
		all = append(all, s)
	}
	return all
}
