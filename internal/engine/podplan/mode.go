package podplan

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// Mode defines how a pod can reach another revision.
type Mode struct {
	Recreate bool
	Change   *inplace.Change
	// daemon is true if the change needs a node daemon.
	daemon bool
	// words describe what changes.
	words string
	// refusal is why neither is allowed; empty if one of them is.
	refusal string
	// why is the reason for recreating the pod.
	why string
	// unstored is the revision that the pod carries if the cache does not have it, which may be why the pod
	// is recreated.
	unstored string
}

type modeKey struct{ label, target string }

// DecideModes finds out for every old pod whether it can reach the update revision in place, before anything
// is counted (CS-102, CS-127).
func (p *Planner) DecideModes() {
	for _, info := range p.Members {
		if !info.New {
			info.Mode = p.modeOf(info, p.Update)
		}
	}
}

// modeOf returns how the pod can reach the target. The answer is found once for all pods of the same
// revision. What depends on the pod is whether it needs a node daemon or a readiness gate and has none, and
// what its present content lacks.
func (p *Planner) modeOf(info *Pod, target *Revision) Mode {
	key := modeKey{info.Label, target.Name}
	m, ok := p.modes[key]
	if !ok {
		m = p.modeFrom(key.label, target)
		p.modes[key] = m
	}

	if info.Err != nil && m.Recreate && revision.SameLabel(key.label, target.Name) {
		// Only the record of its update has to be repaired.
		m = Mode{Change: &inplace.Change{}, words: "its record"}
	}
	if m.Change == nil {
		return m
	}
	if m.daemon {
		if names := m.Change.Unrestartable(info.Pod, p.in.Now); len(names) > 0 {
			return p.impossible(fmt.Sprintf(
				"its node has no node daemon, which would have to restart %s", strings.Join(names, ", "),
			))
		}
	}

	if p.Workload.Traits.Gated && m.Change.Holds() && !readiness.HasGate(info.Pod) {
		return p.impossible("it was made without readiness gate " + string(pub.InPlaceUpdateReady))
	}
	if len(info.StaleImages)+len(info.StaleResources) == 0 {
		return m
	}

	images, resources := map[string]string{}, map[string]corev1.ResourceRequirements{}
	for name := range info.StaleImages {
		if container, ok := p.read(target.object).containers[name]; ok {
			images[name] = container.Image
		}
	}

	for name := range info.StaleResources {
		if container, ok := p.read(target.object).containers[name]; ok {
			resources[name] = container.Resources
		}
	}

	if len(images)+len(resources) > 0 {
		m.Change = m.Change.With(info.Pod, images, resources)
		m.words = m.Change.String()
	}

	return m
}

func (p *Planner) modeFrom(label string, target *Revision) Mode {
	policy := p.Workload.Policy
	if policy == ReCreate && !p.sameTemplate(label, target) {
		return Mode{Recreate: true, why: "the policy is ReCreate", unstored: p.unstored(label)}
	}
	change, refusal := p.compare(label, target, policy)
	if refusal != "" {
		m := p.impossible(refusal)
		m.unstored = p.unstored(label)
		return m
	}
	return Mode{Change: change, daemon: len(change.NeedsDaemon()) > 0, words: change.String()}
}

// unstored returns the label if the snapshot has no revision that it names, and otherwise the empty string.
func (p *Planner) unstored(label string) string {
	named := func(r *appsv1.ControllerRevision) bool { return revision.SameLabel(r.Name, label) }
	if slices.ContainsFunc(p.in.Revisions, named) || slices.ContainsFunc(p.in.Foreign, named) {
		return ""
	}
	return label
}

// sameTemplate reports whether a pod of another revision has the template of the update revision, as pods
// have that another controller released. Such pods only get the new label.
func (p *Planner) sameTemplate(label string, target *Revision) bool {
	from := p.Find(label)
	return from != nil && target == p.Update &&
		(p.holds(from.object, p.kept.data) || p.sameCompleted(from.object, target.object, true))
}

// ImagesOf returns the images of the regular containers of a revision, by container.
func (p *Planner) ImagesOf(r *Revision) map[string]string {
	images := map[string]string{}
	for name, container := range p.read(r.object).containers {
		images[name] = container.Image
	}
	return images
}

// Duplicate reports whether a revision is known to contain the template of the update revision. It does not
// request completions from the API server to find out.
func (p *Planner) Duplicate(name string) bool {
	of := p.Find(name)
	return of != nil &&
		(p.holds(of.object, p.kept.data) || p.sameCompleted(of.object, p.Update.object, false))
}

// SameTemplate reports whether pods with that label have the template of the update revision, although the
// label names another revision.
func (p *Planner) SameTemplate(label string) bool {
	same, known := p.same[label]
	if !known {
		same = label != "" && p.sameTemplate(label, p.Update)
		if p.same == nil {
			p.same = map[string]bool{}
		}
		p.same[label] = same
	}
	return same
}

// impossible returns the mode of a pod that cannot be updated in place.
func (p *Planner) impossible(why string) Mode {
	if p.Workload.Policy == InPlaceOnly {
		return Mode{refusal: why}
	}
	return Mode{Recreate: true, why: why}
}

// compare returns the change from the revision named by the label to the target, or the reason why it cannot
// be made in place.
func (p *Planner) compare(label string, target *Revision, policy Policy) (*inplace.Change, string) {
	from := p.Find(label)
	if from == nil {
		return nil, fmt.Sprintf(
			"its ControllerRevision %q has been deleted, so nobody knows what would change", label,
		)
	}
	if p.Workload.RecreateOnClaimChange && policy != InPlaceOnly &&
		from.hasFingerprint && target.hasFingerprint && from.fingerprint != target.fingerprint {
		return nil, "spec.volumeClaimTemplates changed since its revision"
	}

	c := p.differ(from, target)
	return c.change, c.refusal
}
