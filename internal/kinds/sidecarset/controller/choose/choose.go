package choose

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/inject"
)

// Namespaces returns the labels of namespaces.
type Namespaces interface {
	// Labels returns the labels of an existing namespace. If the namespace is not known yet, it is looked up
	// (SS-082).
	Labels(ctx context.Context, name string) (map[string]string, error)
}

// Revisions returns the ControllerRevisions of SidecarSets.
type Revisions interface {
	// Get returns a revision, or nil if there is none of that name.
	Get(ctx context.Context, name string) (*appsv1.ControllerRevision, error)
	// OfVersion returns the revisions of a SidecarSet that are labelled with a custom version.
	OfVersion(ctx context.Context, sidecarSet, version string) ([]*appsv1.ControllerRevision, error)
}

// Selector decides what is injected into a pod (sections 4 and 5 of the specification).
type Selector struct {
	index      *Index
	namespaces Namespaces
	revisions  Revisions
	random     func() float64
}

// NewChooser returns a Chooser. random returns numbers from 0 up to but not including 1; nil means the random
// numbers of the process (SS-174).
func NewChooser(index *Index, namespaces Namespaces, revisions Revisions, random func() float64) *Selector {
	if random == nil {
		random = rand.Float64
	}
	return &Selector{index: index, namespaces: namespaces, revisions: revisions, random: random}
}

// Choose returns the templates for a pod that is created in the namespace, in the order of their names
// (SS-080 to SS-093, SS-170 to SS-175). The status in the pod is ignored, because the API server removes it
// later (SS-083). An error rejects the pod. If it is about one SidecarSet, it is an *inject.Error.
func (c *Selector) Choose(ctx context.Context, pod *corev1.Pod, namespace string) ([]*inject.Template, error) {
	entries, err := c.inNamespace(ctx, c.index.matches(pod.Labels), namespace)
	if err != nil {
		return nil, err
	}

	suppressed := map[string]bool{} // the bases of canaries
	for _, e := range entries {
		suppressed[e.base] = true
	}

	var templates []*inject.Template
	for _, e := range entries {
		if suppressed[e.name] {
			continue
		}
		template, err := c.template(ctx, e, pod)
		if err != nil {
			return nil, &inject.Error{SidecarSet: e.name, Err: err}
		}
		templates = append(templates, template)
	}

	return templates, nil
}

// inNamespace returns the entries whose namespace selector matches the pod's namespace. The namespace is
// looked up only if an entry has such a selector.
func (c *Selector) inNamespace(ctx context.Context, entries []*entry, name string) ([]*entry, error) {
	var namespace labels.Set
	var kept []*entry
	for _, e := range entries {
		if e.namespaces != nil {
			if namespace == nil {
				found, err := c.namespaces.Labels(ctx, name)
				if err != nil {
					return nil, &inject.Error{SidecarSet: e.name,
						Err: fmt.Errorf("spec.namespaceSelector: reading namespace %s: %w", name, err)}
				}
				if namespace = found; namespace == nil {
					namespace = labels.Set{}
				}
			}
			if !e.namespaces.Matches(namespace) {
				continue
			}
		}
		kept = append(kept, e)
	}

	return kept, nil
}

// template returns the template of an entry for the pod: the latest one, or that of the named revision.
func (c *Selector) template(ctx context.Context, e *entry, pod *corev1.Pod) (*inject.Template, error) {
	r := e.revision
	if r == nil || r.always || r.updated != nil && !r.updated.Matches(labels.Set(pod.Labels)) {
		if r == nil {
			return e.template, e.templateErr
		}
		return c.named(ctx, e)
	}

	switch {
	case r.percent <= 0:
		return e.template, e.templateErr
	case r.percent >= 100:
		return c.named(ctx, e)
	}

	named, err := c.named(ctx, e)
	if err != nil {
		return nil, err
	}
	if of := c.before(pod, e, named); of != nil {
		return of, nil
	}
	if c.random()*100 < float64(r.percent) {
		return named, nil
	}

	return e.template, e.templateErr
}

// before returns the template that the pod got if it has been injected before, so that a second pass does not
// give it another one. It returns nil if there is none.
func (c *Selector) before(pod *corev1.Pod, e *entry, named *inject.Template) *inject.Template {
	marked := func(c corev1.Container) bool { return inject.IsInjected(&c) }
	if !slices.ContainsFunc(pod.Spec.Containers, marked) &&
		!slices.ContainsFunc(pod.Spec.InitContainers, marked) || e.template == nil {
		return nil
	}

	records, err := sidecarset.ReadRecords(pod.Annotations[pub.SidecarSetHash])
	if err != nil {
		return nil // Inject reports the error
	}

	record, ok := records[e.name]
	if !ok {
		return nil
	}

	for _, same := range []func(*inject.Template) bool{
		func(t *inject.Template) bool {
			return record.ControllerRevision != "" && t.Revision == record.ControllerRevision
		},
		func(t *inject.Template) bool { return t.Hash == record.Hash },
	} {
		for _, t := range []*inject.Template{named, e.template} {
			if same(t) {
				return t
			}
		}
	}

	return nil
}

// named returns the template of the revision that the SidecarSet names.
func (c *Selector) named(ctx context.Context, e *entry) (*inject.Template, error) {
	if e.revision.name != "" {
		revision, err := c.revisions.Get(ctx, e.revision.name)
		if err != nil {
			return nil, fmt.Errorf(
				"spec.injectionStrategy.revision.revisionName: reading ControllerRevision %s: %w",
				e.revision.name, err)
		}
		if revision == nil {
			return nil, fmt.Errorf(
				"spec.injectionStrategy.revision.revisionName: there is no ControllerRevision %s",
				e.revision.name)
		}
		if of := revision.Labels[pub.SidecarSetName]; of != e.name {
			return nil, fmt.Errorf(
				"spec.injectionStrategy.revision.revisionName: ControllerRevision %s is of SidecarSet %q",
				revision.Name, of)
		}
		if e.formers(revision) {
			return nil, fmt.Errorf(
				"spec.injectionStrategy.revision.revisionName: ControllerRevision %s is of a former SidecarSet of this name",
				revision.Name)
		}
		return e.restored.template(e, revision)
	}

	version := e.revision.customVersion
	revisions, err := c.revisions.OfVersion(ctx, e.name, version)
	if err != nil {
		return nil, fmt.Errorf(
			"spec.injectionStrategy.revision.customVersion: reading ControllerRevisions of version %s: %w",
			version, err)
	}
	if revisions = slices.DeleteFunc(revisions, e.formers); len(revisions) == 0 {
		if version == e.customVersion { // it is not stored yet, and the current spec is that version
			return e.template, e.templateErr
		}
		return nil, fmt.Errorf(
			"spec.injectionStrategy.revision.customVersion: there is no ControllerRevision of version %s",
			version)
	}

	return e.restored.template(e, slices.MaxFunc(revisions,
		func(a, b *appsv1.ControllerRevision) int { return int(a.Revision - b.Revision) }))
}

// formers reports whether a revision belonged to a former SidecarSet of the same name, whose revisions are
// about to be garbage-collected.
func (e *entry) formers(revision *appsv1.ControllerRevision) bool {
	owner := metav1.GetControllerOfNoCopy(revision)
	return owner != nil && owner.UID != e.uid
}

// restored caches templates of revisions, which do not change.
type restored struct {
	spec      *appsv1beta1.SidecarSetSpec
	mu        sync.Mutex
	templates map[string]*inject.Template
}

// maxRestored is how many templates are cached. A SidecarSet names one revision at a time.
const maxRestored = 4

func (r *restored) template(e *entry, revision *appsv1.ControllerRevision) (*inject.Template, error) {
	key := string(revision.UID) + "/" + revision.ResourceVersion
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.templates[key]; t != nil {
		return t, nil
	}

	spec, err := sidecarset.Restore(r.spec, revision.Data.Raw)
	if err != nil {
		return nil, fmt.Errorf("ControllerRevision %s: %w", revision.Name, err)
	}

	t, err := inject.NewTemplate(e.name, spec, revision.Annotations[pub.SidecarSetHash],
		revision.Annotations[pub.SidecarSetHashWithoutImage], revision.Name)
	if err != nil {
		return nil, fmt.Errorf("ControllerRevision %s: %w", revision.Name, err)
	}
	if r.templates == nil || len(r.templates) >= maxRestored {
		r.templates = map[string]*inject.Template{}
	}
	r.templates[key] = t
	return t, nil
}
