package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
)

// Scope says which pods the API server must ask about, as expressions of match conditions: those of
// namespaces that have a WorkloadSpread, whose controller is of a kind that leads to a target.
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
	terms := make([]matchconditions.Controlled, len(asked))
	for i, t := range asked {
		terms[i] = matchconditions.Controlled{Namespace: t.namespace, Kind: t.kind}
	}
	return matchconditions.Creations(terms)
}

// Evictions is the condition of evictions, which know the name of the pod alone; "false" if none is asked
// for.
func (s *Scope) Evictions() string {
	namespaces := sets.New[string]()
	for _, t := range s.terms() {
		namespaces.Insert(t.namespace)
	}
	return matchconditions.Within(namespaces.UnsortedList())
}
