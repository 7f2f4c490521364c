package restart

import (
	"slices"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// earlier are the containers of a pod that keep a request from beginning, because those before it have to do with them (CRR-091). The zero
// value is none.
type earlier struct {
	// left are those that a request before has left to stop. ending are those that a request before has stopped, or found
	// stopped, and that do not run yet.
	left, ending []string
}

// add adds the containers of a request that has begun.
func (e *earlier) add(p *Plan) {
	for i := range p.States {
		switch state := &p.States[i]; {
		case state.Phase == succeeded || state.Phase == failed:
		case state.Phase == pending && !state.IsKilled:
			e.left = append(e.left, state.Name)
		case p.ended[state.Name]:
			e.ending = append(e.ending, state.Name)
		}
	}
}

// keeps reports whether the request must not begin yet. It adds the containers of one that must not, since none that comes
// later overtakes it. One with forceRecreate stops each container itself, and so waits until it runs again. Since that may never be,
// it keeps no other from its other containers meanwhile.
func (e *earlier) keeps(request *appsv1beta1.ContainerRecreateRequest) bool {
	forced := request.Spec.Strategy != nil && request.Spec.Strategy.ForceRecreate
	var all, ending []string
	left := false
	for i := range request.Spec.Containers {
		name := request.Spec.Containers[i].Name
		all, left = append(all, name), left || slices.Contains(e.left, name)
		if forced && slices.Contains(e.ending, name) {
			ending = append(ending, name)
		}
	}
	switch {
	case left:
		e.left = append(e.left, all...)
	case len(ending) > 0:
		e.left = append(e.left, ending...)
	}
	return left || len(ending) > 0
}
