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
	// claimsAgain is when to look again at a PVC that has to go, because its deletion may cause no event for
	// the set.
	claimsAgain = 2 * time.Second
	// remountAfter is how long a running pod may wait for its file system to grow before it is recreated,
	// because the volume only grows when it is mounted.
	remountAfter = 2 * time.Minute
)

// claimState is what a plan knows about the PVCs of an ordinal.
type claimState struct {
	// present are the names of the PVCs that exist.
	present map[string]bool
	// leaving describes a PVC that is being deleted or about to be. It is empty if there is none.
	leaving string
	// growing is the name of a PVC that does not have the requested size yet. pending is since when file
	// systems have been waiting for the volume to be mounted again.
	growing string
	pending time.Time
	// failed is why the storage cannot grow a PVC.
	failed string
	// growth are the PVCs to grow. fixed says what differs from a template and cannot be changed.
	growth []podplan.Growth
	fixed  string
	// settling reports that this plan changes owners of the PVCs. kept are the names of PVCs that would be
	// deleted with the pod if its ordinal were no slot.
	settling bool
	kept     []string
	// compatible and ready report for each template whether the PVC satisfies it, and whether it also has its
	// size.
	compatible, ready []bool
}

// observeClaims records the state of the PVCs of slots and of condemned pods.
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
			// A new pod must not lose the claim when the other pod goes.
			c.leaving = fmt.Sprintf("claim %s, which goes with pod %s,", name, owner.Name)
			continue
		}
		p.compare(c, i, claim, podName(p.set.Name, s.ordinal))
	}

	return c
}

// compare compares a PVC with its template.
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
	case asked.Cmp(want) < 0 && bound: // the API server rejects this for an unbound claim
		c.growth = append(c.growth,
			podplan.Growth{Claim: claim, Template: template.Name, Pod: pod, Storage: want})
	default:
		c.compatible[i] = asked.Cmp(want) >= 0
	}
	if !bound { // it is bound once the pod has a node, for which an update may be needed
		return
	}
	if capacity.Cmp(asked) >= 0 {
		c.ready[i] = c.compatible[i]
		return
	}

	pending := holds(claim, corev1.PersistentVolumeClaimFileSystemResizePending)
	failure := holds(claim, corev1.PersistentVolumeClaimNodeResizeError)
	if failure == nil && pending == nil { // otherwise the volume has grown, whatever failed before
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

// holds returns the condition of a PVC, or nil unless it is True.
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

// claimsGrow reports whether a PVC of the slot does not have the requested size yet.
func (p *planner) claimsGrow(s *slot) bool {
	c := p.claims[s.ordinal]
	return c.growing != "" || !c.pending.IsZero()
}

// lacksVolume returns the name of a claim template for which the pod has no volume, or "" if it has all
// volumes. Another volume of that name which is not in the pod's template was added by a webhook. The pod
// does not count as lacking the volume then, because the webhook would add its own to the next pod as well.
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

// deletesScaled reports whether PVCs are deleted with pods that scaling in removes.
func (p *planner) deletesScaled() bool {
	policy := p.set.Spec.PersistentVolumeClaimRetentionPolicy
	return p.in.Features.DeleteClaims && policy != nil &&
		policy.WhenScaled == appsv1beta1.DeleteStatefulSetClaims
}

// ownersOf returns the owners that the retention policy gives to the PVCs of a pod, which may be nil.
// condemned reports that the pod's ordinal is no longer a slot.
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

// retain gives the PVCs of slots and of condemned pods the owners that the retention policy wants. References
// to other owners stay, but not one that makes the pod the controller, as Kubernetes' own StatefulSet writes
// it. While a slot has no pod, a reference to its former pod stays too under whenScaled Delete, because that
// PVC is about to go.
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

// sameOwners reports whether two lists have the same owners, in any order.
func sameOwners(a, b []metav1.OwnerReference) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(owner metav1.OwnerReference) bool {
		return !slices.ContainsFunc(b,
			func(other metav1.OwnerReference) bool { return owner.UID == other.UID })
	})
}

// createClaims plans the PVCs that pending pods wait for because somebody deleted them.
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
