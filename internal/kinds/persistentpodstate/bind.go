package persistentpodstate

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-openapi/jsonpointer"
	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Bind returns the changes that bring a new pod back to its remembered place. There are none if nothing is
// remembered, or if the pod has them already (PPS-031 to PPS-036, PPS-104).
func Bind(state *appsv1beta1.PersistentPodState, pod *corev1.Pod) []operations.Operation {
	entry := state.Status.PodStates[pod.Name]
	if len(entry.NodeTopologyLabels) == 0 {
		return nil
	}

	selector := Must(state, pod.Name)
	var terms []corev1.PreferredSchedulingTerm
	for i := range state.Spec.PreferredPersistentTopology {
		if term := termOf(&state.Spec.PreferredPersistentTopology[i], entry.NodeTopologyLabels); term != nil {
			terms = append(terms, *term)
		}
	}

	if len(selector) == 0 && len(terms) == 0 {
		return nil
	}

	annotations := map[string]string{pub.InjectedPersistentPodState: state.Name}
	if state.Annotations[pub.InjectPersistentPodAnnotations] == "true" {
		for key, value := range entry.Annotations {
			if _, has := pod.Annotations[key]; !has && !own(key) {
				annotations[key] = value
			}
		}
	}

	changes := added("/spec/nodeSelector", pod.Spec.NodeSelector, selector)
	changes = append(changes, prefer(pod.Spec.Affinity, terms)...)
	return append(changes, added("/metadata/annotations", pod.Annotations, annotations)...)
}

// own reports whether an annotation is one of this project's. These describe the state of one pod and are not
// copied to another one.
func own(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == "kruise.io" || strings.HasSuffix(domain, ".kruise.io")
}

// termOf returns the preference for the remembered values, or nil if there are none. It limits the weight to
// its bounds, because the API server rejects a pod with any other weight, and stored objects may have one.
func termOf(
	preferred *appsv1beta1.PreferredTopologyTerm, labels map[string]string,
) *corev1.PreferredSchedulingTerm {
	term := &corev1.PreferredSchedulingTerm{Weight: min(max(preferred.Weight, leastWeight), mostWeight)}
	for _, key := range preferred.Preference.Keys {
		if value, ok := labels[key]; ok {
			term.Preference.MatchExpressions = append(term.Preference.MatchExpressions,
				corev1.NodeSelectorRequirement{
					Key:      key,
					Operator: corev1.NodeSelectorOpIn,
					Values:   []string{value},
				})
		}
	}

	if len(term.Preference.MatchExpressions) == 0 {
		return nil
	}

	return term
}

// added returns the operations that add entries to a map of the pod.
func added(path string, to, texts map[string]string) (changes []operations.Operation) {
	texts = maps.Clone(texts)
	maps.DeleteFunc(texts, func(key, value string) bool { return to[key] == value && value != "" })
	switch {
	case len(texts) == 0:
		return nil
	case len(to) == 0:
		return []operations.Operation{operations.NewOperation("add", path, texts)}
	}

	for _, key := range slices.Sorted(maps.Keys(texts)) {
		changes = append(changes, operations.NewOperation("add",
			path+"/"+jsonpointer.Escape(key), texts[key]))
	}

	return changes
}

// prefer appends terms to the preferences of the pod, except those that it already has: the webhook may be
// called again for a pod.
func prefer(affinity *corev1.Affinity, terms []corev1.PreferredSchedulingTerm) []operations.Operation {
	const member = "preferredDuringSchedulingIgnoredDuringExecution"
	var has []corev1.PreferredSchedulingTerm
	if affinity != nil && affinity.NodeAffinity != nil {
		has = affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}

	terms = slices.DeleteFunc(terms, func(term corev1.PreferredSchedulingTerm) bool {
		return slices.ContainsFunc(has, func(other corev1.PreferredSchedulingTerm) bool {
			return equality.Semantic.DeepEqual(term, other)
		})
	})
	add := func(path string, value any) []operations.Operation {
		return []operations.Operation{operations.NewOperation("add", "/spec/affinity"+path, value)}
	}

	switch {
	case len(terms) == 0:
		return nil
	case affinity == nil:
		return add("", map[string]any{"nodeAffinity": map[string]any{member: terms}})
	case affinity.NodeAffinity == nil:
		return add("/nodeAffinity", map[string]any{member: terms})
	case len(has) == 0:
		return add("/nodeAffinity/"+member, terms)
	}

	var changes []operations.Operation
	for _, term := range terms {
		changes = append(changes, add("/nodeAffinity/"+member+"/-", term)...)
	}

	return changes
}
