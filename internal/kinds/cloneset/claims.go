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
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/engine/wording"
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

// takenIDs returns the instance IDs that no new pod may have, and the sorted IDs of live claims that a new
// pod may take over. An ID is taken while its pod object exists in any state, and while one of its claims is
// being deleted or belongs to a pod.
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

// keepsClaims reports whether the pod leaves its claims to its successor. Without reuse a successor would not
// find them.
func (p *planner) keepsClaims(pod *corev1.Pod) bool {
	return pod.Labels[pub.KeepClaims] == "true" && p.set.Spec.ScaleStrategy.EnablePVCReuse
}

// leavesClaims reports whether the successor of an inactive pod takes over its claims. It does so only with
// reuse, and not if the set itself wanted the pod to go, unless the pod is labelled to keep its claims.
func (p *planner) leavesClaims(pod *corev1.Pod) bool {
	_, wanted := pod.Labels[pub.SpecifiedDelete]
	return p.set.Spec.ScaleStrategy.EnablePVCReuse && len(p.claimsOf[p.idOf(pod)]) > 0 &&
		(!wanted || p.keepsClaims(pod))
}

// needsClaims reports whether a pod that has ended blocks its successor, which takes over the claims and
// therefore has the same name.
func (p *planner) needsClaims(pod *corev1.Pod) bool {
	return p.set.DeletionTimestamp == nil && p.leavesClaims(pod)
}

// claimPatience is how long a successor waits for claims after the pod that has them should be gone.
const claimPatience = 30 * time.Second

// leavingUntil returns until when a successor waits for the claims of an inactive pod, which is some time
// after the pod should be gone. It returns the zero time if the node of the pod is lost, because that pod may
// never go.
func (p *planner) leavingUntil(pod *corev1.Pod) time.Time {
	switch {
	case p.in.LostNodes[pod.Spec.NodeName]:
		return time.Time{}
	case pod.DeletionTimestamp != nil:
		// The deletion timestamp includes the grace period of the pod.
		return pod.DeletionTimestamp.Add(claimPatience)
	}
	since := pod.CreationTimestamp.Time // the pod ended by itself, and is deleted now
	for i := range pod.Status.Conditions {
		if at := pod.Status.Conditions[i].LastTransitionTime.Time; at.After(since) {
			since = at
		}
	}

	return since.Add(2 * claimPatience)
}

// awaitClaims holds back the creation of pods that take over the claims of inactive pods. A successor has the
// name of its predecessor, so it must wait until that one is gone. If the predecessor does not go, a pod with
// a new name and new claims takes its place.
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
				p.core.Decide(pod, podplan.Wait, podplan.ReasonInactive,
					"%s; its successor takes over its claims", v.Message).Until = until
			}
			p.core.LookAgain(until)
		}
	}

	if n := min(len(given), lacking-len(awaited)); n > 0 {
		p.out.ClaimsNotReused = fmt.Sprintf(
			"claims stay with pods that should be gone (%s); pods with new claims take their places",
			wording.Few(given[:n], 3))
		p.core.Say("%s", p.out.ClaimsNotReused)
	}
	if n := len(awaited); n > 0 {
		scale.Create -= n
		scale.CreateOld = min(scale.CreateOld, scale.Create)
		p.out.ClaimsAwaited = fmt.Sprintf(
			"%d new pods take over the claims of %s and wait until these are gone, until %s at the latest", n,
			wording.Few(awaited, 3), last.UTC().Format(time.RFC3339))
		if n == 1 {
			p.out.ClaimsAwaited = fmt.Sprintf(
				"a new pod takes over the claims of %s and waits until that is gone, until %s at the latest",
				awaited[0], last.UTC().Format(time.RFC3339))
		}
		p.core.Say("%s", p.out.ClaimsAwaited)
	}
}

// creationTime is how long the creation of a pod may take after its claims were created. It is as long as an
// API server works on a request.
const creationTime = time.Minute

// settleClaims decides what becomes of claims whose pod is not active. A pod that the set itself wanted to go
// takes its claims along, whatever the reuse setting is. A pod that is released, or that somebody else
// controls now, keeps its claims. Without reuse, the other claims are handed to what is left of their pod, or
// deleted if nothing is left.
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
			active[id] = true // the index of pods by controller is stale
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

// takeClaimsBack returns to the set the claims of pods that were to be deleted and now stay.
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

// growClaims makes the claims of active pods follow their templates if the owner asks for it. Growing is left
// to the StorageClass. The API server rejects it as long as a claim has no volume. Shrinking is impossible and is
// reported. Growth that was refused is tried again later.
func (p *planner) growClaims() {
	if p.set.Annotations[pub.ResizeClaims] != "true" {
		return
	}

	var held []string
	unbound := 0
	wanted := map[string]resource.Quantity{} // by template, because both templates and claims may be many
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
		have := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		_, bound := claim.Status.Capacity[corev1.ResourceStorage]
		switch order := want.Cmp(have); {
		case order > 0 && !bound:
			unbound++
		case order > 0:
			p.out.ClaimGrowth = append(p.out.ClaimGrowth,
				podplan.Growth{Claim: claim, Template: template, Storage: want})
		case order < 0:
			held = append(held, fmt.Sprintf("%s (%s)", claim.Name, have.String()))
		}
	}

	if len(held) > 0 {
		slices.Sort(held)
		p.out.ClaimsHeld = "claims are larger than their templates ask for, and cannot shrink: " +
			strings.Join(held, ", ")
		p.core.Say("%s", p.out.ClaimsHeld)
	}
	if unbound > 0 {
		p.core.Say("%s smaller than %s and without a volume; growth begins when the volume is there",
			wording.Count(unbound, "claim"), wording.Form(unbound, "its template", "their templates"))
	}
	slices.SortStableFunc(p.out.ClaimGrowth,
		func(a, b podplan.Growth) int { return p.byRefusal(a.Claim.UID, b.Claim.UID) })
	if n := len(p.out.ClaimGrowth); n > 0 && p.in.Now.Before(p.in.GrowthHeldUntil) {
		p.core.Say("%s smaller than %s; the next attempt is made later: %s", wording.Count(n, "claim"),
			wording.Form(n, "its template", "their templates"), p.in.GrowthError)
		p.out.ClaimGrowth, p.out.ScaleError = nil, p.in.GrowthError
		p.core.LookAgain(p.in.GrowthHeldUntil)
	}
}
