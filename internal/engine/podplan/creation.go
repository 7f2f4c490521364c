package podplan

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/afloat-project/afloat/internal/engine/plural"
)

// Growth is a PVC to be grown.
type Growth struct {
	Claim *corev1.PersistentVolumeClaim
	// Template is the claim template that asks for it.
	Template string
	// Pod is the pod whose claim it is; empty if nobody needs to be told.
	Pod     string
	Storage resource.Quantity
}

// MayCreate tells how many of the missing pods may be created now. After a failure none are for a while; then one shows whether
// creation is possible again (CS-047, CS-072).
func (p *Planner) MayCreate(missing int) int {
	switch {
	case missing == 0 || p.in.CreationError == "":
		return missing
	case p.in.Now.Before(p.in.CreationHeldUntil):
		p.LookAgain(p.in.CreationHeldUntil)
		p.out.ScaleError = p.in.CreationError
		p.Say("%s missing; the next attempt is made later, because creation failed: %s", plural.Of(missing, "pod"), p.in.CreationError)
		return 0
	}
	p.out.Probing = missing > 1
	return 1
}
