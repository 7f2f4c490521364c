package uniteddeployment

import (
	"bytes"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// Data returns what a revision stores of the text of a template (UD-130, UD-131).
func Data(template []byte) ([]byte, error) {
	canonical, err := canonical(template)
	if err != nil {
		return nil, err
	}
	canonical["$patch"] = "replace"
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": canonical}})
	if err != nil {
		return nil, fmt.Errorf("encoding a revision: %w", err)
	}
	return data, nil
}

// canonical returns a template in the form in which templates are compared: encoded like the typed structs of
// OpenKruise, with the fields that these do not know.
func canonical(template []byte) (revision.Document, error) {
	all, err := revision.Parse(appsv1alpha1.ModernSubsetTemplate(template))
	if err != nil {
		return nil, err
	}

	delete(all, "$patch")
	for _, kind := range Kinds {
		if all[string(kind)] == nil {
			delete(all, string(kind))
			continue
		}
		document, ok := all[string(kind)].(revision.Document)
		if !ok {
			return nil, fmt.Errorf("%s is no object", kind)
		}
		if err := rewrite(document, "metadata", revision.CanonicalAs[metav1.ObjectMeta]); err != nil {
			return nil, err
		}
		if err := rewrite(document, "spec", kind.canonicalSpec); err != nil {
			return nil, fmt.Errorf("%s.spec: %w", kind, err)
		}
	}

	return all, nil
}

// rewrite replaces a member of a document by the result of as for its text. A missing member counts as empty.
func rewrite(document revision.Document, key string, as func([]byte) (any, error)) error {
	if document[key] == nil {
		document[key] = revision.Document{}
	}
	text, err := json.Marshal(document[key])
	if err == nil {
		document[key], err = as(text)
	}
	return err
}

func (k Kind) canonicalSpec(text []byte) (any, error) {
	switch k {
	case StatefulSet:
		return revision.CanonicalAs[appsv1.StatefulSetSpec](text)
	case Deployment:
		return revision.CanonicalAs[appsv1.DeploymentSpec](text)
	}

	spec, err := revision.Parse(text)
	if err != nil {
		return nil, err
	}

	// Our types keep templates as documents whose fields they do not know.
	pod, claims := spec["template"], spec["volumeClaimTemplates"]
	delete(spec, "template")
	delete(spec, "volumeClaimTemplates")
	if text, err = json.Marshal(spec); err != nil {
		return nil, fmt.Errorf("encoding a spec: %w", err)
	}

	var known any
	if k == CloneSet {
		known, err = revision.CanonicalAs[appsv1beta1.CloneSetSpec](text)
	} else {
		known, err = revision.CanonicalAs[appsv1beta1.StatefulSetSpec](text)
	}
	if err != nil {
		return nil, err
	}

	rest, ok := known.(revision.Document)
	if !ok {
		return nil, fmt.Errorf("it is no object")
	}

	rest["template"] = pod
	if err := rewrite(rest, "template", revision.CanonicalAs[corev1.PodTemplateSpec]); err != nil {
		return nil, err
	}
	if delete(rest, "volumeClaimTemplates"); claims == nil {
		return rest, nil
	}

	rest["volumeClaimTemplates"] = claims
	return rest, rewrite(rest, "volumeClaimTemplates", revision.CanonicalAs[[]corev1.PersistentVolumeClaim])
}

// Knowledge is what a controller keeps between plans, so that a template is parsed only once. The zero value
// is empty.
type Knowledge struct {
	uid        types.UID
	generation int64
	template   *Template
	data       []byte
	err        error
	// normal has the canonical form of stored revisions that were compared, by UID.
	normal map[types.UID][]byte
}

// read returns the template of the object, and the data that its revision stores.
func (k *Knowledge) read(united *appsv1beta1.UnitedDeployment) (*Template, []byte, error) {
	if k.uid == united.UID && k.generation == united.Generation && (k.template != nil || k.err != nil) &&
		united.Generation != 0 {
		return k.template, k.data, k.err
	}

	k.uid, k.generation = united.UID, united.Generation
	k.template, k.data = nil, nil
	if k.template, k.err = TemplateOf(&united.Spec.Template); k.err == nil {
		var text []byte
		if text, k.err = json.Marshal(&united.Spec.Template); k.err == nil {
			k.data, k.err = Data(text)
		}
	}

	return k.template, k.data, k.err
}

// Same reports whether a stored revision has the same meaning as data, whoever wrote it.
func (k *Knowledge) Same(stored *appsv1.ControllerRevision, data []byte) bool {
	if bytes.Equal(stored.Data.Raw, data) {
		return true
	}

	normal, known := k.normal[stored.UID]
	if !known {
		if template, err := revision.Template(stored.Data.Raw); err == nil {
			normal, _ = Data(template)
		}
		if stored.UID != "" { // the content of a revision does not change
			if k.normal == nil || len(k.normal) > 64 {
				k.normal = map[types.UID][]byte{}
			}
			k.normal[stored.UID] = normal
		}
	}

	return normal != nil && bytes.Equal(normal, data)
}

// revisions finds the revision of the template, or plans to create it.
func (p *Plan) revisions(s *Snapshot, template *Template, data []byte) {
	history := revision.NewHistory(s.Revisions, s.Known.Same)
	p.Collisions = s.United.Status.CollisionCount
	equal := history.Find(data)
	switch {
	case equal == nil:
		var hash string
		p.Expected, hash, p.Collisions = history.Name(s.United.Name, data, p.Collisions, history.Stored)
		labels := template.Labels()
		labels[pub.RevisionHash] = hash
		p.NewRevision = &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.United.Namespace, Name: p.Expected, Labels: labels,
				OwnerReferences: []metav1.OwnerReference{OwnerReference(s.United)}},
			Data: runtime.RawExtension{Raw: data}, Revision: history.Next()}
	case equal != history.Last():
		p.Renumber, p.Number = equal, history.Next()
		fallthrough
	default:
		p.Expected = equal.Name
	}

	if p.label = p.Expected; len(p.label) > validation.LabelValueMaxLength {
		p.label = revision.ShortHash(p.Expected)
	}
}

// prune lists the revisions beyond the limit that are not needed. The revisions of children, the current one
// and that of the template are kept.
func (p *Plan) prune(s *Snapshot, current string) {
	limit := defaultHistory
	if given := s.United.Spec.RevisionHistoryLimit; given != nil {
		limit = max(int(*given), 0)
	}
	live := map[string]bool{p.Expected: true, current: true, s.United.Status.CurrentRevision: true}
	for _, c := range s.Children {
		live[c.Revision] = true
	}

	var idle []*appsv1.ControllerRevision
	for _, r := range revision.NewHistory(s.Revisions, nil).Stored {
		if !live[r.Name] && !live[revision.ShortHash(r.Name)] && r.DeletionTimestamp == nil {
			idle = append(idle, r)
		}
	}

	if excess := len(idle) - limit; excess > 0 {
		p.History = idle[:excess]
	}
}
