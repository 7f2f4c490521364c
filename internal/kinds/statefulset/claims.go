package statefulset

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/podplan"
)

const (
	// claimsAgain is when to look again at a PVC that has to go: its end need not be an event of the set's.
	claimsAgain = 2 * time.Second
	// remountAfter is how long a running pod may wait for the size of its file system before it is made anew,
	// because the volume only grows when it is mounted.
	remountAfter = 2 * time.Minute
)

// claimState is what a plan knows of the PVCs of an ordinal.
type claimState struct {
	// present are the names of those that exist.
	present map[string]bool
	// leaving names one that goes, or is about to, empty if none does.
	leaving string
	// growing names one that has not the size yet that it asks for; pending are since when file systems wait
	// to be mounted anew.
	growing string
	pending time.Time
	// failed is what the storage says of one that it cannot grow.
	failed string
	// growth is what has to grow, and fixed says what differs from its template and cannot be changed.
	growth []podplan.Growth
	fixed  string
	// settling: some get other owners in this plan. kept are the names of those that would go with their pod
	// if it were no slot.
	settling bool
	kept     []string
	// compatible and ready are by template.
	compatible, ready []bool
}

// observeClaims finds out about the PVCs of slots and of condemned pods.
func (p *planner) observeClaims() {
	for _, list := range [][]slot{p.slots, p.condemned} {
		for i := range list {
			p.claims[list[i].ordinal] = p.claimsAt(&list[i])
		}
	}
}

func (p *planner) claimsAt(s *slot) *claimState {
	templates := p.set.Spec.VolumeClaimTemplates
	c := &claimState{}
	if len(templates) == 0 {
		return c
	}

	c.present, c.compatible, c.ready = map[string]bool{}, make([]bool, len(templates)),
		make([]bool, len(templates))
	for i := range templates {
		name := claimName(templates[i].Name, p.set.Name, s.ordinal)
		claim := p.in.Claims[name]
		if claim == nil {
			continue
		}
		c.present[name] = true
		if claim.DeletionTimestamp != nil ||
			s.pod == nil && p.deletesScaled() && ownedBy(claim, "Pod", podName(p.set.Name, s.ordinal)) {
			c.leaving = "claim " + name
			continue
		}
		if owner := metav1.GetControllerOfNoCopy(claim); owner != nil && owner.Kind == "Pod" &&
			s.pod == nil && p.deletesScaled() {
			// and must not go from under another one
			c.leaving = fmt.Sprintf("claim %s, which goes with pod %s,", name, owner.Name)
			continue
		}
		p.compare(c, i, claim, podName(p.set.Name, s.ordinal))
	}

	return c
}

// compare compares a PVC with its template (ASTS-271 to 276).
func (p *planner) compare(c *claimState, i int, claim *corev1.PersistentVolumeClaim, pod string) {
	template := &p.set.Spec.VolumeClaimTemplates[i].PersistentVolumeClaim
	want, asked := template.Spec.Resources.Requests[corev1.ResourceStorage],
		claim.Spec.Resources.Requests[corev1.ResourceStorage]
	capacity, bound := claim.Status.Capacity[corev1.ResourceStorage]
	class, wanted := claim.Spec.StorageClassName, template.Spec.StorageClassName
	switch {
	case class != nil && wanted != nil && *class != *wanted:
		c.fixed = fmt.Sprintf("claim %s has storageClassName %s, and its template %s", claim.Name,
			*class, *wanted)
	case !slices.Equal(claim.Spec.AccessModes, template.Spec.AccessModes):
		c.fixed = fmt.Sprintf("claim %s has accessModes %v, and its template %v", claim.Name,
			claim.Spec.AccessModes, template.Spec.AccessModes)
	case asked.Cmp(want) < 0 && bound: // else the API server refuses it
		c.growth = append(c.growth,
			podplan.Growth{Claim: claim, Template: template.Name, Pod: pod, Storage: want})
	default:
		c.compatible[i] = asked.Cmp(want) >= 0
	}
	if !bound { // it gets its volume with a node for the pod, which an update may be needed for
		return
	}
	if capacity.Cmp(asked) >= 0 {
		c.ready[i] = c.compatible[i]
		return
	}

	pending := holds(claim, corev1.PersistentVolumeClaimFileSystemResizePending)
	failure := holds(claim, corev1.PersistentVolumeClaimNodeResizeError)
	if failure == nil && pending == nil { // else the volume has grown, whatever failed before
		failure = holds(claim, corev1.PersistentVolumeClaimControllerResizeError)
	}
	if failure != nil {
		c.failed = fmt.Sprintf("claim %s does not grow to %s: %s", claim.Name, asked.String(),
			failure.Message)
	}
	if pending == nil {
		c.growing = claim.Name
	} else if since := pending.LastTransitionTime.Time; c.pending.IsZero() || since.Before(c.pending) {
		c.pending = since
	}
}

// holds returns the condition of a PVC, nil unless it is True.
func holds(
	claim *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType,
) *corev1.PersistentVolumeClaimCondition {
	for i := range claim.Status.Conditions {
		if c := &claim.Status.Conditions[i]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// claimsGrow tells whether a PVC of the slot has not the size yet that it asks for.
func (p *planner) claimsGrow(s *slot) bool {
	c := p.claims[s.ordinal]
	return c.growing != "" || !c.pending.IsZero()
}

// lacksVolume names a claim template of which the pod has no volume, empty if it has all. Another volume of
// its name, which the template of the pod does not have, is the work of a webhook: it would be put into the
// next pod as well.
func (p *planner) lacksVolume(s *slot) string {
	for i := range p.set.Spec.VolumeClaimTemplates {
		template := p.set.Spec.VolumeClaimTemplates[i].Name
		if mounts(s.pod, claimName(template, p.set.Name, s.ordinal)) {
			continue
		}
		own, known := p.core.HasVolume(s.info.Label, template)
		if known && !own && slices.ContainsFunc(s.pod.Spec.Volumes,
			func(v corev1.Volume) bool { return v.Name == template }) {
			continue
		}
		return template
	}

	return ""
}

// deletesScaled tells whether PVCs go with pods that scaling in takes away.
func (p *planner) deletesScaled() bool {
	policy := p.set.Spec.PersistentVolumeClaimRetentionPolicy
	return p.in.Features.DeleteClaims && policy != nil &&
		policy.WhenScaled == appsv1beta1.DeleteStatefulSetClaims
}

// ownersOf are the owners that the retention policy gives the PVCs of a pod, which may be nil; condemned: it
// is no slot any more.
func (p *planner) ownersOf(pod *corev1.Pod, condemned bool) []metav1.OwnerReference {
	policy := p.set.Spec.PersistentVolumeClaimRetentionPolicy
	if policy == nil || !p.in.Features.DeleteClaims {
		return nil
	}

	withSet, scaled := policy.WhenDeleted == appsv1beta1.DeleteStatefulSetClaims, p.deletesScaled()
	var owners []metav1.OwnerReference
	if withSet && (!scaled || !condemned) {
		owner := p.core.Workload.Owner
		owners = append(owners, metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind,
			Name: owner.Name, UID: owner.UID})
	}
	if scaled && condemned && pod != nil {
		owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name,
			UID: pod.UID})
	}

	return owners
}

// retain gives the PVCs of slots and of condemned pods the owners of the retention policy. References to
// others stay (ASTS-260 to 265); what makes a pod the controller, as Kubernetes' own StatefulSet does, is
// none of them. While a slot has no pod, a reference to its former one stays too under whenScaled Delete:
// that PVC goes.
func (p *planner) retain() {
	if !p.in.Features.DeleteClaims {
		return
	}
	for i := range p.slots {
		p.retainAt(&p.slots[i], false)
	}
	for i := range p.condemned {
		p.retainAt(&p.condemned[i], true)
	}
}

func (p *planner) retainAt(s *slot, condemned bool) {
	if p.claims[s.ordinal].leaving != "" && s.pod == nil {
		return
	}

	want := p.ownersOf(s.pod, condemned)
	for i := range p.set.Spec.VolumeClaimTemplates {
		name := claimName(p.set.Spec.VolumeClaimTemplates[i].Name, p.set.Name, s.ordinal)
		if p.deletesScaled() && !condemned {
			p.claims[s.ordinal].kept = append(p.claims[s.ordinal].kept, name)
		}
		claim := p.in.Claims[name]
		if claim == nil || claim.DeletionTimestamp != nil {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(claim.OwnerReferences),
			func(owner metav1.OwnerReference) bool {
				return owner.UID == p.set.UID ||
					owner.Kind == "Pod" && owner.Name == podName(p.set.Name, s.ordinal)
			})
		next := append(others, want...)
		if sameOwners(claim.OwnerReferences, next) {
			continue
		}
		p.out.ClaimOwners = append(p.out.ClaimOwners,
			ClaimOwners{Claim: claim, Owners: next, Why: p.retentionWords(condemned)})
		p.claims[s.ordinal].settling = true
	}
}

func (p *planner) retentionWords(condemned bool) string {
	deleted, scaled := appsv1beta1.RetainStatefulSetClaims, appsv1beta1.RetainStatefulSetClaims
	if policy := p.set.Spec.PersistentVolumeClaimRetentionPolicy; policy != nil {
		deleted, scaled = policy.WhenDeleted, policy.WhenScaled
	}
	who := "a pod of the set"
	if condemned {
		who = "a pod that goes"
	}
	return fmt.Sprintf("it is that of %s; whenDeleted %s, whenScaled %s", who, deleted, scaled)
}

func ownedBy(claim *corev1.PersistentVolumeClaim, kind, name string) bool {
	return slices.ContainsFunc(claim.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.Kind == kind && owner.Name == name
	})
}

// sameOwners tells whether two lists have the same owners, in any order.
func sameOwners(a, b []metav1.OwnerReference) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(owner metav1.OwnerReference) bool {
		return !slices.ContainsFunc(b,
			func(other metav1.OwnerReference) bool { return owner.UID == other.UID })
	})
}

// createClaims makes PVCs that a pod waits for, which somebody deleted.
func (p *planner) createClaims() {
	for i := range p.slots {
		s := &p.slots[i]
		if s.info == nil || s.pod.Status.Phase != corev1.PodPending {
			continue
		}
		creation := podplan.Creation{Name: s.pod.Name}
		for j := range p.set.Spec.VolumeClaimTemplates {
			template := p.set.Spec.VolumeClaimTemplates[j]
			name := claimName(template.Name, p.set.Name, s.ordinal)
			if p.claims[s.ordinal].present[name] || !mounts(s.pod, name) {
				continue
			}
			claim, err := p.core.ClaimDocument(template, p.identity(s.ordinal))
			if err != nil {
				p.out.ScaleError = err.Error()
				return
			}
			creation.Claims = append(creation.Claims, claim)
		}
		if len(creation.Claims) > 0 {
			p.out.CreateClaims = append(p.out.CreateClaims, creation)
		}
	}
}

func mounts(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}
