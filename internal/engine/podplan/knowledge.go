package podplan

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// Knowledge is what plans for a workload have found out about its template and its revisions. What did not
// change since is not read again: revisions may be many and large, and events are frequent. It changes no
// decision, and holds only what the last plan needed. The zero value knows nothing.
type Knowledge struct {
	// text is the hash of a template, and data what a revision of it holds: the bytes of the stored revision,
	// if there is one.
	text     [sha256.Size]byte
	data     []byte
	contents map[version]*contents
	changes  map[[2]version]comparison
	// completed are templates as the API server completes them, by their hash.
	completed map[[sha256.Size]byte]*completion
}

// version is one version of a stored revision.
type version struct {
	uid     types.UID
	version string
}

func versionOf(object *appsv1.ControllerRevision) version {
	return version{object.UID, object.ResourceVersion}
}

// stored tells whether the version is one of the API server's, and so always means the same.
func (v version) stored() bool { return v.uid != "" && v.version != "" }

// contents are what a revision holds.
type contents struct {
	// containers have the images and the quantities of cpu and memory of the regular containers, by name.
	containers map[string]*corev1.Container
	// volumes are the names of the template's own volumes, and mounts of those that its containers mount.
	volumes, mounts map[string]bool
	// claims are the claim templates that were remembered with the revision; nil if none were (CS-336).
	claims template.VolumeClaimTemplates
	// err is why it cannot be read.
	err error
	// canonical is the hash of what it would hold if we had written it; nil if that was not asked for.
	canonical *[sha256.Size]byte
}

// comparison is how one revision differs from another.
type comparison struct {
	change  *inplace.Change
	refusal string
}

// begin returns what is known, for a plan that keeps of it what it needs. The receiver may be nil.
func (k *Knowledge) begin() (before, kept *Knowledge) {
	before, kept = &Knowledge{}, &Knowledge{contents: map[version]*contents{}, changes: map[[2]version]comparison{}}
	if k != nil {
		*before = *k
	}
	return before, kept
}

// dataOf is what a revision of the template holds.
func (p *Planner) dataOf(text []byte) (data []byte, err error) {
	sum := sha256.Sum256(text)
	if p.before.data != nil && p.before.text == sum {
		data = p.before.data
	} else if data, err = revision.Data(text); err != nil {
		return nil, err
	}
	p.kept.text, p.kept.data = sum, data
	return data, nil
}

// read returns what a revision holds.
func (p *Planner) read(object *appsv1.ControllerRevision) *contents {
	if c := p.contents[object]; c != nil {
		return c
	}
	key := versionOf(object)
	c, known := p.before.contents[key]
	if !known || !key.stored() {
		c = contentsOf(object)
	}
	p.contents[object] = c
	if key.stored() {
		p.kept.contents[key] = c
	}
	return c
}

func contentsOf(object *appsv1.ControllerRevision) *contents {
	raw, err := revision.Template(object.Data.Raw)
	if err != nil {
		return &contents{err: fmt.Errorf("ControllerRevision %s: %w", object.Name, err)}
	}
	type named struct{ Name string }
	type container struct {
		Name, Image   string
		Resources     corev1.ResourceRequirements
		VolumeMounts  []named
		VolumeDevices []named
	}
	var typed struct {
		Spec struct {
			Volumes                    []named
			Containers, InitContainers []container
		}
	}
	if err := json.Unmarshal(raw, &typed); err != nil {
		return &contents{err: fmt.Errorf("ControllerRevision %s: %w", object.Name, err)}
	}
	c := &contents{containers: map[string]*corev1.Container{}, volumes: map[string]bool{}, mounts: map[string]bool{}}
	for _, volume := range typed.Spec.Volumes {
		c.volumes[volume.Name] = true
	}
	for _, container := range typed.Spec.Containers {
		c.containers[container.Name] = &corev1.Container{Image: container.Image, Resources: inplace.Quantities(container.Resources)}
	}
	for _, container := range slices.Concat(typed.Spec.Containers, typed.Spec.InitContainers) {
		for _, mount := range slices.Concat(container.VolumeMounts, container.VolumeDevices) {
			c.mounts[mount.Name] = true
		}
	}
	if text := object.Annotations[pub.ClaimTemplates]; text != "" {
		if err := json.Unmarshal([]byte(text), &c.claims); err != nil || c.claims.DecodeError() != nil {
			c.claims = nil // what cannot be read is not remembered
		}
	}
	return c
}

// HasVolume tells whether the template of the revision that a label names has a volume of that name itself,
// and whether that is known.
func (p *Planner) HasVolume(label, name string) (has, known bool) {
	of := p.Find(label)
	if of == nil {
		return false, false
	}
	return p.read(of.object).volumes[name], true
}

// FormerClaims are the names of claim templates that the workload has no more, in order: a template mounts
// them, and has no volume of its own for them.
func FormerClaims(object *appsv1.ControllerRevision, present template.VolumeClaimTemplates) []string {
	return contentsOf(object).former(present)
}

func (c *contents) former(present template.VolumeClaimTemplates) (names []string) {
	for name := range c.mounts {
		if !c.volumes[name] && !slices.ContainsFunc(present, func(t template.VolumeClaimTemplate) bool { return t.Name == name }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// holds tells whether a stored revision holds the data, which are canonical: by their bytes, or by what it
// would hold if we had written it (CS-085).
func (p *Planner) holds(object *appsv1.ControllerRevision, data []byte) bool {
	if bytes.Equal(object.Data.Raw, data) {
		return true
	}
	c := p.read(object)
	if c.canonical == nil {
		var sum [sha256.Size]byte
		if raw, err := revision.Template(object.Data.Raw); err == nil {
			if canonical, err := revision.Data(raw); err == nil {
				sum = sha256.Sum256(canonical)
			}
		}
		c.canonical = &sum
	}
	return *c.canonical == sha256.Sum256(data)
}

// differ returns how two revisions differ.
func (p *Planner) differ(from, target *Revision) comparison {
	key := [2]version{versionOf(from.object), versionOf(target.object)}
	if !key[0].stored() || !key[1].stored() {
		return p.compared(from, target)
	}
	c, known := p.before.changes[key]
	if !known {
		c = p.compared(from, target)
	}
	if p.Lacks() != nil {
		return c // as yet
	}
	p.kept.changes[key] = c
	return c
}

func (p *Planner) compared(from, target *Revision) comparison {
	if !revision.SameBeside(from.object.Data.Raw, target.object.Data.Raw) {
		// IPU-041
		return comparison{refusal: fmt.Sprintf("ControllerRevisions %s and %s differ in more than spec.template", from.Name, target.Name)}
	}
	var templates [2][]byte
	for i, object := range []*appsv1.ControllerRevision{from.object, target.object} {
		var err error
		if templates[i], err = revision.Template(object.Data.Raw); err != nil {
			return comparison{refusal: err.Error()}
		}
	}
	change, blockers, err := inplace.Compare(templates[0], templates[1], p.Workload.InPlace)
	switch {
	case err != nil:
		return comparison{refusal: err.Error()}
	case len(blockers) > 0:
		if p.Workload.Traits.Completes {
			if change := p.comparedCompleted(templates[0], templates[1]); change != nil {
				return comparison{change: change}
			}
		}
		return comparison{refusal: blockers[0].String()}
	}
	return comparison{change: change}
}
