package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
)

// Scope defines for which pods the API server must call the webhooks, as match conditions: the pods of
// namespaces that have a WorkloadSpread, if their controller is of a kind that may lead to a target.
type Scope struct {
	index  *Index
	now    func() time.Time
	memory matchconditions.Memory[matchconditions.Controlled]
}

// NewScope returns the Scope of an index.
func NewScope(index *Index, now func() time.Time) *Scope { return &Scope{index: index, now: now} }

func (s *Scope) terms() []matchconditions.Controlled { return s.memory.Recall(s.asked, s.now()) }

func (s *Scope) asked() map[string]matchconditions.Controlled {
	s.index.mu.RLock()
	defer s.index.mu.RUnlock()
	asked := map[string]matchconditions.Controlled{}
	for namespace, list := range s.index.namespaces {
		for _, e := range list {
			t := matchconditions.Controlled{Namespace: namespace, Kind: controllerKind(e.target)}
			asked[namespace+"/"+t.Kind] = t
		}
	}
	return asked
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
func (s *Scope) Creations() string { return matchconditions.Creations(s.terms()) }

// Asks returns the match condition that one WorkloadSpread needs.
func Asks(spread *appsv1beta1.WorkloadSpread) string {
	return matchconditions.Creations([]matchconditions.Controlled{
		{Namespace: spread.Namespace, Kind: controllerKind(workloadspread.TargetOf(spread))},
	})
}

// Evictions returns the match condition for evictions, which only contain the name of the pod. It is "false"
// if there are no WorkloadSpreads.
func (s *Scope) Evictions() string {
	namespaces := sets.New[string]()
	for _, t := range s.terms() {
		namespaces.Insert(t.Namespace)
	}
	return matchconditions.Within(namespaces.UnsortedList())
}
