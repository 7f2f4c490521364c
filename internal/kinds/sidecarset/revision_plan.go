package sidecarset

import (
	"bytes"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Kind is the name of the kind in owner references.
const Kind = "SidecarSet"

// SameContent reports whether two contents of revisions mean the same, whoever wrote them (SS-184).
func SameContent(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	canonicalA, errA := canonicalContent(a)
	canonicalB, errB := canonicalContent(b)
	return errA == nil && errB == nil && bytes.Equal(canonicalA, canonicalB)
}

func canonicalContent(content []byte) ([]byte, error) {
	spec, err := Restore(&appsv1beta1.SidecarSetSpec{}, content)
	if err != nil {
		return nil, err
	}
	return Content(spec)
}

// revisions finds the revision that describes the current spec, or plans a new one.
func (p *planner) revisions() error {
	content, err := Content(&p.in.Set.Spec)
	if err != nil {
		return err
	}

	history := revision.NewHistory(p.in.owned(), func(stored *appsv1.ControllerRevision, data []byte) bool {
		return SameContent(stored.Data.Raw, data)
	})
	p.stored = history.Stored
	p.out.Status.CollisionCount = p.in.Set.Status.CollisionCount

	same := history.Find(content)
	if same == nil {
		p.out.NewRevision = p.newRevision(content, history)
		p.out.Status.LatestRevision = p.out.NewRevision.Name
		p.say("the spec is new: revision %s, number %d", p.out.NewRevision.Name, p.out.NewRevision.Revision)
		return nil
	}

	p.out.Status.LatestRevision = same.Name
	change := &RevisionChange{Revision: same}
	if same != history.Last() {
		change.Number = history.Next()
		p.say("revision %s is the latest again, as number %d", same.Name, change.Number)
	}
	if version := p.customVersion(); version != "" && same.Labels[pub.SidecarSetCustomVersion] != version {
		change.CustomVersion = version
		p.say("revision %s is called %s", same.Name, version)
	}
	if change.Number != 0 || change.CustomVersion != "" {
		p.out.ChangeRevision = change
	}

	return nil
}

// customVersion returns the custom version of the SidecarSet if it is a valid label value. An invalid one may
// have been stored before it was validated. The API server would reject the revision then, and everything
// would stop.
func (p *planner) customVersion() string {
	version := p.in.Set.Spec.CustomVersion
	if problems := validation.IsValidLabelValue(version); len(problems) > 0 {
		p.say("spec.customVersion %q is no value of a label and is left out: %s", version, problems[0])
		return ""
	}
	return version
}

// newRevision returns the revision for a content, under a name that no stored revision has.
func (p *planner) newRevision(content []byte, history *revision.History) *appsv1.ControllerRevision {
	var name, hash string
	name, hash, p.out.Status.CollisionCount = history.Name(p.in.Set.Name, content,
		p.out.Status.CollisionCount, p.in.Revisions)

	labels := maps.Clone(p.in.Set.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[pub.RevisionHash], labels[pub.SidecarSetName] = hash, p.in.Set.Name
	if version := p.customVersion(); version != "" {
		labels[pub.SidecarSetCustomVersion] = version
	}

	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.in.RevisionNamespace, Name: name, Labels: labels,
			Annotations: maps.Clone(p.in.Set.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p.in.Set,
				appsv1beta1.GroupVersion.WithKind(Kind))},
		},
		Data:     runtime.RawExtension{Raw: content},
		Revision: history.Next(),
	}
}

// named returns the stored revision that injectionStrategy.revision names, or nil if it names none.
func (p *planner) named() *appsv1.ControllerRevision {
	wanted := p.in.Set.Spec.InjectionStrategy.Revision
	if wanted == nil {
		return nil
	}

	for _, r := range slices.Backward(p.stored) {
		switch {
		case wanted.RevisionName != nil && *wanted.RevisionName != "":
			if r.Name == *wanted.RevisionName {
				return r
			}
		case wanted.CustomVersion != nil && *wanted.CustomVersion != "":
			if r.Labels[pub.SidecarSetCustomVersion] == *wanted.CustomVersion {
				return r
			}
		}
	}

	return nil
}

// defaultHistory is the number of revisions that are kept if the SidecarSet does not set it.
const defaultHistory = 10

// history lists the revisions to delete, oldest first. These are revisions beyond the limit that nothing
// needs.
func (p *planner) history() {
	limit := defaultHistory
	if l := p.in.Set.Spec.RevisionHistoryLimit; l != nil {
		limit = max(int(*l), 1)
	}
	needed := map[string]bool{p.out.Status.LatestRevision: true}
	if r := p.named(); r != nil {
		needed[r.Name] = true
	}

	for _, pod := range p.matched {
		needed[pod.record.ControllerRevision] = true
		if r := p.recorded(pod.record); r != nil { // admission records only stored ones
			needed[r.Name] = true
		}
		for _, begun := range pod.resizing { // what the pod got from it may have to be taken back
			if r := p.recorded(pub.SidecarSetRecord{Hash: begun}); r != nil {
				needed[r.Name] = true
			}
		}
	}

	excess := len(p.stored) - limit
	if p.out.NewRevision != nil {
		excess++
	}

	for _, r := range p.stored {
		if excess <= 0 {
			return
		}
		if needed[r.Name] {
			continue
		}
		if excess--; p.heldBack(r.UID) == "" {
			p.out.History = append(p.out.History, r)
		}
	}

	if excess > 0 {
		p.say("%s more than revisionHistoryLimit %d kept: pods or the injection strategy need them",
			wording.Count(excess, "revision"), limit)
	}
}

// revisionOf returns the name of the revision of a pod, by its record or else by its hash.
func (p *planner) revisionOf(pod *podInfo) string {
	switch r := p.recorded(pod.record); {
	case r != nil:
		return r.Name
	case pod.record.ControllerRevision != "":
		return pod.record.ControllerRevision
	case pod.updated:
		return p.out.Status.LatestRevision
	}
	return "unknown"
}
