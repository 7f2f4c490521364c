package cloneset

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/afloat-project/afloat/api/pub"
)

// ClaimGrowth is a claim that asks for less storage than its template does now (CS-338).
type ClaimGrowth struct {
	Claim   *corev1.PersistentVolumeClaim
	Storage resource.Quantity
}

// growClaims lets the claims of active pods follow their templates where the owner asks for it: growing is left to the StorageClass,
// shrinking is impossible and said (CS-338).
func (p *planner) growClaims() {
	if p.Set.Annotations[pub.ResizeClaims] != "true" {
		return
	}
	var held []string
	for i := range p.Set.Spec.VolumeClaimTemplates {
		template := &p.Set.Spec.VolumeClaimTemplates[i]
		want, ok := template.Spec.Resources.Requests[corev1.ResourceStorage]
		if !ok {
			continue
		}
		for _, claim := range p.Claims {
			id := claim.Labels[pub.CloneSetInstanceID]
			if claim.Name != p.claimName(template.Name, id) || claim.DeletionTimestamp != nil {
				continue
			}
			switch have := claim.Spec.Resources.Requests[corev1.ResourceStorage]; want.Cmp(have) {
			case 1:
				p.ClaimGrowth = append(p.ClaimGrowth, ClaimGrowth{claim, want})
			case -1:
				held = append(held, fmt.Sprintf("%s (%s)", claim.Name, have.String()))
			}
		}
	}
	if len(held) > 0 {
		slices.Sort(held)
		p.ClaimsHeld = "claims cannot shrink to their templates: " + strings.Join(held, ", ")
		p.say("%s", p.ClaimsHeld)
	}
}
