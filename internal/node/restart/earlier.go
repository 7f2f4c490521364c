package restart

import (
	"slices"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// earlier are the containers of a pod that a request must leave to those before it (CRR-091). The zero value is none.
type earlier struct {
	// left are those that a request before has left to stop. ending are those that a request before has stopped, or found
	// stopped, and that do not run yet.
	left, ending []string
}

// add adds the containers of a request that waits.
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

// hold adds the containers of a request that has not begun: none that comes later overtakes it.
func (e *earlier) hold(request *appsv1beta1.ContainerRecreateRequest) {
	for i := range request.Spec.Containers {
		e.left = append(e.left, request.Spec.Containers[i].Name)
	}
}

// keeps reports whether the request must not stop the container yet. One with forceRecreate stops each container itself, and so
// waits until it runs again.
func (e *earlier) keeps(request *appsv1beta1.ContainerRecreateRequest, container string) bool {
	forced := request.Spec.Strategy != nil && request.Spec.Strategy.ForceRecreate
	return slices.Contains(e.left, container) || forced && slices.Contains(e.ending, container)
}

// keepsAll reports whether the request must not begin, since there is no container that it may stop.
func (e *earlier) keepsAll(request *appsv1beta1.ContainerRecreateRequest) bool {
	return len(request.Spec.Containers) > 0 && !slices.ContainsFunc(request.Spec.Containers,
		func(c appsv1beta1.ContainerRecreateRequestContainer) bool { return !e.keeps(request, c.Name) })
}
