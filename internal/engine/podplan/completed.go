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

// errIncomplete stops the planning because templates must be completed first.
var errIncomplete = errors.New("templates are to be completed by the API server first")

// Incomplete reports whether the plan cannot be made yet, because the API server must first complete its
// templates and [Knowledge.Completed] must record them. Nothing else in the plan is valid then.
func (p *Plan) Incomplete() bool { return len(p.Templates) > 0 }

// completion is a template that the API server completed: the data of a revision of it, once in the form in
// which revisions are compared, and once in the form of the API server's own answer, which the DaemonSet
// controller of Kubernetes stores.
type completion struct{ canonical, answered []byte }

// Completed records how the API server completes a template. For a template that it rejects, completed is the
// template itself.
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

// completed returns a template as completed by the API server, nil if that is not known; the plan then
// requests or reports it.
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

// Lacks returns an error if templates that the plan needs are not completed yet. The plan may decide nothing
// then.
func (p *Planner) Lacks() error {
	if p.lacks == nil && p.out.Incomplete() {
		return errIncomplete
	}
	return p.lacks
}

// keepCompletions keeps all known completions for the next plan if this one could not be made.
func (p *Planner) keepCompletions() {
	if p.Lacks() != nil && len(p.before.completed) > 0 {
		p.kept.completed = maps.Clone(p.before.completed)
	}
}

// meant returns the newest revision that equals the template after both are completed, because the DaemonSet
// controller of Kubernetes stores templates with all defaults. It also returns the data for a new revision.
// That is in the same form, completed or not, as the newest revision before it, so that whoever wrote that
// one recognizes the new one, too.
func (p *Planner) meant(history *revision.History, data []byte) (*appsv1.ControllerRevision, []byte, error) {
	if !p.Workload.Traits.Completes || len(history.Stored) == 0 {
		return nil, data, nil
	}

	wanted := p.completed(p.Workload.Template.Raw())
	var found *appsv1.ControllerRevision
	for _, stored := range history.Stored {
		template, err := revision.Template(stored.Data.Raw)
		if err != nil {
			continue // it cannot equal the template
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

// sameCompleted reports whether a stored revision equals the template after the API server has completed
// both; exact is a revision with the unchanged template. The API server does not complete images, so most
// revisions differ in these and need no completion. If ask is false, it requests no completion that is not
// known yet.
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

// newest returns the newest revision that equals exact, which holds the unchanged template, after completion.
func (p *Planner) newest(
	history *revision.History, exact *appsv1.ControllerRevision,
) (*appsv1.ControllerRevision, error) {
	for _, stored := range slices.Backward(history.Stored) {
		if stored == exact || p.sameCompleted(stored, exact, true) {
			return stored, p.Lacks()
		}
	}
	return exact, p.Lacks()
}

// comparedCompleted compares two templates as the API server completes them. It returns nil if a completion
// is not known, or if even the completed templates cannot be updated in place.
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
