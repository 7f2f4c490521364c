package daemonset

import (
	"fmt"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
)

// imagesToPull returns the images of the update revision that differ from those of a revision which pods
// still carry, by container, or why none are pulled ahead (ADS-181 to 183).
func (p *planner) imagesToPull() (images map[string]string, skip string) {
	switch {
	case rollingOf(p.set) == nil:
		return nil, "pods are not updated by themselves"
	case p.out.Limits.Partition == 0 && p.out.Limits.MaxUnavailable >= p.out.Limits.Replicas:
		return nil, fmt.Sprintf("maxUnavailable lets the pods of all %d nodes be updated at once",
			p.out.Limits.Replicas)
	}
	images = map[string]string{}
	seen := map[*podplan.Revision]bool{nil: true}
	for _, info := range p.core.Members {
		carried := p.core.Find(info.Pod.Labels[pub.ControllerRevisionHash])
		if seen[carried] || p.carries(info.Pod) {
			continue
		}
		seen[carried] = true
		old := p.core.ImagesOf(carried)
		for container, image := range p.core.ImagesOf(p.core.Update) {
			if old[container] != image {
				images[container] = image
			}
		}
	}

	return images, ""
}
