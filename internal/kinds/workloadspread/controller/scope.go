package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
)

// Scope says which pods the API server must ask about, as expressions of match conditions: those of namespaces that have a
// WorkloadSpread, whose controller is of a kind that leads to a target.
type Scope struct {
	index *Index
	now   func() time.Time

	mu     sync.Mutex
	memory matchconditions.Memory[scopeTerm]
}

// NewScope returns the scope of an index.
func NewScope(index *Index, now func() time.Time) *Scope { return &Scope{index: index, now: now} }

// scopeTerm is what one namespace asks for: pods whose controller has that kind, or any if it is empty.
type scopeTerm struct{ namespace, kind string }

func (s *Scope) terms() []scopeTerm {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := map[string]scopeTerm{}
	s.index.mu.RLock()
	for namespace, list := range s.index.namespaces {
		for _, e := range list {
			t := scopeTerm{namespace, controllerKind(e.target)}
			asked[namespace+"/"+t.kind] = t
		}
	}
	s.index.mu.RUnlock()
	return s.memory.Recall(asked, s.now())
}

// controllerKind is the kind that controls the pods of a target; empty where that may be any.
func controllerKind(target workloadspread.Reference) string {
	switch {
	case target.GroupKind == workloadspread.Deployment:
		return workloadspread.ReplicaSet.Kind
	case workloadspread.BuiltIn(target.GroupKind):
		return target.Kind
	}
	return ""
}

// Creations is the condition of pods that are created; "false" if none is asked for.
func (s *Scope) Creations() string { return creations(s.terms()) }

// Asks is the condition of the pods that one WorkloadSpread asks for.
func Asks(spread *appsv1beta1.WorkloadSpread) string {
	return creations([]scopeTerm{{spread.Namespace, controllerKind(workloadspread.TargetOf(spread))}})
}

func creations(asked []scopeTerm) string {
	byNamespace := map[string]sets.Set[string]{}
	for _, t := range asked {
		if byNamespace[t.namespace] == nil {
			byNamespace[t.namespace] = sets.New[string]()
		}
		byNamespace[t.namespace].Insert(t.kind)
	}
	byKinds := map[string][]string{} // the namespaces that ask for the same kinds
	for namespace, kinds := range byNamespace {
		list := ""
		if !kinds.Has("") {
			list = quotedList(sets.List(kinds))
		}
		byKinds[list] = append(byKinds[list], namespace)
	}
	var terms []string
	for _, kinds := range slices.Sorted(maps.Keys(byKinds)) {
		controlled := "o.controller"
		if kinds != "" {
			controlled += " && o.kind in " + kinds
		}
		terms = append(terms, fmt.Sprintf("(%s && object.metadata.ownerReferences.exists(o, has(o.controller) && %s))",
			matchconditions.Within(byKinds[kinds]), controlled))
	}
	const controlled = "has(object.metadata.ownerReferences)"
	text := controlled + " && (" + strings.Join(terms, " || ") + ")"
	switch {
	case len(terms) == 0:
		return "false"
	case len(text) > matchconditions.MaxLength:
		return controlled
	}
	return text
}

// Evictions is the condition of evictions, which know the name of the pod alone; "false" if none is asked for.
func (s *Scope) Evictions() string {
	namespaces := sets.New[string]()
	for _, t := range s.terms() {
		namespaces.Insert(t.namespace)
	}
	return matchconditions.Within(namespaces.UnsortedList())
}

// quotedList is a list of names of namespaces or of kinds that are supported, all of which are harmless.
func quotedList(names []string) string { return "['" + strings.Join(names, "', '") + "']" }
