package restart

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// sighting is when this daemon first saw a request, when it first saw that the request's pod was made not
// ready, and whether it has begun the request, which the cache may not show yet. The times in the request come from other clocks: a deadline could expire before the request began, or
// containers could be stopped while the pod still gets traffic, if the clock of the node is ahead. A restarted
// daemon counts from its start. The manager counts from the creation.
type sighting struct {
	request, unready time.Time
	begun            bool
}

// see records the sightings of the unfinished requests of a pod.
func (r *reconciler) see(pod types.NamespacedName, open []*appsv1beta1.ContainerRecreateRequest) {
	if len(open) == 0 {
		r.seen.Delete(pod)
		return
	}
	sightings := map[types.UID]sighting{}
	for _, request := range open {
		sightings[request.UID] = r.sighting(request)
	}
	r.seen.Store(pod, sightings)
}

// sighting returns the sighting of a request, which is now of what was not seen before.
func (r *reconciler) sighting(request *appsv1beta1.ContainerRecreateRequest) sighting {
	known, _ := r.seen.Load(types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.PodName})
	sightings, _ := known.(map[types.UID]sighting)
	s := sightings[request.UID]
	if s.request.IsZero() {
		s.request = r.clock.Now()
	}
	if s.unready.IsZero() && graceBegan(request) {
		s.unready = r.clock.Now()
	}
	return s
}

// begins records that the request has begun.
func (r *reconciler) begins(request *appsv1beta1.ContainerRecreateRequest) {
	known, _ := r.seen.Load(types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.PodName})
	if sightings, ok := known.(map[types.UID]sighting); ok {
		s := sightings[request.UID]
		s.begun = true
		sightings = maps.Clone(sightings) // a stop may read it
		sightings[request.UID] = s
		r.seen.Store(types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.PodName}, sightings)
	}
}
