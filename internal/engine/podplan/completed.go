package podplan

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// errIncomplete ends the search for the update revision when templates have to be completed first.
var errIncomplete = errors.New("templates are to be completed by the API server first")

// Incomplete tells whether the plan cannot be made as yet: its templates have to be completed by the API
// server, and made known by [Knowledge.Completed]. Nothing else of the plan holds then.
func (p *Plan) Incomplete() bool { return len(p.Templates) > 0 }

// completion is a template that the API server completed: what a revision of it holds in the form in which
// revisions are compared, and in that of the API server's own answer, in which the DaemonSet of Kubernetes
// writes it.
type completion struct{ canonical, answered []byte }

// Completed makes known how the API server completes a template. One that it does not take is as it is.
func (k *Knowledge) Completed(template, completed []byte) error {
	canonical, err := revision.Data(completed)
	if err != nil {
		return err
	}
	document, err := revision.Parse(completed)
	if err != nil {
		return err
	}
	document["$patch"] = "replace"
	answered, err := json.Marshal(map[string]any{"spec": map[string]any{"template": document}})
	if err != nil {
		return fmt.Errorf("encoding revision data: %w", err)
	}
	if k.completed == nil {
		k.completed = map[[sha256.Size]byte]*completion{}
	}
	k.completed[sha256.Sum256(template)] = &completion{canonical, answered}
	return nil
}

// completed is a template as the API server completes it; nil if that is not known, which the plan says.
func (p *Planner) completed(template []byte) *completion {
	sum := sha256.Sum256(template)
	data, known := p.before.completed[sum]
	if !known && p.in.CompletionError != "" {
		p.lacks = fmt.Errorf("spec.template cannot be compared with its revisions, because the API server does not complete templates: %s",
			p.in.CompletionError)
		return nil
	}
	if !known {
		p.out.Templates = append(p.out.Templates, template)
		return nil
	}
	if p.kept.completed == nil {
		p.kept.completed = map[[sha256.Size]byte]*completion{}
	}
	p.kept.completed[sum] = data
	return data
}

// Lacks is an error if templates that the plan needs are not completed as yet: then it may decide nothing.
func (p *Planner) Lacks() error {
	if p.lacks == nil && p.out.Incomplete() {
		return errIncomplete
	}
	return p.lacks
}

// keepCompletions keeps all that is known, for a plan that is made once more.
func (p *Planner) keepCompletions() {
	if p.Lacks() != nil && len(p.before.completed) > 0 {
		p.kept.completed = maps.Clone(p.before.completed)
	}
}

// meant finds the newest revision that means the same as the template after both are completed: the DaemonSet
// of Kubernetes stores templates with all defaults. It also returns what a new revision is to hold: templates
// are stored as the newest revision before them is, completed or not, so that whoever wrote that one knows it
// again (ADS-060, ADS-061).
func (p *Planner) meant(history *revision.History, data []byte) (*appsv1.ControllerRevision, []byte, error) {
	if !p.Workload.Traits.Completes || len(history.Stored) == 0 {
		return nil, data, nil
	}
	wanted := p.completed(p.Workload.Template.Raw())
	var found *appsv1.ControllerRevision
	for _, stored := range history.Stored {
		template, err := revision.Template(stored.Data.Raw)
		if err != nil {
			continue // it means nothing
		}
		completed := p.completed(template)
		if completed == nil || wanted == nil {
			continue
		}
		if bytes.Equal(completed.canonical, wanted.canonical) {
			found = stored
		}
		switch last := stored == history.Last(); {
		case last && bytes.Equal(stored.Data.Raw, completed.answered):
			data = wanted.answered
		case last && p.holds(stored, completed.canonical):
			data = wanted.canonical
		}
	}
	if err := p.Lacks(); err != nil {
		return nil, nil, err
	}
	return found, data, nil
}

// sameCompleted tells whether a stored revision means the same as the template, which another revision holds
// as it is, once the API server has completed both. It completes no images, so that most revisions need not
// be asked about; ask lets the others be.
func (p *Planner) sameCompleted(stored, exact *appsv1.ControllerRevision, ask bool) bool {
	if !p.Workload.Traits.Completes || !maps.EqualFunc(p.read(stored).containers, p.read(exact).containers,
		func(a, b *corev1.Container) bool { return a.Image == b.Image }) {
		return false
	}
	template, err := revision.Template(stored.Data.Raw)
	if err != nil {
		return false
	}
	of := [2][]byte{template, p.Workload.Template.Raw()}
	for i := range of {
		if _, known := p.before.completed[sha256.Sum256(of[i])]; !known && !ask {
			return false
		}
	}
	a, b := p.completed(of[0]), p.completed(of[1])
	return a != nil && b != nil && bytes.Equal(a.canonical, b.canonical)
}

// newest is the newest revision that means the same as one that holds the template as it is (ADS-062).
func (p *Planner) newest(history *revision.History, exact *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	for _, stored := range slices.Backward(history.Stored) {
		if stored == exact || p.sameCompleted(stored, exact, true) {
			return stored, p.Lacks()
		}
	}
	return exact, p.Lacks()
}

// comparedCompleted compares two templates as the API server completes them; nil if that is not known, or
// shows blockers, too.
func (p *Planner) comparedCompleted(from, target []byte) *inplace.Change {
	a, b := p.completed(from), p.completed(target)
	if a == nil || b == nil {
		return nil
	}
	var templates [2][]byte
	for i, data := range [][]byte{a.canonical, b.canonical} {
		var err error
		if templates[i], err = revision.Template(data); err != nil {
			return nil
		}
	}
	change, blockers, err := inplace.Compare(templates[0], templates[1], p.Workload.InPlace)
	if err != nil || len(blockers) > 0 {
		return nil
	}
	return change
}
