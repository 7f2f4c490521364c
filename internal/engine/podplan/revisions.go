package podplan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// maxLabelValue is what a label value may hold; longer revision names are labelled by their short hash
// (CS-052).
const maxLabelValue = 63

// Revision is a stored revision, or the one about to be.
type Revision struct {
	Name           string
	fingerprint    string
	hasFingerprint bool
	object         *appsv1.ControllerRevision
}

func infoOf(object *appsv1.ControllerRevision) Revision {
	info := Revision{Name: object.Name, object: object}
	info.fingerprint, info.hasFingerprint = object.Annotations[pub.ClaimTemplateFingerprint]
	return info
}

// claimTemplatesOf returns the claim templates for pods of the revision: the set's own, but for older
// revisions those that were remembered with them, because their pods mount these (CS-089, CS-336).
func (p *Planner) claimTemplatesOf(info *Revision) template.VolumeClaimTemplates {
	if claims := p.read(info.object).claims; info.Name != p.out.UpdateRevision && claims != nil && !p.Workload.Traits.SameClaims {
		return claims
	}
	return p.Workload.Claims
}

// raisedClaims is what a revision that has those annotations is to remember of the claim templates: nothing
// if there is no room for them.
func (p *Planner) raisedClaims(present map[string]string) string {
	text := p.rememberedClaims()
	room := annotationRoom - len(pub.ClaimTemplateFingerprint) - len(p.out.ClaimFingerprint) - len(pub.ClaimTemplates) - len(text)
	for key, value := range present {
		if key != pub.ClaimTemplateFingerprint && key != pub.ClaimTemplates {
			room -= len(key) + len(value)
		}
	}
	if room < 0 {
		return ""
	}
	return text
}

// rememberedClaims encodes the set's claim templates for a revision's annotation; an empty list is remembered
// too.
func (p *Planner) rememberedClaims() string {
	documents := []json.RawMessage{}
	for i := range p.Workload.Claims {
		documents = append(documents, p.Workload.Claims[i].Raw())
	}
	encoded, err := json.Marshal(documents)
	if err != nil {
		return "" // determineRevisions has read them: they are JSON
	}
	return string(encoded)
}

// Find returns the stored revision that a pod's label names, whosever it is, nil if there is none.
func (p *Planner) Find(label string) *Revision {
	if info, ok := p.found[label]; ok {
		return info
	}
	var found *Revision
	for _, list := range [][]Revision{p.revisions, p.foreign} {
		for i := range list {
			// else pods that carry it are recreated (IPU-030)
			if found == nil && revision.SameLabel(list[i].Name, label) && p.read(list[i].object).err == nil {
				found = &list[i]
			}
		}
	}
	if p.found == nil {
		p.found = map[string]*Revision{}
	}
	p.found[label] = found
	return found
}

// DetermineRevisions finds or makes the update revision and the current one (CS-080 to 087).
func (p *Planner) DetermineRevisions() error {
	if err := p.Workload.Template.DecodeError(); err != nil {
		return fmt.Errorf("spec.template: %w", err)
	}
	if err := p.Workload.Claims.DecodeError(); err != nil {
		return fmt.Errorf("spec.volumeClaimTemplates: %w", err)
	}
	data, err := p.dataOf(p.Workload.Template.Raw())
	if err != nil {
		return fmt.Errorf("spec.template: %w", err)
	}
	if p.out.ClaimFingerprint, err = revision.Fingerprint(p.claimTemplates()); err != nil {
		return fmt.Errorf("spec.volumeClaimTemplates: %w", err)
	}
	history := revision.NewHistory(p.in.Revisions, p.holds)
	for _, object := range history.Stored {
		p.revisions = append(p.revisions, infoOf(object))
	}
	for _, object := range p.in.Foreign {
		p.foreign = append(p.foreign, infoOf(object))
	}
	p.out.CollisionCount = p.Workload.CollisionCount
	equal := history.Find(data)
	stored := data
	if equal == nil {
		equal, stored, err = p.meant(history, data)
	} else {
		equal, err = p.newest(history, equal)
	}
	if err != nil {
		return err
	}
	if equal != nil && bytes.Equal(equal.Data.Raw, data) {
		p.kept.data = equal.Data.Raw // which the cache holds anyway
	}
	switch {
	case equal != nil && equal == history.Last():
		p.out.UpdateRevision = equal.Name
	case equal != nil:
		p.out.UpdateRevision = equal.Name
		if !p.Workload.Deleted {
			p.out.Renumber, p.out.NewNumber = equal, history.Next()
			if !p.Workload.Traits.SameClaims {
				p.out.Remembered = map[string]any{pub.ClaimTemplateFingerprint: p.out.ClaimFingerprint,
					pub.ClaimTemplates: p.raisedClaims(equal.Annotations)}
			}
			p.Say("revision %s becomes the update revision again, as number %d", equal.Name, p.out.NewNumber)
			info := p.Find(equal.Name)
			info.fingerprint, info.hasFingerprint = p.out.ClaimFingerprint, true // IPU-050
		}
	default:
		object := p.newRevision(stored, history)
		p.out.UpdateRevision = object.Name
		if err := p.read(object).err; err != nil {
			return err
		}
		p.revisions, p.found = append(p.revisions, infoOf(object)), nil // what was found may have moved
		if !p.Workload.Deleted {
			p.out.NewRevision = object
			p.Say("the template is new: revision %s, number %d", object.Name, object.Revision)
		}
	}
	p.Update = p.Find(p.out.UpdateRevision)
	if p.Current = p.Find(p.Workload.CurrentRevision); p.Current == nil || p.Current.Name != p.Workload.CurrentRevision {
		p.Current = p.carried(data)
	}
	p.out.CurrentRevision = p.Current.Name
	return nil
}

// carried is the current revision where the status names none that is stored: the status of a workload that
// was just taken over, or came back from a backup, knows nothing. It is the newest revision but the update's
// that a pod carries, so that a pod that is lost in the middle of a rollout comes back as it was; without
// such a pod the update revision (CS-086, ASTS-085).
func (p *Planner) carried(update []byte) *Revision {
	for i := range slices.Backward(p.revisions) {
		r := &p.revisions[i]
		if r.Name != p.Update.Name && p.read(r.object).err == nil && !p.holds(r.object, update) &&
			slices.ContainsFunc(p.in.Pods, func(pod *corev1.Pod) bool {
				return revision.SameLabel(r.Name, pod.Labels[pub.ControllerRevisionHash])
			}) {
			return r
		}
	}
	return p.Update
}

// newRevision makes the revision that stores the template (CS-081 to 084).
func (p *Planner) newRevision(data []byte, history *revision.History) *appsv1.ControllerRevision {
	var name, hash string
	name, hash, p.out.CollisionCount = history.Name(p.Workload.Name, data, p.Workload.CollisionCount, history.Stored)
	labels := maps.Clone(p.Workload.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[p.hashLabel()] = hash
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Workload.Namespace, Name: name, Labels: labels, Annotations: p.revisionAnnotations(p.Workload.Annotations),
			OwnerReferences: []metav1.OwnerReference{p.Workload.Owner},
		},
		Data:     runtime.RawExtension{Raw: data},
		Revision: history.Next(),
	}
}

// hashLabel is the label of a revision that holds its hash.
func (p *Planner) hashLabel() string { return cmp.Or(p.Workload.Traits.HashLabel, pub.RevisionHash) }

// annotationRoom is how many bytes of annotations the API server takes.
const annotationRoom = 256 << 10

// revisionAnnotations are what a revision is to have beside its template: the fingerprint of the claim
// templates, these themselves, and others, as far as there is room for them in this order.
func (p *Planner) revisionAnnotations(others map[string]string) map[string]string {
	annotations, room := map[string]string{}, annotationRoom
	add := func(key, value string) {
		if _, ok := annotations[key]; !ok && len(key)+len(value) <= room {
			annotations[key] = value
			room -= len(key) + len(value)
		}
	}
	if !p.Workload.Traits.SameClaims {
		add(pub.ClaimTemplateFingerprint, p.out.ClaimFingerprint)
		add(pub.ClaimTemplates, p.rememberedClaims())
	}
	for _, key := range slices.Sorted(maps.Keys(others)) {
		add(key, others[key])
	}
	return annotations
}

// revisionLabel is the value of controller-revision-hash for pods of that revision (CS-050, CS-052).
func (p *Planner) revisionLabel(name string) string {
	if p.Workload.ShortHash || len(name) > maxLabelValue {
		return revision.ShortHash(name)
	}
	return name
}

// RevisionLabel is the value of controller-revision-hash for pods of the update revision.
func (p *Planner) RevisionLabel() string { return p.revisionLabel(p.out.UpdateRevision) }

func (p *Planner) claimTemplates() []corev1.PersistentVolumeClaim {
	claims := make([]corev1.PersistentVolumeClaim, len(p.Workload.Claims))
	for i := range p.Workload.Claims {
		claims[i] = p.Workload.Claims[i].PersistentVolumeClaim
	}
	return claims
}

// PruneHistory lists the revisions that nothing carries any more, beyond the history limit, oldest first
// (CS-088). settled is the current revision that the status is to name.
func (p *Planner) PruneHistory(settled string) {
	limit := 10
	if p.Workload.HistoryLimit != nil {
		limit = max(int(*p.Workload.HistoryLimit), 0) // CS-347
	}
	var idle []*appsv1.ControllerRevision
	for _, info := range p.revisions {
		if info.Name == p.out.UpdateRevision || info.Name == p.out.CurrentRevision || info.Name == settled {
			continue
		}
		carried := slices.ContainsFunc(p.in.Pods, func(pod *corev1.Pod) bool {
			return revision.SameLabel(pod.Labels[pub.ControllerRevisionHash], info.Name)
		})
		if !carried {
			idle = append(idle, info.object)
		}
	}
	if len(idle) > limit { // what cannot be read is not ours to delete
		idle = slices.DeleteFunc(idle, func(object *appsv1.ControllerRevision) bool { return p.read(object).err != nil })
	}
	if excess := len(idle) - limit; excess > 0 {
		p.out.History = idle[:excess]
	}
}
