package cloneset

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// Names of the wire for objects that the set owns.
const (
	kind = "CloneSet"
	// maxLabelValue is what a label value may hold; longer revision names are labelled by their short hash (CS-052).
	maxLabelValue = 63
)

// revisionInfo is a stored revision, or the one about to be.
type revisionInfo struct {
	name           string
	template       []byte
	fingerprint    string
	hasFingerprint bool
	// containers have the images and the quantities of cpu and memory of the regular containers, by name.
	containers map[string]*corev1.Container
	// claims are the claim templates that were remembered with the revision; nil if none were (CS-336).
	claims template.VolumeClaimTemplates
	object *appsv1.ControllerRevision
}

func infoOf(object *appsv1.ControllerRevision) (revisionInfo, error) {
	raw, err := revision.Template(object.Data.Raw)
	if err != nil {
		return revisionInfo{}, fmt.Errorf("ControllerRevision %s: %w", object.Name, err)
	}
	info := revisionInfo{name: object.Name, template: raw, object: object, containers: map[string]*corev1.Container{}}
	info.fingerprint, info.hasFingerprint = object.Annotations[pub.ClaimTemplateFingerprint]
	var typed struct {
		Spec struct {
			Containers []struct {
				Name, Image string
				Resources   corev1.ResourceRequirements
			} `json:"containers"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &typed); err != nil {
		return revisionInfo{}, fmt.Errorf("ControllerRevision %s: %w", object.Name, err)
	}
	for _, container := range typed.Spec.Containers {
		info.containers[container.Name] = &corev1.Container{Image: container.Image, Resources: inplace.Quantities(container.Resources)}
	}
	if text := object.Annotations[pub.ClaimTemplates]; text != "" {
		if err := json.Unmarshal([]byte(text), &info.claims); err != nil || info.claims.DecodeError() != nil {
			info.claims = nil // what cannot be read is not remembered
		}
	}
	return info, nil
}

// claimTemplatesOf returns the claim templates for pods of the revision: the set's own, but for older revisions those that were
// remembered with them, because their pods mount these (CS-089, CS-336).
func (p *planner) claimTemplatesOf(info *revisionInfo) template.VolumeClaimTemplates {
	if info.name != p.UpdateRevision && info.claims != nil {
		return info.claims
	}
	return p.Set.Spec.VolumeClaimTemplates
}

// raisedClaims is what a revision that has those annotations is to remember of the claim templates: nothing if there is no room for them.
func (p *planner) raisedClaims(present map[string]string) string {
	text := p.rememberedClaims()
	room := annotationRoom - len(pub.ClaimTemplateFingerprint) - len(p.ClaimFingerprint) - len(pub.ClaimTemplates) - len(text)
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

// rememberedClaims encodes the set's claim templates for a revision's annotation; an empty list is remembered too.
func (p *planner) rememberedClaims() string {
	documents := []json.RawMessage{}
	for i := range p.Set.Spec.VolumeClaimTemplates {
		documents = append(documents, p.Set.Spec.VolumeClaimTemplates[i].Raw())
	}
	encoded, err := json.Marshal(documents)
	if err != nil {
		return "" // determineRevisions has read them: they are JSON
	}
	return string(encoded)
}

// find returns the stored revision that a pod's label names, nil if there is none.
func (p *planner) find(label string) *revisionInfo {
	if info, ok := p.found[label]; ok {
		return info
	}
	var found *revisionInfo
	for i := range p.revisions {
		if revision.SameLabel(p.revisions[i].name, label) {
			found = &p.revisions[i]
			break
		}
	}
	if p.found == nil {
		p.found = map[string]*revisionInfo{}
	}
	p.found[label] = found
	return found
}

// determineRevisions finds or makes the update revision and the current one (CS-080 to 087).
func (p *planner) determineRevisions() error {
	if err := p.Set.Spec.Template.DecodeError(); err != nil {
		return fmt.Errorf("spec.template: %w", err)
	}
	if err := p.Set.Spec.VolumeClaimTemplates.DecodeError(); err != nil {
		return fmt.Errorf("spec.volumeClaimTemplates: %w", err)
	}
	data, err := revision.Data(p.Set.Spec.Template.Raw())
	if err != nil {
		return fmt.Errorf("spec.template: %w", err)
	}
	if p.ClaimFingerprint, err = revision.Fingerprint(p.claimTemplates()); err != nil {
		return fmt.Errorf("spec.volumeClaimTemplates: %w", err)
	}
	history := revision.NewHistory(p.Revisions, revision.Equal)
	for _, object := range history.Stored {
		info, err := infoOf(object)
		if err != nil {
			continue // not ours to read; pods that carry it are recreated (IPU-030)
		}
		p.revisions = append(p.revisions, info)
	}
	p.Status.CollisionCount = p.Set.Status.CollisionCount
	switch equal := history.Find(data); {
	case equal != nil && equal == history.Last():
		p.UpdateRevision = equal.Name
	case equal != nil:
		p.UpdateRevision = equal.Name
		if p.Set.DeletionTimestamp == nil {
			p.Renumber, p.NewNumber, p.ClaimTemplates = equal, history.Next(), p.raisedClaims(equal.Annotations)
			p.say("revision %s becomes the update revision again, as number %d", equal.Name, p.NewNumber)
			info := p.find(equal.Name)
			info.fingerprint, info.hasFingerprint = p.ClaimFingerprint, true // IPU-050
		}
	default:
		object := p.newRevision(data, history)
		p.UpdateRevision = object.Name
		info, err := infoOf(object)
		if err != nil {
			return err
		}
		p.revisions, p.found = append(p.revisions, info), nil // what was found may have moved
		if p.Set.DeletionTimestamp == nil {
			p.NewRevision = object
			p.say("the template is new: revision %s, number %d", object.Name, object.Revision)
		}
	}
	p.update = p.find(p.UpdateRevision)
	p.CurrentRevision = p.UpdateRevision
	if name := p.Set.Status.CurrentRevision; name != "" && slices.ContainsFunc(p.revisions, func(r revisionInfo) bool { return r.name == name }) {
		p.CurrentRevision = name
	}
	p.current = p.find(p.CurrentRevision)
	return nil
}

// newRevision makes the revision that stores the template (CS-081 to 084).
func (p *planner) newRevision(data []byte, history *revision.History) *appsv1.ControllerRevision {
	var name, hash string
	name, hash, p.Status.CollisionCount = history.Name(p.Set.Name, data, p.Set.Status.CollisionCount, history.Stored)
	labels := maps.Clone(p.Set.Spec.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[pub.RevisionHash] = hash
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Set.Namespace, Name: name, Labels: labels, Annotations: p.revisionAnnotations(p.Set.Annotations),
			OwnerReferences: []metav1.OwnerReference{ownerReference(p.Set)},
		},
		Data:     runtime.RawExtension{Raw: data},
		Revision: history.Next(),
	}
}

// annotationRoom is how many bytes of annotations the API server takes.
const annotationRoom = 256 << 10

// revisionAnnotations are what a revision is to have beside its template: the fingerprint of the claim templates, these themselves, and others, as
// far as there is room for them in this order.
func (p *planner) revisionAnnotations(others map[string]string) map[string]string {
	annotations := map[string]string{pub.ClaimTemplateFingerprint: p.ClaimFingerprint}
	room := annotationRoom - len(pub.ClaimTemplateFingerprint) - len(p.ClaimFingerprint)
	add := func(key, value string) {
		if _, ok := annotations[key]; !ok && len(key)+len(value) <= room {
			annotations[key] = value
			room -= len(key) + len(value)
		}
	}
	add(pub.ClaimTemplates, p.rememberedClaims())
	for _, key := range slices.Sorted(maps.Keys(others)) {
		add(key, others[key])
	}
	return annotations
}

func ownerReference(set *appsv1beta1.CloneSet) metav1.OwnerReference {
	return *metav1.NewControllerRef(set, appsv1beta1.GroupVersion.WithKind(kind))
}

// revisionLabel is the value of controller-revision-hash for pods of that revision (CS-050, CS-052).
func (p *planner) revisionLabel(name string) string {
	if p.Features.ShortHash || len(name) > maxLabelValue {
		return revision.ShortHash(name)
	}
	return name
}

func (p *planner) claimTemplates() []corev1.PersistentVolumeClaim {
	claims := make([]corev1.PersistentVolumeClaim, len(p.Set.Spec.VolumeClaimTemplates))
	for i := range p.Set.Spec.VolumeClaimTemplates {
		claims[i] = p.Set.Spec.VolumeClaimTemplates[i].PersistentVolumeClaim
	}
	return claims
}

// pruneHistory lists the revisions that nothing carries any more, beyond the history limit, oldest first (CS-088).
func (p *planner) pruneHistory() {
	limit := 10
	if p.Set.Spec.RevisionHistoryLimit != nil {
		limit = max(int(*p.Set.Spec.RevisionHistoryLimit), 0) // CS-347
	}
	var idle []*appsv1.ControllerRevision
	for _, info := range p.revisions {
		if info.name == p.UpdateRevision || info.name == p.CurrentRevision || info.name == p.Status.CurrentRevision {
			continue
		}
		carried := slices.ContainsFunc(p.pods, func(pod *podInfo) bool {
			return revision.SameLabel(pod.Label, info.name)
		})
		if !carried {
			idle = append(idle, info.object)
		}
	}
	if excess := len(idle) - limit; excess > 0 {
		p.History = idle[:excess]
	}
}
