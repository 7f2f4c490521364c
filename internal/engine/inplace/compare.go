package inplace

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// Blocker is a difference that cannot be applied in place.
type Blocker struct {
	// Path of the difference in the pod template, such as spec.containers[0].env.
	Path string
	// Rule says why it does not qualify.
	Rule string
}

func (b Blocker) String() string { return b.Path + ": " + b.Rule }

// Change is what has to be done to a pod to bring it from one template to another in place.
type Change struct {
	// Images maps containers to their new images (IPU-033).
	Images map[string]string
	// Labels and Annotations hold new values; nil removes the key (IPU-090).
	Labels, Annotations map[string]*string
	// AddFinalizers and RemoveFinalizers are what the template's finalizers gained and lost.
	AddFinalizers, RemoveFinalizers []string
}

// Restarts tells whether the change restarts a container; one that does not needs neither readiness nor grace (IPU-308).
func (c *Change) Restarts() bool { return len(c.Images) > 0 }

// String says what changes, for events and narratives.
func (c *Change) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c.Images)) {
		parts = append(parts, fmt.Sprintf("image of %s to %s", name, c.Images[name]))
	}
	if n := len(c.Labels); n > 0 {
		parts = append(parts, "labels "+strings.Join(slices.Sorted(maps.Keys(c.Labels)), ", "))
	}
	if n := len(c.Annotations); n > 0 {
		parts = append(parts, "annotations "+strings.Join(slices.Sorted(maps.Keys(c.Annotations)), ", "))
	}
	if len(c.AddFinalizers)+len(c.RemoveFinalizers) > 0 {
		parts = append(parts, "finalizers")
	}
	if len(parts) == 0 {
		return "revision labels only"
	}
	return strings.Join(parts, "; ")
}

func (c *Change) metadata(patch *podpatch.Patch) {
	for key, value := range c.Labels {
		if value == nil {
			patch.RemoveLabel(key)
		} else {
			patch.Label(key, *value)
		}
	}
	for key, value := range c.Annotations {
		if value == nil {
			patch.RemoveAnnotation(key)
		} else {
			patch.Annotation(key, *value)
		}
	}
	patch.Finalizers(c.AddFinalizers, c.RemoveFinalizers)
}

// Compare compares two revisions' templates as documents and classifies every difference (IPU-031 to 042). The change may be
// applied in place if there is no blocker. It fails if either document is no pod template.
func Compare(oldTemplate, newTemplate []byte) (*Change, []Blocker, error) {
	oldDoc, err := revision.Canonical(oldTemplate)
	if err != nil {
		return nil, nil, fmt.Errorf("old template: %w", err)
	}
	newDoc, err := revision.Canonical(newTemplate)
	if err != nil {
		return nil, nil, fmt.Errorf("new template: %w", err)
	}
	c := comparison{old: oldDoc, change: &Change{}}
	c.object(nil, oldDoc, newDoc)
	c.metadata(object(oldDoc["metadata"]), object(newDoc["metadata"]))
	return c.change, c.blockers, nil
}

type comparison struct {
	old      revision.Document
	change   *Change
	blockers []Blocker
}

func (c *comparison) block(path []string, rule string) {
	c.blockers = append(c.blockers, Blocker{Path: fieldPath(path), Rule: rule})
}

func (c *comparison) object(path []string, old, new revision.Document) {
	keys := maps.Clone(old)
	maps.Copy(keys, new)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if len(path) == 0 && key == "metadata" {
			continue // any difference of the metadata qualifies (IPU-034)
		}
		c.value(append(path[:len(path):len(path)], key), old[key], new[key])
	}
}

func (c *comparison) value(path []string, old, new any) {
	if reflect.DeepEqual(old, new) {
		return
	}
	switch oldValue := old.(type) {
	case revision.Document:
		if newValue, ok := new.(revision.Document); ok {
			c.object(path, oldValue, newValue)
			return
		}
	case []any:
		if newValue, ok := new.([]any); ok && len(path) == 2 && path[1] == "containers" {
			if len(oldValue) != len(newValue) {
				c.block(path, "containers cannot be added or removed in place")
				return
			}
			for i := range oldValue {
				c.value(append(path[:len(path):len(path)], strconv.Itoa(i)), oldValue[i], newValue[i])
			}
			return
		}
	}
	c.leaf(path, old, new)
}

// leaf classifies one difference in the pod's spec.
func (c *comparison) leaf(path []string, old, new any) {
	if len(path) == 4 && path[1] == "containers" && path[3] == "image" {
		oldImage, _ := old.(string)
		newImage, _ := new.(string)
		if oldImage != "" && newImage != "" {
			index, _ := strconv.Atoi(path[2])
			containers, _ := object(c.old["spec"])["containers"].([]any)
			name, _ := object(containers[index])["name"].(string)
			if c.change.Images == nil {
				c.change.Images = map[string]string{}
			}
			c.change.Images[name] = newImage
			return
		}
		c.block(path, "an image can only be replaced by another one")
		return
	}
	c.block(path, "only images of containers and metadata can change in place")
}

func (c *comparison) metadata(old, new revision.Document) {
	c.change.Labels = mapChange(object(old["labels"]), object(new["labels"]))
	c.change.Annotations = mapChange(object(old["annotations"]), object(new["annotations"]))
	oldFinalizers, newFinalizers := stringsOf(old["finalizers"]), stringsOf(new["finalizers"])
	c.change.AddFinalizers = minus(newFinalizers, oldFinalizers)
	c.change.RemoveFinalizers = minus(oldFinalizers, newFinalizers)
}

func mapChange(old, new revision.Document) map[string]*string {
	change := map[string]*string{}
	for key, value := range new {
		if text, ok := value.(string); ok && old[key] != value {
			change[key] = &text
		}
	}
	for key := range old {
		if _, ok := new[key]; !ok {
			change[key] = nil
		}
	}
	if len(change) == 0 {
		return nil
	}
	return change
}

func object(value any) revision.Document {
	doc, _ := value.(revision.Document)
	return doc
}

func stringsOf(value any) []string {
	list, _ := value.([]any)
	var out []string
	for _, entry := range list {
		if text, ok := entry.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

func minus(a, b []string) []string {
	var out []string
	for _, entry := range a {
		if !slices.Contains(b, entry) {
			out = append(out, entry)
		}
	}
	return out
}

// fieldPath renders {"spec","containers","0","image"} as spec.containers[0].image.
func fieldPath(path []string) string {
	var b strings.Builder
	for i, part := range path {
		if _, err := strconv.Atoi(part); err == nil {
			b.WriteString("[" + part + "]")
			continue
		}
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(part)
	}
	return b.String()
}
