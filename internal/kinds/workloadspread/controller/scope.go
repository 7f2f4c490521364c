package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
)

// Scope defines for which pods the API server must call the webhooks, as match conditions: the pods of
// namespaces that have a WorkloadSpread, if their controller is of a kind that may lead to a target.
type Scope struct {
	index *Index
	now   func() time.Time

	mu     sync.Mutex
	memory matchconditions.Memory[scopeTerm]
}

// NewScope returns the Scope of an index.
func NewScope(index *Index, now func() time.Time) *Scope { return &Scope{index: index, now: now} }

// scopeTerm selects the pods of a namespace whose controller has that kind, or any kind if it is empty.
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

// controllerKind returns the kind that controls the pods of a target, or an empty string if it may be any.
func controllerKind(target workloadspread.Reference) string {
	if !workloadspread.BuiltIn(target.GroupKind) {
		return ""
	}
	return workloadspread.ControllerKind(target.GroupKind).Kind
}

// Creations returns the match condition for the creation of pods. It is "false" if there are no
// WorkloadSpreads.
func (s *Scope) Creations() string { return creations(s.terms()) }

// Asks returns the match condition that one WorkloadSpread needs.
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

// Evictions returns the match condition for evictions, which only contain the name of the pod. It is "false"
// if there are no WorkloadSpreads.
func (s *Scope) Evictions() string {
	namespaces := sets.New[string]()
	for _, t := range s.terms() {
		namespaces.Insert(t.namespace)
	}
	return matchconditions.Within(namespaces.UnsortedList())
}
