package workloadspread

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	kjson "sigs.k8s.io/json"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/subset"
)

// Fit is a subset that a pod without annotation may belong to (WS-142).
type Fit struct {
	// Subset is the index of the subset.
	Subset int
	// Score is the pod's score in the subset, not counting whether the subset has room (WS-143).
	Score int64
}

// Parts of the score of a pod in a subset.
const (
	scorePreferred = 100
	scorePatched   = 10
	scoreRoom      = 1
)

// Fits returns the subsets that a pod on that node may belong to, in the order of the spec. document is the
// pod as stored in the API server, including fields that our types do not know.
func Fits(subsets []appsv1beta1.WorkloadSpreadSubset, document []byte, node *corev1.Node) ([]Fit, error) {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(document, pod); err != nil {
		return nil, fmt.Errorf("reading a pod: %w", err)
	}
	whole, err := subset.Object(document)
	if err != nil {
		return nil, fmt.Errorf("reading a pod: %w", err)
	}
	withoutAnnotations(whole)

	var fits []Fit
	for i := range subsets {
		s := &subsets[i]
		if !tolerated(pod, s, node) || !required(pod, s, node) {
			continue
		}
		fit := Fit{Subset: i, Score: scorePreferred * preferred(s, node)}
		if len(s.Patch.Raw) > 0 && unchanged(whole, s.Patch.Raw) {
			fit.Score += scorePatched
		}
		fits = append(fits, fit)
	}

	return fits, nil
}

// tolerated reports whether pod and subset together tolerate all taints of the node. Cordons, and taints with
// the effect PreferNoSchedule, do not count.
func tolerated(pod *corev1.Pod, subset *appsv1beta1.WorkloadSpreadSubset, node *corev1.Node) bool {
	counts := func(taint *corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule &&
			taint.Key != corev1.TaintNodeUnschedulable
	}
	_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints,
		slices.Concat(pod.Spec.Tolerations, subset.Tolerations), counts, true)
	return !untolerated
}

// required reports whether the node satisfies one of the pod's own required terms, each extended by what the
// subset adds.
func required(pod *corev1.Pod, subset *appsv1beta1.WorkloadSpreadSubset, node *corev1.Node) bool {
	add := subset.RequiredNodeSelector
	// Injection ignores a term without requirements, too.
	if add == nil || len(add.MatchExpressions)+len(add.MatchFields) == 0 {
		return true
	}

	matches := func(terms ...corev1.NodeSelectorTerm) bool {
		matches, err := corev1helpers.MatchNodeSelectorTerms(node,
			&corev1.NodeSelector{NodeSelectorTerms: terms})
		return err == nil && matches
	}
	if !matches(*add) {
		return false
	}

	// The extended terms are not made, since there may be many. An own term without requirements, which would
	// match no node, matches if it is extended.
	own := requiredTerms(pod)
	return len(own) == 0 || matches(own...) || slices.ContainsFunc(own, func(term corev1.NodeSelectorTerm) bool {
		return len(term.MatchExpressions)+len(term.MatchFields) == 0
	})
}

func requiredTerms(pod *corev1.Pod) []corev1.NodeSelectorTerm {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	return nil
}

// preferred returns the sum of the weights of the subset's terms that the node matches. Terms that cannot be
// parsed match nothing.
func preferred(subset *appsv1beta1.WorkloadSpreadSubset, node *corev1.Node) int64 {
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(subset.PreferredNodeSelector)
	if err != nil {
		return 0
	}
	return terms.Score(node)
}

// unchanged reports whether a patch would leave a pod, which has no annotations, as it is apart from
// annotations. Values that are equal but written differently, such as quantities, are no change, unless the
// patch has fields that our types do not know.
func unchanged(document map[string]any, patch []byte) bool {
	changes, err := subset.Object(patch)
	if err != nil {
		return false
	}
	own := maps.Clone(document)
	for key := range changes { // merging changes nothing else
		own[key] = runtime.DeepCopyJSONValue(own[key])
		if own[key] == nil {
			delete(own, key)
		}
	}
	merged, err := subset.Merge(own, changes, corev1.Pod{})
	if err != nil {
		return false
	}
	withoutAnnotations(merged)

	was, is := differences(document, merged)
	if len(was)+len(is) == 0 {
		return true
	}
	if unknown, err := kjson.UnmarshalStrict(patch, &corev1.Pod{}); err != nil || len(unknown) > 0 {
		return false
	}
	before, errBefore := podOf(was)
	after, errAfter := podOf(is)
	return errBefore == nil && errAfter == nil && equality.Semantic.DeepEqual(before, after)
}

func withoutAnnotations(pod map[string]any) {
	if metadata, ok := pod["metadata"].(map[string]any); ok {
		delete(metadata, "annotations")
	}
}

// differences returns the fields in which two objects differ. Reading only these as a pod takes less time, since
// pods may be large and patches are many.
func differences(a, b map[string]any) (was, is map[string]any) {
	was, is = map[string]any{}, map[string]any{}
	for key, x := range a {
		y, there := b[key]
		inner, ok := x.(map[string]any)
		other, both := y.(map[string]any)
		switch {
		case ok && both:
			if before, after := differences(inner, other); len(before)+len(after) > 0 {
				was[key], is[key] = before, after
			}
		case !there:
			was[key] = x
		case !equality.Semantic.DeepEqual(x, y):
			was[key], is[key] = x, y
		}
	}
	for key, y := range b {
		if _, there := a[key]; !there {
			is[key] = y
		}
	}
	return was, is
}

// podOf reads a part of a pod.
func podOf(part map[string]any) (*corev1.Pod, error) {
	text, err := json.Marshal(part)
	if err != nil {
		return nil, fmt.Errorf("encoding a pod: %w", err)
	}
	pod := &corev1.Pod{}
	return pod, json.Unmarshal(text, pod)
}

// choose returns the subset in which the pod has the highest score, and the first of those with equal scores.
// room reports whether a subset has room.
func choose(fits []Fit, room func(subset int) bool) (int, bool) {
	chosen, most := -1, int64(-1)
	for _, fit := range fits {
		score := fit.Score
		if room(fit.Subset) {
			score += scoreRoom
		}
		if score > most {
			chosen, most = fit.Subset, score
		}
	}
	return chosen, chosen >= 0
}

// adoptedMetadata returns the metadata that adoption writes to a pod: the annotation, and labels, annotations and
// finalizers of the subset's patch unless the WorkloadSpread leaves existing pods as they are.
func adoptedMetadata(
	spread *appsv1beta1.WorkloadSpread, subset *appsv1beta1.WorkloadSpreadSubset,
) (map[string]any, error) {
	metadata := map[string]any{}
	if len(subset.Patch.Raw) > 0 &&
		!strings.EqualFold(spread.Annotations[pub.IgnorePatchExistingPods], "true") {
		var patch struct {
			Metadata map[string]any `json:"metadata"`
		}
		decoder := json.NewDecoder(bytes.NewReader(subset.Patch.Raw))
		decoder.UseNumber()
		if err := decoder.Decode(&patch); err != nil {
			return nil, fmt.Errorf("reading the patch of subset %q: %w", subset.Name, err)
		}
		for _, key := range []string{"labels", "annotations", "finalizers"} { // nothing else can be changed
			if value, ok := patch.Metadata[key]; ok {
				metadata[key] = value
			}
		}
	}
	annotate(metadata, pub.MatchedWorkloadSpread,
		pub.Placement{Name: spread.Name, Subset: subset.Name}.String())
	return metadata, nil
}

// annotate sets an annotation in the metadata of a patch.
func annotate(metadata map[string]any, key, value string) {
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations[key] = value
}
