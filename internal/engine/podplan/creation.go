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

// MayCreate tells how many of the missing pods may be created now: no more than there is room for. After a
// failure none are for a while; then one shows whether creation is possible again (CS-047, CS-072).
func (p *Planner) MayCreate(missing int) int {
	if missing == 0 {
		return 0
	}
	return p.MayTry(missing, p.atOnce())
}

// MayTry is MayCreate for those that know for how many there is room.
func (p *Planner) MayTry(missing, room int) int {
	switch {
	case missing == 0 || p.in.CreationError == "":
		return min(missing, room)
	case p.in.Now.Before(p.in.CreationHeldUntil):
		p.LookAgain(p.in.CreationHeldUntil)
		p.out.ScaleError = p.in.CreationError
		p.Say("%s missing; the next attempt is made later, because creation failed: %s", plural.Of(missing, "pod"), p.in.CreationError)
		return 0
	}
	p.out.Probing = missing > 1
	return 1
}

// roomForDocuments is of how many bytes of templates one plan makes documents, which take up to thirty times
// as much memory: a user may write both large templates and a wrong number of replicas.
const roomForDocuments = 8 << 20

// atOnce is for how many pods one plan has room, at least one.
func (p *Planner) atOnce() int {
	most := 0
	for _, from := range []*Revision{p.Update, p.Current} {
		size := len(from.object.Data.Raw)
		for _, claim := range p.claimTemplatesOf(from) {
			size += len(claim.Raw())
		}
		most = max(most, size)
	}
	return max(roomForDocuments/max(most, 1), 1)
}
