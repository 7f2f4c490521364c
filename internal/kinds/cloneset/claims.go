package cloneset

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/plural"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// sortClaims sorts the live claims of the set by instance ID.
func (p *planner) sortClaims() {
	p.claimsOf = map[string][]*corev1.PersistentVolumeClaim{}
	for _, claim := range p.in.Claims {
		if id := claim.Labels[pub.CloneSetInstanceID]; id != "" && claim.DeletionTimestamp == nil {
			p.claimsOf[id] = append(p.claimsOf[id], claim)
		}
	}
}

// takenIDs are the instance IDs that no new pod may have, and, sorted, those of live claims that are free. An
// ID whose pod object still exists in any state is taken, and so is one of a claim that is going or that
// belongs to a pod.
func (p *planner) takenIDs() (taken map[string]bool, free []string) {
	taken = map[string]bool{}
	for _, pods := range [][]*corev1.Pod{p.in.Pods, p.in.ForeignPods} {
		for _, pod := range pods {
			taken[p.idOf(pod)] = true
		}
	}

	for _, claim := range slices.Concat(p.in.Claims, p.in.PodOwnedClaims) {
		if owner := metav1.GetControllerOfNoCopy(claim); claim.DeletionTimestamp != nil ||
			owner != nil && owner.UID != p.set.UID {
			taken[claim.Labels[pub.CloneSetInstanceID]] = true
		}
	}

	for id := range p.claimsOf {
		if !taken[id] {
			free = append(free, id)
		}
	}

	slices.Sort(free)
	return taken, free
}

// keepsClaims tells whether the pod leaves its claims for its successor. Without reuse they would find none.
func (p *planner) keepsClaims(pod *corev1.Pod) bool {
	return pod.Labels[pub.KeepClaims] == "true" && p.set.Spec.ScaleStrategy.EnablePVCReuse
}

// leavesClaims tells whether the successor of an inactive pod takes over its claims: with reuse, unless the
// set itself wanted the pod to go.
func (p *planner) leavesClaims(pod *corev1.Pod) bool {
	_, wanted := pod.Labels[pub.SpecifiedDelete]
	return p.set.Spec.ScaleStrategy.EnablePVCReuse && len(p.claimsOf[p.idOf(pod)]) > 0 &&
		(!wanted || p.keepsClaims(pod))
}

// needsClaims tells whether a pod that has ended stands in the way of a successor: it has the name that goes
// with the claims.
func (p *planner) needsClaims(pod *corev1.Pod) bool {
	return p.set.DeletionTimestamp == nil && p.leavesClaims(pod)
}

// claimPatience is how long after it should be gone the claims of a pod are waited for.
const claimPatience = 30 * time.Second

// leavingUntil is how long the claims of an inactive pod are waited for: until some time after it should be
// gone. Those of a pod whose node is lost are not: it may never go.
func (p *planner) leavingUntil(pod *corev1.Pod) time.Time {
	switch {
	case p.in.LostNodes[pod.Spec.NodeName]:
		return time.Time{}
	case pod.DeletionTimestamp != nil:
		// the time by which it shall be gone, its grace period included
		return pod.DeletionTimestamp.Add(claimPatience)
	}
	since := pod.CreationTimestamp.Time // it has ended by itself, and is deleted now
	for i := range pod.Status.Conditions {
		if at := pod.Status.Conditions[i].LastTransitionTime.Time; at.After(since) {
			since = at
		}
	}

	return since.Add(2 * claimPatience)
}

// awaitClaims holds back the successors of pods that leave them their claims: a successor has the name of its
// predecessor, and must wait until that is gone. Where it does not go, a pod with a new name and new claims
// takes its place.
func (p *planner) awaitClaims(scale *rollout.Scale) {
	if scale.Create == 0 || len(p.claimsOf) == 0 {
		return
	}

	_, free := p.takenIDs()
	lacking := scale.Create - len(free)
	var awaited, given []string
	var last time.Time
	for _, pod := range p.in.Pods {
		if readiness.Active(pod) || !p.leavesClaims(pod) {
			continue
		}
		until := p.leavingUntil(pod)
		if !p.in.Now.Before(until) {
			given = append(given, pod.Name)
			continue
		}
		if len(awaited) < lacking {
			awaited = append(awaited, pod.Name)
			if until.After(last) {
				last = until
			}
			if v := p.core.Verdict(pod); v.Action == podplan.Keep {
				p.core.Decide(pod, podplan.Wait, podplan.ReasonInactive, "%s; its successor takes over its claims", v.Message).Until = until
			}
			p.core.LookAgain(until)
		}
	}

	if n := min(len(given), lacking-len(awaited)); n > 0 {
		p.out.ClaimsNotReused = fmt.Sprintf(
			"claims stay with pods that should be gone (%s); pods with new claims take their places",
			plural.Few(given[:n], 3))
		p.core.Say("%s", p.out.ClaimsNotReused)
	}
	if n := len(awaited); n > 0 {
		scale.Create -= n
		scale.CreateOld = min(scale.CreateOld, scale.Create)
		p.out.ClaimsAwaited = fmt.Sprintf(
			"%d new pods take over the claims of %s and wait until these are gone, until %s at the latest", n,
			plural.Few(awaited, 3), last.UTC().Format(time.RFC3339))
		if n == 1 {
			p.out.ClaimsAwaited = fmt.Sprintf(
				"a new pod takes over the claims of %s and waits until that is gone, until %s at the latest",
				awaited[0], last.UTC().Format(time.RFC3339))
		}
		p.core.Say("%s", p.out.ClaimsAwaited)
	}
}

// creationTime is how long the creation of a pod may be under way after its claims were made: as long as API
// servers work on a request.
const creationTime = time.Minute

// settleClaims decides about claims whose pod is not active any more. A pod that the set itself wanted to go
// takes its claims along whatever the reuse setting; a released one, and one that somebody else controls now,
// keeps them; without reuse the others are handed to what is left of their pod, or deleted.
func (p *planner) settleClaims() {
	if len(p.claimsOf) == 0 {
		return
	}

	active := map[string]bool{}
	inactive := map[string]*corev1.Pod{}
	released := map[string]*corev1.Pod{}
	for _, pod := range p.in.Pods {
		id := p.idOf(pod)
		switch v := p.core.Verdict(pod); {
		case id == "":
		case v != nil && v.Action == podplan.Release:
			released[id] = pod
		case readiness.Active(pod):
			active[id] = true
		default:
			inactive[id] = pod
		}
	}

	for _, pod := range p.in.ForeignPods {
		id := p.idOf(pod)
		if controller := metav1.GetControllerOfNoCopy(pod); controller != nil && controller.UID == p.set.UID {
			active[id] = true // the index of pods by controller is behind the cache
		} else if id != "" {
			released[id] = pod
		}
	}

	for _, claim := range p.in.Claims {
		id := claim.Labels[pub.CloneSetInstanceID]
		if id == "" || active[id] || claim.DeletionTimestamp != nil {
			continue
		}
		left := inactive[id]
		switch {
		case released[id] != nil:
			p.out.ClaimFates = append(p.out.ClaimFates,
				ClaimFate{Claim: claim, HandTo: released[id], Why: "its pod is released"})
		case left != nil && p.leavesClaims(left):
		case left != nil:
			p.out.ClaimFates = append(p.out.ClaimFates,
				ClaimFate{Claim: claim, HandTo: left, Why: "its pod is " + inactivity(left)})
		case p.set.Spec.ScaleStrategy.EnablePVCReuse:
		case p.in.Now.Sub(claim.CreationTimestamp.Time) < creationTime:
			p.core.LookAgain(claim.CreationTimestamp.Add(creationTime))
		default:
			p.out.ClaimFates = append(p.out.ClaimFates,
				ClaimFate{Claim: claim, Why: "it has no pod and reuse is off"})
		}
	}
}

// takeClaimsBack makes claims the set's again whose pod was to be deleted and is to stay now.
func (p *planner) takeClaimsBack() {
	if len(p.in.PodOwnedClaims) == 0 {
		return
	}

	staying := map[types.UID]bool{}
	for _, info := range p.core.Members {
		if v := p.core.Verdict(info.Pod); !info.Preparing && !info.Specified &&
			(v == nil || v.Action != podplan.Delete) {
			staying[info.Pod.UID] = true
		}
	}

	for _, claim := range p.in.PodOwnedClaims {
		if owner := metav1.GetControllerOfNoCopy(claim); owner != nil && staying[owner.UID] &&
			claim.DeletionTimestamp == nil {
			p.out.ClaimFates = append(p.out.ClaimFates,
				ClaimFate{Claim: claim, TakeBack: true, Why: "its pod stays"})
		}
	}
}

// growClaims lets the claims of active pods follow their templates where the owner asks for it: growing is
// left to the StorageClass, shrinking is impossible and said. Growth that was refused is tried again later.
func (p *planner) growClaims() {
	if p.set.Annotations[pub.ResizeClaims] != "true" {
		return
	}

	var held []string
	wanted := map[string]resource.Quantity{} // by template: both templates and claims may be many
	for i := range p.set.Spec.VolumeClaimTemplates {
		template := &p.set.Spec.VolumeClaimTemplates[i]
		if want, ok := template.Spec.Resources.Requests[corev1.ResourceStorage]; ok {
			wanted[template.Name] = want
		}
	}

	for _, claim := range p.in.Claims {
		template, ours := strings.CutSuffix(claim.Name,
			p.core.ClaimName("", claim.Labels[pub.CloneSetInstanceID]))
		want, ok := wanted[template]
		if !ours || !ok || claim.DeletionTimestamp != nil {
			continue
		}
		switch have := claim.Spec.Resources.Requests[corev1.ResourceStorage]; want.Cmp(have) {
		case 1:
			p.out.ClaimGrowth = append(p.out.ClaimGrowth,
				podplan.Growth{Claim: claim, Template: template, Storage: want})
		case -1:
			held = append(held, fmt.Sprintf("%s (%s)", claim.Name, have.String()))
		}
	}

	if len(held) > 0 {
		slices.Sort(held)
		p.out.ClaimsHeld = "claims are larger than their templates ask for, and cannot shrink: " +
			strings.Join(held, ", ")
		p.core.Say("%s", p.out.ClaimsHeld)
	}
	slices.SortStableFunc(p.out.ClaimGrowth,
		func(a, b podplan.Growth) int { return p.byRefusal(a.Claim.UID, b.Claim.UID) })
	if n := len(p.out.ClaimGrowth); n > 0 && p.in.Now.Before(p.in.GrowthHeldUntil) {
		p.core.Say("%s smaller than %s; the next attempt is made later: %s", plural.Of(n, "claim"),
			plural.Form(n, "its template", "their templates"), p.in.GrowthError)
		p.out.ClaimGrowth, p.out.ScaleError = nil, p.in.GrowthError
		p.core.LookAgain(p.in.GrowthHeldUntil)
	}
}
