package choose

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
)

// Scope computes the match condition that decides for which pods the API server must call the webhook. These
// are all pods that some SidecarSet may select, and as few others as is possible without knowing the labels
// of namespaces. The condition widens at once but narrows late: what a SidecarSet asked for is still included
// for matchconditions.Remembered after the SidecarSet has changed or gone, because other replicas and API
// servers may be behind.
type Scope struct {
	index  *Index
	now    func() time.Time
	memory matchconditions.Memory[term]
}

// NewScope returns the scope of an index.
func NewScope(index *Index, now func() time.Time) *Scope {
	return &Scope{index: index, now: now}
}

// Creations returns the condition, which is "false" if no pod is selected.
func (s *Scope) Creations() string { return union(s.memory.Recall(s.asked, s.now())) }

func (s *Scope) asked() map[string]term {
	asked := map[string]term{}
	for _, e := range s.index.all() {
		if e.paused || e.pods == nil {
			continue
		}
		t := newTerm(e)
		asked[t.key()] = t
	}
	return asked
}

// Asks returns the condition for the pods that one SidecarSet asks for, which is "false" if it asks for none.
func Asks(set *appsv1beta1.SidecarSet) string {
	e := newEntry(set, nil)
	if e.paused || e.pods == nil {
		return "false"
	}
	return union([]term{newTerm(e)})
}

// term is what one SidecarSet asks for.
type term struct {
	// namespace is a condition on the name of the namespace, or empty.
	namespace string
	// present are conditions that only pods with labels can satisfy. absent are conditions that pods without
	// labels satisfy.
	present, absent []string
	// If only is set, the single condition is that this label has one of the values.
	only   string
	values []string
	// coarse is one key that the pod must have, or empty.
	coarse string
	// broken reports that the term cannot be expressed.
	broken bool
}

func (t term) key() string {
	return fmt.Sprintf("%s|%s|%s|%s|%s|%t", t.namespace, strings.Join(t.present, " && "),
		strings.Join(t.absent, " && "), t.only, strings.Join(t.values, ","), t.broken)
}

const podLabels = "object.metadata.labels"

func newTerm(e *entry) term {
	var t term
	requirements, selectable := e.pods.Requirements()
	t.broken = !selectable
	for i := range requirements {
		r := &requirements[i]
		key, values, ok := quoted(r)
		if !ok {
			t.broken = true
			continue
		}
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			t.present = append(t.present,
				fmt.Sprintf("%s in %s && %s[%s] in [%s]", key, podLabels, podLabels, key,
					strings.Join(values, ", ")))
		case selection.Exists:
			t.present = append(t.present, fmt.Sprintf("%s in %s", key, podLabels))
		case selection.NotIn, selection.NotEquals:
			t.absent = append(t.absent,
				fmt.Sprintf("!(%s in %s && %s[%s] in [%s])", key, podLabels, podLabels, key,
					strings.Join(values, ", ")))
			continue
		case selection.DoesNotExist:
			t.absent = append(t.absent, fmt.Sprintf("!(%s in %s)", key, podLabels))
			continue
		default:
			t.broken = true
			continue
		}
		if t.coarse == "" {
			t.coarse = key
		}
		if len(requirements) == 1 && len(values) > 0 {
			t.only, t.values, t.present = key, values, nil
		}
	}

	t.namespace = namespaceOf(e.namespaces)
	return t
}

// namespaceOf returns the condition on the names of namespaces that a selector contains. Labels of namespaces
// are not available in match conditions.
func namespaceOf(selector labels.Selector) string {
	if selector == nil {
		return ""
	}

	var conditions []string
	requirements, _ := selector.Requirements()
	for i := range requirements {
		r := &requirements[i]
		_, values, ok := quoted(r)
		if !ok || r.Key() != corev1.LabelMetadataName {
			continue
		}
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			conditions = append(conditions,
				fmt.Sprintf("request.namespace in [%s]", strings.Join(values, ", ")))
		case selection.NotIn, selection.NotEquals:
			conditions = append(conditions,
				fmt.Sprintf("!(request.namespace in [%s])", strings.Join(values, ", ")))
		default:
		}
	}

	return strings.Join(conditions, " && ")
}

// quoted returns key and values as literals of an expression. ok is false if they have characters that do not
// occur in valid ones, because these are never put into an expression.
func quoted(r *labels.Requirement) (key string, values []string, ok bool) {
	if !matchconditions.Harmless(r.Key()) {
		return "", nil, false
	}
	for _, value := range slices.Sorted(maps.Keys(r.Values())) {
		if !matchconditions.Harmless(value) {
			return "", nil, false
		}
		values = append(values, "'"+value+"'")
	}
	return "'" + r.Key() + "'", values, true
}

// union returns the condition that at least one term holds: exactly if that is short enough, else by keys
// alone, else "true".
func union(terms []term) string {
	if len(terms) == 0 {
		return "false"
	}
	if slices.ContainsFunc(terms, func(t term) bool {
		return t.broken || t.namespace == "" && t.only == "" && len(t.present)+len(t.absent) == 0
	}) {
		return "true"
	}

	for _, build := range []func([]term) (labelled, unlabelled []string){exact, byKey} {
		labelled, unlabelled := build(terms)
		if labelled == nil && unlabelled == nil || len(labelled)+len(unlabelled) > matchconditions.MaxTerms {
			continue
		}
		parts := unlabelled
		if len(labelled) > 0 {
			parts = append([]string{fmt.Sprintf("has(%s) && (%s)", podLabels,
				strings.Join(labelled, " || "))}, unlabelled...)
		}
		if text := strings.Join(parts, " || "); len(text) <= matchconditions.MaxLength {
			return text
		}
	}

	return "true"
}

func exact(terms []term) (labelled, unlabelled []string) {
	type group struct{ namespace, key string }
	groups := map[group][]string{}
	for _, t := range terms {
		switch {
		case t.only != "":
			groups[group{t.namespace, t.only}] = append(groups[group{t.namespace, t.only}], t.values...)
		case len(t.present) > 0:
			labelled = append(labelled,
				conjunction(t.namespace, append(slices.Clone(t.present), t.absent...)...))
		default:
			unlabelled = append(unlabelled, conjunction(t.namespace,
				fmt.Sprintf("(!has(%s) || %s)", podLabels, strings.Join(t.absent, " && "))))
		}
	}

	for g, values := range groups {
		slices.Sort(values)
		labelled = append(labelled,
			conjunction(g.namespace,
				fmt.Sprintf("%s in %s && %s[%s] in [%s]", g.key, podLabels, podLabels, g.key,
					strings.Join(slices.Compact(values), ", "))))
	}

	slices.Sort(labelled)
	slices.Sort(unlabelled)
	return slices.Compact(labelled), slices.Compact(unlabelled)
}

// byKey is coarser than exact. It returns nothing if some term has no key that its pods must have.
func byKey(terms []term) (labelled, _ []string) {
	for _, t := range terms {
		if t.coarse == "" {
			return nil, nil
		}
		labelled = append(labelled, fmt.Sprintf("%s in %s", t.coarse, podLabels))
	}
	slices.Sort(labelled)
	return slices.Compact(labelled), nil
}

func conjunction(namespace string, conditions ...string) string {
	if namespace != "" {
		conditions = append([]string{namespace}, conditions...)
	}
	return "(" + strings.Join(conditions, " && ") + ")"
}
