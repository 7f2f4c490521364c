package choose

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/inject"
)

// Index holds the SidecarSets with everything read from them that a pod needs, so that a pod costs neither a
// list nor the reading of a selector. The zero value is empty. It may be used by many at once.
type Index struct {
	mu      sync.RWMutex
	entries map[string]*entry
	// byLabel are the entries whose pods must have one of some values of a label; rest are the others.
	byLabel map[label][]*entry
	rest    []*entry
}

type label struct{ key, value string }

// entry is one SidecarSet. It is not changed once it is in the index.
type entry struct {
	name              string
	uid               types.UID
	generation        int64
	annotations       [3]string // hash, hash without image, revision: what a template has beside the spec
	pods              labels.Selector
	namespaces        labels.Selector // nil: all
	paused            bool
	base              string // not empty: a canary of that
	customVersion     string
	revision          *revisionRule
	template          *inject.Template
	templateErr       error
	restored          *restored
	podSelector       *metav1.LabelSelector
	namespaceSelector *metav1.LabelSelector
}

// revisionRule says which pods get a named revision (SS-171 to SS-174).
type revisionRule struct {
	name, customVersion string
	always              bool
	updated             labels.Selector // nil: all
	percent             int             // of the others
}

// Set adds or replaces a SidecarSet. The object is not changed, and must not be changed later.
func (x *Index) Set(set *appsv1beta1.SidecarSet) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.entries[set.Name]
	if x.entries == nil {
		x.entries = map[string]*entry{}
	}
	x.entries[set.Name] = newEntry(set, old)
	x.arrange()
}

// Delete removes a SidecarSet.
func (x *Index) Delete(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.entries, name)
	x.arrange()
}

func (x *Index) arrange() {
	x.byLabel, x.rest = map[label][]*entry{}, nil
	for _, e := range x.entries {
		if e.paused || e.pods == nil {
			continue
		}
		keys := bucketsOf(e.pods)
		for _, key := range keys {
			x.byLabel[key] = append(x.byLabel[key], e)
		}
		if len(keys) == 0 {
			x.rest = append(x.rest, e)
		}
	}
}

// bucketsOf are labels of which each pod that the selector selects has exactly one; none if there is no such
// key.
func bucketsOf(selector labels.Selector) []label {
	requirements, _ := selector.Requirements()
	for i := range requirements {
		switch requirements[i].Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			var keys []label
			for value := range requirements[i].Values() {
				keys = append(keys, label{requirements[i].Key(), value})
			}
			return keys
		default:
		}
	}

	return nil
}

// matches returns the entries that select pods with these labels, whatever the namespace, in the order of
// their names. Paused ones are none.
func (x *Index) matches(podLabels labels.Set) []*entry {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var found []*entry
	check := func(candidates []*entry) {
		for _, e := range candidates {
			if e.pods.Matches(podLabels) {
				found = append(found, e)
			}
		}
	}

	for key, value := range podLabels {
		check(x.byLabel[label{key, value}])
	}

	check(x.rest)
	slices.SortFunc(found, func(a, b *entry) int { return cmp.Compare(a.name, b.name) })
	return found
}

// all returns the entries in the order of their names.
func (x *Index) all() []*entry {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.SortedFunc(maps.Values(x.entries),
		func(a, b *entry) int { return cmp.Compare(a.name, b.name) })
}

func newEntry(set *appsv1beta1.SidecarSet, old *entry) *entry {
	e := &entry{name: set.Name, uid: set.UID, generation: set.Generation,
		paused: set.Spec.InjectionStrategy.Paused, customVersion: set.Spec.CustomVersion,
		podSelector: set.Spec.Selector, namespaceSelector: set.Spec.NamespaceSelector}
	if set.Annotations[pub.SidecarSetCanary] == "true" {
		e.base = set.Annotations[pub.SidecarSetBase]
	}
	// An absent selector selects nothing here, and so does an empty one and one that cannot be read.
	if pods, err := metav1.LabelSelectorAsSelector(set.Spec.Selector); err == nil &&
		set.Spec.Selector != nil && !pods.Empty() {
		e.pods = pods
	}
	if set.Spec.NamespaceSelector != nil {
		namespaces, err := metav1.LabelSelectorAsSelector(set.Spec.NamespaceSelector)
		if err != nil {
			e.pods = nil
		}
		e.namespaces = namespaces
	}
	e.revision = newRevisionRule(&set.Spec)
	revision := ""
	if set.Status.ObservedGeneration >= set.Generation {
		revision = set.Status.LatestRevision
	}
	e.annotations = [3]string{set.Annotations[pub.SidecarSetHash],
		set.Annotations[pub.SidecarSetHashWithoutImage], revision}
	if old != nil && old.uid == e.uid && old.generation == e.generation && e.generation > 0 &&
		old.annotations == e.annotations {
		// only the status has changed
		e.template, e.templateErr, e.restored = old.template, old.templateErr, old.restored
		return e
	}

	e.template, e.templateErr = inject.NewTemplate(set.Name, &set.Spec, e.annotations[0],
		e.annotations[1], revision)
	e.restored = &restored{spec: &set.Spec}
	return e
}

func newRevisionRule(spec *appsv1beta1.SidecarSetSpec) *revisionRule {
	named := spec.InjectionStrategy.Revision
	if named == nil || empty(named.RevisionName) && empty(named.CustomVersion) {
		return nil
	}

	rule := &revisionRule{always: spec.UpdateStrategy.Paused ||
		named.Policy != appsv1beta1.PartialSidecarSetInjectRevisionPolicy}
	if !empty(named.RevisionName) {
		rule.name = *named.RevisionName
	} else {
		rule.customVersion = *named.CustomVersion
	}
	if spec.UpdateStrategy.Selector != nil {
		rule.updated = labels.Nothing() // if it cannot be read
		if selector, err := metav1.LabelSelectorAsSelector(spec.UpdateStrategy.Selector); err == nil {
			rule.updated = selector
		}
	}
	if p := spec.UpdateStrategy.Partition; p != nil && p.Type == intstr.String { // an integer is no share
		if percent, err := intstr.GetScaledValueFromIntOrPercent(p, 100, false); err == nil {
			rule.percent = percent
		}
	}

	return rule
}

func empty(text *string) bool { return text == nil || *text == "" }
